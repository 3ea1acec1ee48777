"""The tables on what the paper does not tabulate."""

import pathlib

import pandas as pd

from analysis import evidence, frame, margins, tables, titles
from tasks import experiment_table

_BFLOAT16 = 'bfloat16'
# Model clipping at half of the norm of the initial model.
_LARGER_THRESHOLD = 'half_model_norm'


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


def model_clipping_table(runs: pd.DataFrame) -> pd.DataFrame:
  """Difference clipping beside model clipping, where the latter was run."""
  models = runs.loc[runs['clips'] == 'models', 'series']
  beside = runs['is_complete'] & runs['series'].isin(models)
  without = runs['privacy_sampling'].isna()
  table = algorithm_table(runs[beside & without])
  return table.drop(columns=['z', 'ε', 'δ']) if len(table) else table


def model_clipping_lead(paired: pd.DataFrame) -> dict[str, str]:
  """By how much model clipping is above difference clipping, seed by seed.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    `model_clipping_lead` in points, and `model_clipping_ratio`, its threshold
    over that of CE-FedAvg; empty where the interval is not above 0.
  """
  keys = ['row', 'scale', 'seed']
  models = paired[paired['variants'] == _LARGER_THRESHOLD]
  updates = paired[
    (paired['algorithm'] == 'ce_fed_avg') & (paired['variants'] == '')
  ]
  both = models.merge(updates, on=keys, suffixes=('', '_updates'))
  lead = margins.estimate(both['accuracy'] - both['accuracy_updates'])
  if lead is None or margins.sign(lead) != 1:
    return {'model_clipping_lead': '', 'model_clipping_ratio': ''}
  ratio = both['clipping_norm'].mean() / both['clipping_norm_updates'].mean()
  return {
    'model_clipping_lead': str(lead),
    'model_clipping_ratio': f'{ratio:.0f}',
  }


def bfloat16_table(paired: pd.DataFrame) -> pd.DataFrame:
  """What local steps in bfloat16 change of the accuracy, seed by seed.

  Args:
    paired: From `pairs.paired_runs`.

  Returns:
    Columns for a table; a row for each row, scale and algorithm that was run in
    both.
  """
  found = paired[(paired['variants'] == _BFLOAT16) & paired['gain'].notna()]
  return pd.DataFrame(
    [
      {
        'row': row,
        'scale': scale,
        'algorithm': titles.ALGORITHM_NAMES[algorithm],
        'float32 (%)': tables.cell(
          margins.estimate(part['accuracy'] - part['gain'])
        ),
        'bfloat16 (%)': tables.cell(margins.estimate(part['accuracy'])),
        'difference (points)': tables.cell(margins.estimate(part['gain'])),
        'seeds': len(part),
      }
      for (row, scale, algorithm), part in found.groupby(
        ['row', 'scale', 'algorithm'], sort=False
      )
    ]
  )


def search_table(folder: pathlib.Path, runs: pd.DataFrame) -> pd.DataFrame:
  """The searches for learning rates, as their tables have them.

  Args:
    folder: Where there is a folder with a `sweep.csv` for each.
    runs: The runs, which say what rate is used.
  """
  lines = []
  for path in sorted(folder.glob('*/sweep.csv')):
    sweep = pd.read_csv(path).dropna(subset=['final_accuracy'])
    rates, accuracies = sweep['client_learning_rate'], sweep['final_accuracy']
    own = runs['model'] + '_' + runs['task'] == path.parent.name
    used = sorted(set(runs.loc[own, 'client_learning_rate']))
    lines.append(
      {
        'model and data': path.parent.name.replace('_', ' '),
        'T': int(sweep['rounds'].max()),
        'η_l: accuracy (%)': ', '.join(
          f'{rate:g}: {100 * accuracy:.1f}'
          for rate, accuracy in zip(rates, accuracies, strict=True)
        ),
        'highest': f'{rates[accuracies.idxmax()]:g}',
        'used': ', '.join(f'{rate:g}' for rate in used) or margins.MISSING,
      }
    )
  return pd.DataFrame(lines)
