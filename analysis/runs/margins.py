"""Means over seeds with their margins: the one meaning of ± everywhere.

± is half of the 95 % interval of the mean over seeds by Student's t. It needs
three seeds: from two, its factor is 12.7. It is conditional on the test images,
which all seeds of a setting share, and says nothing on other test images.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from tff_clipping.privacy.accounting import rounding

MISSING = '–'
MIN_SEEDS = 3
# Of a rank correlation.
MIN_PAIRS = 3
_NUM_RESAMPLES = 10_000


class Estimate(NamedTuple):
  """A figure by seed, in percent or points, and what its mean is worth.

  Attributes:
    values: One a seed, at least one. Those of a drop are differences of two
      runs with the same seed, which share the split and the initial model.
  """

  values: tuple[float, ...]

  @property
  def mean(self) -> float:
    """The mean over seeds."""
    return float(np.mean(self.values))

  @property
  def num_seeds(self) -> int:
    """The number of seeds."""
    return len(self.values)

  @property
  def margin(self) -> float:
    """Half of the 95 % interval of the mean; NaN below `MIN_SEEDS` seeds."""
    if self.num_seeds < MIN_SEEDS:
      return math.nan
    return _quantile(self.num_seeds - 1) * float(stats.sem(self.values))

  def __str__(self) -> str:
    return with_margin(self.mean, self.margin)


class Difference(NamedTuple):
  """The mean of one figure less that of another, in points.

  Attributes:
    mean: The difference.
    margin: Half of its 95 % interval; NaN below `MIN_SEEDS` seeds of either.
    p_value: The chance of one as far from 0, on either side, if there were no
      difference; NaN below `MIN_SEEDS` seeds of either.
  """

  mean: float
  margin: float
  p_value: float

  def __str__(self) -> str:
    return with_margin(self.mean, self.margin)


class RankCorrelation(NamedTuple):
  """Spearman's rank correlation of pairs.

  Attributes:
    value: The correlation, in [-1, 1].
    p_value: The chance of one as far from 0, on either side, if the two had
      nothing to do with each other, by a permutation test.
    num_pairs: The number of pairs.
  """

  value: float
  p_value: float
  num_pairs: int

  def __str__(self) -> str:
    return (
      f'Spearman ρ = {self.value:.2f}, p = {self.p_value:.2g}, '
      f'{self.num_pairs} pairs'
    )


def estimate(values: Iterable[float]) -> Estimate | None:
  """The estimate of the finite ones of some values; None where none is."""
  finite = tuple(float(value) for value in values if math.isfinite(value))
  return Estimate(finite) if finite else None


def difference(one: Estimate, other: Estimate) -> Difference:
  """One less another, of runs of other seeds or rows: Welch's interval."""
  value = one.mean - other.mean
  if min(one.num_seeds, other.num_seeds) < MIN_SEEDS:
    return Difference(value, math.nan, math.nan)
  squares = [stats.sem(e.values) ** 2 for e in (one, other)]
  shares = [
    square**2 / (e.num_seeds - 1)
    for square, e in zip(squares, (one, other), strict=True)
  ]
  if sum(shares) == 0:
    return Difference(value, 0.0, float(value == 0))
  degrees, error = sum(squares) ** 2 / sum(shares), math.sqrt(sum(squares))
  p_value = 2 * stats.t.sf(abs(value) / error, degrees)
  return Difference(value, _quantile(degrees) * error, p_value)


def sign(figure: Estimate | Difference) -> int | None:
  """1 or -1 where the interval is on one side of 0, 0 where 0 is in it.

  None without a margin.
  """
  if math.isnan(figure.margin):
    return None
  return int(np.sign(figure.mean)) if abs(figure.mean) > figure.margin else 0


def prediction_margin(published: Estimate) -> float:
  """How far a new seed may be from the mean of others, by its 95 % interval.

  Returns:
    The margin in points; NaN from a single seed.
  """
  count = published.num_seeds
  if count < 2:
    return math.nan
  spread = float(np.std(published.values, ddof=1))
  return _quantile(count - 1) * spread * math.sqrt(1.0 + 1.0 / count)


def rank_correlation(
  first: Iterable[float], second: Iterable[float]
) -> RankCorrelation:
  """Spearman's rank correlation of two sequences, the same for the same data.

  Args:
    first: One value for each pair.
    second: The other value of each pair.

  Raises:
    ValueError: The lengths differ, there are fewer than `MIN_PAIRS` pairs, a
      value is not finite, or one side is constant.
  """
  x, y = (np.asarray(list(side), float) for side in (first, second))
  if x.shape != y.shape:
    raise ValueError(
      f'`second` must have the shape of `first`, found {y.shape} and {x.shape}.'
    )
  if len(x) < MIN_PAIRS:
    raise ValueError(
      f'`first` must hold at least {MIN_PAIRS} values, found {len(x)}.'
    )
  if not (np.isfinite(x).all() and np.isfinite(y).all()):
    raise ValueError('`first` and `second` must be finite, found NaN or inf.')
  if np.ptp(x) == 0 or np.ptp(y) == 0:
    raise ValueError('`first` and `second` must vary, found a constant.')
  # The correlation of standardised ranks is Spearman's.
  ranks = stats.zscore(stats.rankdata(x)), stats.zscore(stats.rankdata(y))
  test = stats.permutation_test(
    ranks[:1],
    lambda permuted, axis: (permuted * ranks[1]).mean(axis=axis),
    permutation_type='pairings',
    n_resamples=_NUM_RESAMPLES,
    vectorized=True,
    # The permutations are all of them up to seven pairs.
    random_state=0,
  )
  value = float(stats.spearmanr(x, y)[0])
  return RankCorrelation(value, float(test.pvalue), len(x))


def with_margin(value: float, margin: float, decimals: int = 2) -> str:
  """A figure with its decimals and, where there is one, its margin.

  With one more where they do not tell whether 0 is in the interval.
  """
  spec = f'.{decimals}f'
  if math.isnan(margin):
    return number(value, spec)
  if f'{abs(value):{spec}}' == f'{margin:{spec}}' != f'{0:{spec}}':
    spec = f'.{decimals + 1}f'
  return f'{number(value, spec)} ± {margin:{spec}}'


def number(value: float | None, spec: str) -> str:
  """A number in text, `MISSING` where there is none."""
  if value is None or not math.isfinite(value):
    return MISSING
  text = format(value, spec)
  # No negative zero.
  return text.removeprefix('-') if set(text) <= set('-0.') else text


def at_most(value: float | None) -> str:
  """A cost, such as an ε or noise, rounded up to four digits."""
  return MISSING if value is None else _bound(value, rounding.format_up)


def at_least(value: float | None) -> str:
  """A lower bound, rounded down to four digits."""
  return MISSING if value is None else _bound(value, rounding.format_down)


def _bound(value: float, to_text: Callable[[float], str]) -> str:
  return MISSING if math.isnan(value) else to_text(value)


def _quantile(degrees: float) -> float:
  return float(stats.t.ppf(0.975, degrees))
