"""Difference clipping beside model clipping."""

import pandas as pd

from analysis import algorithm_tables, margins

# At half of the norm of the initial model.
_LARGER_THRESHOLD = 'half_model_norm'


def comparison_table(runs: pd.DataFrame) -> pd.DataFrame:
  """Difference clipping beside model clipping, where the latter was run."""
  models = runs.loc[runs['clips'] == 'models', 'series']
  beside = runs['is_complete'] & runs['series'].isin(models)
  without = runs['privacy_sampling'].isna()
  table = algorithm_tables.algorithm_table(runs[beside & without])
  return table.drop(columns=['z', 'ε', 'δ']) if len(table) else table


def lead(paired: pd.DataFrame) -> dict[str, str]:
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
  found = margins.estimate(both['accuracy'] - both['accuracy_updates'])
  if found is None or margins.sign(found) != 1:
    return {'model_clipping_lead': '', 'model_clipping_ratio': ''}
  ratio = both['clipping_norm'].mean() / both['clipping_norm_updates'].mean()
  return {
    'model_clipping_lead': str(found),
    'model_clipping_ratio': f'{ratio:.0f}',
  }
