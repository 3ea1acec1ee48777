"""What each run is compared with: runs of the same setting and seed."""

import math

import pandas as pd

from analysis import titles


def with_baselines(runs: pd.DataFrame) -> pd.DataFrame:
  """Adds what each run is compared with, and how much accuracy it lost.

  Args:
    runs: A row for each run, as in `frame.Frames`.

  Returns:
    The rows with the columns `fed_avg_run` (the run of FedAvg of its setting
    and seed), `drop` (that one's final accuracy less its own, in points),
    `dp_drop` (CE-FedAvg's, with the same threshold, less its own), `no_drop`
    (why there is no `drop`) and `shown_norm` (the threshold on updates with
    which it is shown: its own c or, where it does not clip, the one c with
    which all others of its setting do; NaN where there is none, and for clipped
    models). Runs with an aggregator of a user's own are compared with others,
    and nothing with them: what they do to updates is not known.
  """
  found: dict[str, list] = {
    key: [] for key in ('fed_avg_run', 'drop', 'dp_drop', 'no_drop')
  }
  groups = {key: group for key, group in runs.groupby('setting')}
  for _, run in runs.iterrows():
    group = groups[run['setting']]
    plain, reason = None, ''
    if run['algorithm'] != 'fed_avg' or run['has_own_aggregator']:
      plain, reason = _find_baseline(run, group, 'fed_avg')
    clipped = None
    if run['algorithm'] == 'dp_fed_avg':
      clipped, _ = _find_baseline(run, group, 'ce_fed_avg')
    found['fed_avg_run'].append(plain)
    found['no_drop'].append(reason)
    for column, name in (('drop', plain), ('dp_drop', clipped)):
      base = runs.at[name, 'final_accuracy'] if name else math.nan
      found[column].append(base - run['final_accuracy'])
  return runs.assign(**found, shown_norm=_shown_norms(runs))


def _find_baseline(
  run: pd.Series, group: pd.DataFrame, algorithm: str
) -> tuple[str | None, str]:
  """Returns the one run of an algorithm in a group, or None and the reason."""
  # Two that could both be meant are never averaged nor chosen from.
  found = group[
    (group['algorithm'] == algorithm) & ~group['has_own_aggregator']
  ]
  if algorithm == 'ce_fed_avg':
    found = found[found['clipping_norm'] == run['clipping_norm']]
  name = titles.ALGORITHM_NAMES[algorithm]
  if found.empty:
    return None, f'no {name} run of the same setting'
  if len(found) > 1:
    names = ', '.join(sorted(found.index))
    return None, f'more than one {name} run of the same setting: {names}'
  for partial in (found.iloc[0], run):
    if not partial['is_complete']:
      return None, f'{partial.name} is not finished'
  return found.index[0], ''


def _shown_norms(runs: pd.DataFrame) -> pd.Series:
  norms = runs['clipping_norm'].where(runs['clips'] == 'updates')
  is_known = ~runs['has_own_aggregator']
  of_setting = norms.where(is_known).groupby(runs['setting'])
  is_one = of_setting.transform('nunique') == 1
  common = of_setting.transform('max').where(
    is_one & is_known & (runs['clips'] != 'models')
  )
  return norms.fillna(common)
