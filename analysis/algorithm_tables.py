"""Algorithms beside each other over seeds, and our own rows by them."""

import pandas as pd

from analysis import evidence, frame, margins
from tasks.experiments import experiment_table


def algorithm_table(runs: pd.DataFrame) -> pd.DataFrame:
  """Each algorithm over seeds, its drop that from FedAvg.

  Args:
    runs: The finished runs of settings that differ in the seed alone.

  Returns:
    Columns for a table; a row for each algorithm and, of model clipping, for
    each threshold on models.
  """
  models = runs['clips'] == 'models'
  keys = [runs['algorithm_name'], runs['clipping_norm'].where(models, 0.0)]
  lines = []
  for (name, _), part in frame.ordered(runs).groupby(keys, sort=False):
    delta = part['privacy_target_delta'].iloc[0]
    lines.append(
      {
        'algorithm': name,
        'clips': part['clips'].iloc[0],
        'T': part['num_rounds'].iloc[0],
        'final accuracy (%)': str(margins.estimate(part['final_accuracy'])),
        'drop (points)': str(margins.estimate(part['drop']) or margins.MISSING),
        'c': margins.number(part['clipping_norm'].mean(), '.3g'),
        'clipped (%)': margins.number(
          100 * part['clipped_fraction'].mean(), '.0f'
        ),
        'z': margins.number(part['privacy_noise_multiplier'].iloc[0], '.4g'),
        'ε': margins.at_most(part['epsilon_spent'].iloc[0]),
        'δ': evidence.format_delta(delta) if delta > 0 else margins.MISSING,
        'seeds': len(part),
      }
    )
  return pd.DataFrame(lines)


def beyond_table(runs: pd.DataFrame) -> pd.DataFrame:
  """Our own rows, which are none of the paper's tables."""
  tables = []
  for row in experiment_table.ROWS.values():
    own = runs[runs['is_complete'] & evidence.of_row(runs, row)]
    if row.table is None and len(own):
      table = algorithm_table(own)
      table.insert(0, 'row', row.name)
      tables.append(table.drop(columns='clips'))
  return pd.concat(tables) if tables else pd.DataFrame()
