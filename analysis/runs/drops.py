"""What each run is compared with, and the accuracy that it lost.

A run is compared with the run of another algorithm that is the same but for
that: by row, scale and variants, where both are of an experiment, else by their
settings and seed.
"""

import collections
import math
from collections.abc import Hashable

import numpy as np
import pandas as pd

from analysis.runs import titles
from analysis.runs.experiments import VARIANTS


def with_drops(runs: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
  """Adds what each run is compared with, and by how much it is worse.

  Runs with an aggregator of a user's own are compared with others, and nothing
  with them: what they do to updates is not known.

  Args:
    runs: A row for each run, as in `frame.Frames`, without these columns.
    rounds: Their rounds.

  Returns:
    The rows with the columns, in points where nothing else is said,

    - `fed_avg_run`: the run of FedAvg that it is compared with, None without,
      and `no_drop`, the reason why there is none;
    - `plain_run`: the run without its variants, itself if it has none;
    - `drop`: by how much its final score is worse than that of `fed_avg_run`:
      in points for an accuracy, else in the unit of the metric;
    - `dp_drop`: the same against CE-FedAvg with the same threshold;
    - `gain`: by how much it is better than that of `plain_run`;
    - `equal_path_accuracy` (percent): that of `fed_avg_run` at the round by
      which it has moved as far as this run has at T, and `equal_path_lead`: its
      own less that. Clipping makes steps shorter, so that a part of a drop is
      training that is still to come;
    - `shown_norm`: the threshold on updates with which it is shown: its own c
      or, where it does not clip, the one c with which all others of its setting
      do; NaN where there is none, and for clipped models.
  """
  partners = _Partners(runs)
  evaluated = dict(iter(rounds[rounds['score'].notna()].groupby('run')))
  lines = []
  for name, run in runs.iterrows():
    plain, reason = None, ''
    is_known = run['algorithm'] in titles.ALGORITHM_NAMES
    if is_known and (
      run['algorithm'] != 'fed_avg' or run['has_own_aggregator']
    ):
      plain, reason = partners.find(run, 'fed_avg')
    clipped = None
    if run['algorithm'] == 'dp_fed_avg':
      clipped, _ = partners.find(run, 'ce_fed_avg')
    same = name if not run['variants'] else partners.without_variants(run)
    score = run['final_score']
    equal = math.nan
    if plain and run['path'] and runs.at[plain, 'path']:
      path = runs.at[plain, 'path']
      equal_round = np.interp(run['path'][-1], path, np.arange(len(path)))
      known = evaluated[plain]
      # Straight lines between its evaluations.
      equal = np.interp(equal_round, known['round_num'], known['score'])
    lines.append(
      {
        'fed_avg_run': plain,
        'no_drop': reason,
        'plain_run': same,
        'drop': run['metric'].lost(_score(runs, plain), score),
        'dp_drop': run['metric'].lost(_score(runs, clipped), score),
        'gain': run['metric'].lost(score, _score(runs, same)),
        'equal_path_accuracy': float(equal),
        'equal_path_lead': float(score - equal),
      }
    )
  found = pd.DataFrame(lines, runs.index)
  return runs.join(found).assign(shown_norm=_shown_norms(runs))


class _Partners:
  """Finds what runs are compared with."""

  def __init__(self, runs: pd.DataFrame):
    self._runs = runs
    self._by_name = collections.defaultdict(list)
    self._by_setting = collections.defaultdict(list)
    for name, run in runs.iterrows():
      if run['has_own_aggregator']:
        continue
      if run['row']:
        self._by_name[_key(run, run['algorithm'])].append(name)
      self._by_setting[run['algorithm'], run['setting']].append(name)

  def find(self, run: pd.Series, algorithm: str) -> tuple[str | None, str]:
    """Returns the one run of an algorithm, or None and the reason."""
    found = self._candidates(run, algorithm)
    title = titles.ALGORITHM_NAMES[algorithm]
    if not found:
      return None, f'no {title} run of the same setting'
    # Two that could both be meant are never averaged nor chosen from.
    if len(found) > 1:
      names = ', '.join(sorted(found))
      return None, f'more than one {title} run of the same setting: {names}'
    for partial in (self._runs.loc[found[0]], run):
      if not partial['is_complete']:
        return None, f'{partial.name} is not finished'
    return found[0], ''

  def without_variants(self, run: pd.Series) -> str | None:
    """Returns the run of the same name but for the variants, if it is there."""
    plain = run.copy()
    plain['variants'] = ''
    found = self._by_name[_key(plain, run['algorithm'])]
    return found[0] if len(found) == 1 else None

  def _candidates(self, run: pd.Series, algorithm: str) -> list[str]:
    found = [
      name
      for name in self._by_setting[algorithm, run['setting']]
      if not run['row'] or not self._runs.at[name, 'row']
    ]
    if algorithm == 'ce_fed_avg':
      norms = self._runs['clipping_norm']
      found = [name for name in found if norms[name] == run['clipping_norm']]
    if run['row']:
      found = self._by_name[_key(run, algorithm)] + found
    return found


def _key(run: pd.Series, algorithm: str) -> Hashable:
  """What tells runs of experiments apart: two rows can have the same runs.

  Args:
    run: The row of a run.
    algorithm: The algorithm of the run that is looked for, which has the
      variants of `run` but those that are of other algorithms.
  """
  kept = (
    name
    for name in run['variants'].split(',')
    if name and algorithm in VARIANTS.get(name, (algorithm,))
  )
  same = ('task', 'partition', 'examples_per_client', 'model', 'scale', 'seed')
  return (*(str(run[key]) for key in same), algorithm, *kept)


def _score(runs: pd.DataFrame, name: str | None) -> float:
  return runs.at[name, 'final_score'] if name else math.nan


def _shown_norms(runs: pd.DataFrame) -> pd.Series:
  norms = runs['clipping_norm'].where(runs['clips'] == 'updates')
  is_known = ~runs['has_own_aggregator']
  of_setting = norms.where(is_known).groupby(
    [runs['setting'], runs['variants']]
  )
  is_one = of_setting.transform('nunique') == 1
  common = of_setting.transform('max').where(
    is_one & is_known & (runs['clips'] != 'models')
  )
  return norms.fillna(common)
