"""The paper's main claim in numbers: concentrated norms, small drops.

The paper observes that the accuracy lost by clipping goes with the spread of
the clients' update norms (Sec. 2.2). Here each pair of a FedAvg and a CE-FedAvg
run gives one point, and Spearman's rank correlation says how well they agree.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from analysis import paper, results, run_files, tables

MIN_PAIRS = 3
_NUM_RESAMPLES = 10_000


class RankCorrelation(NamedTuple):
  """Spearman's rank correlation, its interval, and a test that it is none.

  Attributes:
    value: The correlation, in [-1, 1].
    low: The lower end of the 95 % percentile interval.
    high: Its upper end.
    p_value: The chance of one as far from 0, on either side, if the two had
      nothing to do with each other: that of a permutation test. An interval
      from a handful of pairs is too short, this is not.
    num_pairs: The number of pairs.
  """

  value: float
  low: float
  high: float
  p_value: float
  num_pairs: int

  def __str__(self) -> str:
    return (
      f'Spearman ρ = {self.value:.2f}, 95 % interval [{self.low:.2f}, '
      f'{self.high:.2f}], p = {self.p_value:.2g}, {self.num_pairs} pairs'
    )


def relative_spread(run: results.Run) -> float:
  """Spread of the clients' update norms: standard deviation over mean.

  The ratio, and not the variance, because the threshold is itself a multiple of
  the mean norm: scaling all updates changes neither the ratio nor what is cut.

  Args:
    run: A run, usually of FedAvg.

  Returns:
    The mean over rounds of std(‖Δx_i‖) / mean(‖Δx_i‖), from `metrics.csv`
    where it is measured there, else from the rounds in `updates/`; NaN where
    neither has it.
  """
  metrics = run.metrics
  ratios = metrics['update_norm_std'] / metrics['update_norm_mean']
  ratios = ratios[np.isfinite(ratios)]
  if len(ratios):
    return float(ratios.mean())
  from_updates = []
  for table in run.updates.values():
    clients = table[table['client_id'] != run_files.MEAN_UPDATE_ID]
    mean = clients['update_norm'].mean()
    if len(clients) and mean > 0:
      from_updates.append(clients['update_norm'].std(ddof=0) / mean)
  return float(np.mean(from_updates)) if from_updates else math.nan


def spreads_at(
  runs: Sequence[results.Run], t: int = paper.FIGURE_ROUND
) -> tuple[float, float]:
  """The spread of the clients' update norms in one round.

  Args:
    runs: Runs that differ in the seed alone, usually of FedAvg.
    t: The round, 0 being the first.

  Returns:
    std(‖Δx_i‖) / mean(‖Δx_i‖) and std(‖Δx_i‖), the means over the runs, from
    `metrics.csv`; NaN where it was not measured.
  """
  found = pd.concat([run.metrics for run in runs])
  found = found[found['round_num'] == t + 1]
  stds = found['update_norm_std']
  return float((stds / found['update_norm_mean']).mean()), float(stds.mean())


def pairs(groups: Sequence[Sequence[results.Run]]) -> pd.DataFrame:
  """The spread of norms in FedAvg against the drop of CE-FedAvg.

  Args:
    groups: Groups of comparable runs.

  Returns:
    Columns label, run (of CE-FedAvg), is_iid, relative_spread (of the FedAvg
    run), drop (points), a row for each CE-FedAvg run that is finished and has
    its one FedAvg run.
  """
  rows = []
  for group in groups:
    for run in tables.ordered(group):
      if run.algorithm != 'ce_fed_avg':
        continue
      baseline, _ = tables.find_baseline(run, group)
      if baseline is None:
        continue
      spread = relative_spread(baseline)
      drop = tables.accuracy_drop(run, group)
      if math.isfinite(spread) and math.isfinite(drop):
        rows.append(
          {
            'label': f'{paper.model_name(run)}, {run.task}',
            'run': run.name,
            'is_iid': run.is_iid,
            'relative_spread': spread,
            'drop': drop,
          }
        )
  return pd.DataFrame(
    rows, columns=['label', 'run', 'is_iid', 'relative_spread', 'drop']
  )


def rank_correlation(
  first: Sequence[float], second: Sequence[float], seed: int = 0
) -> RankCorrelation:
  """Spearman's rank correlation with its interval and its p-value.

  Args:
    first: One value a pair.
    second: The other value of each pair.
    seed: Seeds the resampling, so that a report repeats.

  Returns:
    The correlation. The interval is of a percentile bootstrap; resamples in
    which one side is constant have none and are left out. The p-value is exact
    up to seven pairs.

  Raises:
    ValueError: The lengths differ, there are fewer than `MIN_PAIRS` pairs, a
      value is not finite, or one side is constant.
  """
  x, y = np.asarray(first, float), np.asarray(second, float)
  if x.shape != y.shape or x.ndim != 1:
    raise ValueError(
      f'`second` must have the shape of `first`, found {y.shape} and {x.shape}.'
    )
  if len(x) < MIN_PAIRS:
    raise ValueError(
      f'`first` must hold at least {MIN_PAIRS} values, found {len(x)}.'
    )
  if not (np.isfinite(x).all() and np.isfinite(y).all()):
    raise ValueError('`first` and `second` must be finite, found NaN or inf.')
  value = _spearman(x, y)
  if math.isnan(value):
    raise ValueError('`first` and `second` must vary, found a constant.')
  rng = np.random.default_rng(seed)
  draws = rng.integers(0, len(x), size=(_NUM_RESAMPLES, len(x)))
  resampled = np.array([_spearman(x[draw], y[draw]) for draw in draws])
  low, high = np.nanpercentile(resampled, [2.5, 97.5])
  test = stats.permutation_test(
    (x,),
    lambda permuted: _spearman(permuted, y),
    permutation_type='pairings',
    n_resamples=_NUM_RESAMPLES,
    random_state=seed,
  )
  return RankCorrelation(
    value, float(low), float(high), float(test.pvalue), len(x)
  )


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
  rank_x, rank_y = _ranks(x), _ranks(y)
  rank_x, rank_y = rank_x - rank_x.mean(), rank_y - rank_y.mean()
  scale = math.sqrt(float(rank_x @ rank_x) * float(rank_y @ rank_y))
  return float(rank_x @ rank_y) / scale if scale > 0 else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
  """Ranks from 1, ties sharing the mean of theirs."""
  _, inverse, counts = np.unique(
    values, return_inverse=True, return_counts=True
  )
  last = np.cumsum(counts)
  return (last - 0.5 * (counts - 1))[inverse]
