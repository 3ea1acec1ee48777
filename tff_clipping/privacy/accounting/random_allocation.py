"""The privacy loss of an epoch in which each client comes in one secret round.

An epoch has b rounds. Each client draws one of them for itself, uniformly and
independently of all others, and takes part in that round alone. With s = noise
over sensitivity, what an epoch costs is exactly this pair:

  P, the average over i of N(e_i, s^2 I), against Q = N(0, s^2 I), in R^b,

where e_i is the i-th unit vector. What is proved, and how it is computed:

1. The pair dominates an epoch, in both orders, whatever the other clients send,
   also where updates depend on earlier releases. Publish the rounds of all
   other clients as well, which do not depend on this client's: that can only
   cost more. Then the release of round t is N(g_t + v_t, s^2 I) if the client
   comes in it and N(g_t, s^2 I) if not, where g_t and v_t are functions of the
   earlier releases, and |v_t| <= 1. A draw x of P or of Q gives just this
   sequence: release g_t + x_t v_t + a Gaussian of covariance s^2 (I - v_t
   v_t'), which is no matrix with negative eigenvalues. Nobody needs to know
   which of both x was drawn from, and no processing makes a divergence larger.
   If all other clients send zeros and v_t is one fixed unit vector, the epoch
   is the pair: the bound is tight.
2. So are some epochs: rounds are drawn anew in each, and step 1 gives the next
   epoch from another draw of the pair. Epochs are independent draws.
3. The likelihood ratio under Q is R = (Y_1 + ... + Y_b) / b, where the Y_i are
   independent, and log-normal of mean 1: log(Y) is N(-1/(2 s^2), 1/s^2). The
   hockey-stick divergences, at k = e^epsilon, are

     H(P, Q) = E[(R - k)+] = 1 - k + E[(k - R)+],  H(Q, P) = E[(1 - k R)+],

   each the mean of a decreasing, convex function of R, apart from constants.
4. Let X' be such that E[f(X')] >= E[f(X)] for every decreasing, convex f >= 0.
   Three changes of a distribution have this property: to split the mass at a
   point between two points around it so that the mean stays; to move mass
   downwards; and to do one after the other. If X' has it for X, and Z' for Z,
   with X and Z independent and X' and Z' too, then a X' + c Z' has it for a X +
   c Z (a, c >= 0): the function x -> f(a x + c z) is decreasing and convex for
   each z, and the same for z in turn.
5. So Y is put on a grid by such changes, sums of two are put on a grid again,
   and so on until there are b: the result R' has divergences at least those of
   R, in both directions. Of R' the masses under Q are its own, and those under
   P are R' times as large; what the mean of R' lacks to 1, because mass was
   moved downwards at the upper end, is the mass of P where Q has none. At a
   mass of R' = 0 it is Q that has mass where P has none. This pair is discrete,
   dominates an epoch, and is composed as all others.

A part of an epoch costs no more than a whole one: it is a function of its
releases. It is charged as a whole one.

With b = 1 it is the Gaussian mechanism. Against the draws of a real run, what
the grid adds to epsilon is in the fourth digit.

Sources: Chua et al., "Balls-and-Bins Sampling for DP-SGD", AISTATS 2025, and
Feldman and Shenfeld, "Privacy Amplification by Random Allocation", 2025, for
the mechanism and its worst pair; Doroshenko et al., PETS 2022, for masses that
are split so that their mean stays ("Connect the Dots").
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import special

from tff_clipping.privacy.accounting import loss_composition

# Log of the probability, at each step, that is moved to 0 or to infinity.
_LOG_TAIL_MASS = -70.0

# About how many points a distribution has.
_NUM_POINTS = 1000

# At each step, masses are raised by this, relative to them: more than the
# rounding errors of the sums that they are made of, which have thousands of
# terms, and none that is negative.
_ROUNDING_ERROR = 1e-12

# Ratios whose logs may be larger are not represented.
_LARGEST_LOSS = 600.0

# About how many sums of two points are held at a time: few enough for a cache.
_MAX_SUMS = 2**15


class LossTooLargeError(Exception):
  """The noise is so small that ratios leave the range of doubles."""


@dataclasses.dataclass(frozen=True, eq=False)
class Ratio:
  """A discrete likelihood ratio of P to Q, as it is distributed under Q.

  Attributes:
    values: The ratios, increasing, the first of them 0.
    masses: The probability of each under Q. Under P it is the value times that.
    missing: 1 less the mean: the mass of P where Q has none.
  """

  values: np.ndarray
  masses: np.ndarray
  missing: float


def build_losses(
  noise_over_sensitivity: float,
  num_rounds: int,
  interval: float,
  direction: str,
) -> loss_composition.DiscreteLoss:
  """Returns the losses of a discrete pair that dominates an epoch.

  Args:
    noise_over_sensitivity: The s above.
    num_rounds: The b above, the rounds of an epoch.
    interval: Width of a grid cell.
    direction: 'remove' (P against Q) or 'add' (Q against P).

  Raises:
    LossTooLargeError: If there is so little noise that nothing is computed.
  """
  ratio = compute_ratio(noise_over_sensitivity, num_rounds)
  ratio = _put_on_grid(ratio.values, ratio.masses, ratio.missing, interval)
  cells = np.rint(np.log(ratio.values[1:]) / interval).astype(int)
  if direction == 'remove':
    masses = ratio.values[1:] * ratio.masses[1:]
    infinity_mass = ratio.missing
  else:
    cells, masses = -cells[::-1], ratio.masses[:0:-1]
    infinity_mass = float(ratio.masses[0])
  return loss_composition.DiscreteLoss(
    interval, int(cells[0]), masses, infinity_mass
  )


def measure_losses(
  noise_over_sensitivity: float, num_rounds: int
) -> tuple[float, float, float]:
  """Returns about the mean, standard deviation and largest size of a loss.

  Only to choose a grid: the larger mean and deviation of both directions.

  Args:
    noise_over_sensitivity: As in `build_losses`; errors are as there.
    num_rounds: As there.
  """
  ratio = compute_ratio(noise_over_sensitivity, num_rounds)
  values, masses = ratio.values[1:], ratio.masses[1:]
  losses = np.log(values)
  moments = []
  for weights, signed in ((values * masses, losses), (masses, -losses)):
    mean = float(np.average(signed, weights=weights))
    variance = float(np.average((signed - mean) ** 2, weights=weights))
    moments.append((mean, math.sqrt(variance)))
  means, deviations = zip(*moments, strict=True)
  return max(means), max(deviations), float(np.max(np.abs(losses)))


@functools.lru_cache(maxsize=16)  # Both directions, and each grid, ask for it.
def compute_ratio(noise_over_sensitivity: float, num_rounds: int) -> Ratio:
  """Returns the R' of the module's docstring.

  Args:
    noise_over_sensitivity: As in `build_losses`; errors are as there.
    num_rounds: As there.
  """
  one = _discretise_gaussian(noise_over_sensitivity)
  # From the first binary digit of b on: twice as many, and perhaps one more.
  ratio, count = one, 1
  for digit in f'{num_rounds:b}'[1:]:
    for other, added in ((ratio, count), (one, 1))[: 1 + int(digit)]:
      total = count + added
      interval = _choose_interval(noise_over_sensitivity, total)
      ratio = _average(ratio, other, count / total, interval)
      ratio = _thin(_cut_tails(ratio), interval, 2 * _NUM_POINTS)
      count = total
  return ratio


def _discretise_gaussian(noise: float) -> Ratio:
  """Returns Y on a grid: a normal variable in cells, split at their ends."""
  furthest = -float(special.ndtri_exp(_LOG_TAIL_MASS))
  if (furthest * noise + 0.5) / noise**2 > _LARGEST_LOSS:
    raise LossTooLargeError
  # log(Y) = (x - 1/(2s)) / s, with x normal under Q, and x - 1/s under P.
  ends = np.linspace(-furthest, furthest + 1 / noise, 2 * _NUM_POINTS)
  values = np.exp((ends - 0.5 / noise) / noise)
  under_q = _cell_masses(ends)
  under_p = _cell_masses(ends - 1 / noise)
  masses, missing = _split(
    np.append(0.0, values), under_q, under_p, np.arange(len(ends) + 1)
  )
  return Ratio(np.append(0.0, values), masses, missing)


def _cell_masses(ends: np.ndarray) -> np.ndarray:
  """Returns a normal variable's masses below, between and above points."""
  below, above = special.ndtr(ends), special.ndtr(-ends)
  # On either side by what is small there, so that nothing cancels.
  between = np.where(ends[1:] <= 0, np.diff(below), -np.diff(above))
  return np.concatenate([below[:1], between, above[-1:]])


def _split(
  values: np.ndarray,
  masses: np.ndarray,
  means: np.ndarray,
  cells: np.ndarray,
) -> tuple[np.ndarray, float]:
  """Returns masses at the ends of their cells, and what their mean lacks.

  Cell k is from `values[k]` to the next one; the last has no other end, and
  what is in it is moved down to the first. `means` are masses times values.
  """
  widths = np.append(np.diff(values), np.inf)[cells]
  upper = np.clip((means - masses * values[cells]) / widths, 0, masses)
  ends = np.bincount(cells, masses - upper, minlength=len(values) + 1)
  ends += np.bincount(cells + 1, upper, minlength=len(values) + 1)
  in_last = cells == len(values) - 1
  missing = np.sum((means - masses * values[-1])[in_last])
  return ends[:-1], max(float(missing), 0.0)


def _average(
  first: Ratio, second: Ratio, weight: float, interval: float
) -> Ratio:
  """Returns `weight` of one and the rest of another, independent, on a grid."""
  # Sums with a ratio of 0, which have hardly any mass, may be below the grid.
  lowest = weight * first.values[1] + (1 - weight) * second.values[1]
  highest = weight * first.values[-1] + (1 - weight) * second.values[-1]
  grid = _make_grid(lowest, highest, interval)
  masses, missing = np.zeros(len(grid)), 0.0
  step = max(1, _MAX_SUMS // len(second.values))
  for start in range(0, len(first.values), step):
    part = slice(start, start + step)
    sums = np.add.outer(
      weight * first.values[part], (1 - weight) * second.values
    ).ravel()
    added = np.outer(first.masses[part], second.masses).ravel()
    part_masses, lost = _split(
      grid, added, added * sums, _find_cells(grid, sums, interval)
    )
    masses += part_masses
    missing += lost
  missing += weight * first.missing + (1 - weight) * second.missing
  raised = 1 + _ROUNDING_ERROR
  return Ratio(grid, raised * masses, raised * missing)


def _put_on_grid(
  values: np.ndarray, masses: np.ndarray, missing: float, interval: float
) -> Ratio:
  """Returns a ratio whose logs are multiples of `interval`."""
  grid = _make_grid(values[1], values[-1], interval)
  split, lost = _split(
    grid, masses, masses * values, _find_cells(grid, values, interval)
  )
  return Ratio(grid, split, missing + lost)


def _make_grid(lowest: float, highest: float, interval: float) -> np.ndarray:
  """Returns 0, and values around two whose logs are multiples of a width."""
  first = math.floor(math.log(lowest) / interval)
  last = math.ceil(math.log(highest) / interval) + 1
  return np.append(0.0, np.exp(np.arange(first, last + 1) * interval))


def _find_cells(
  grid: np.ndarray, values: np.ndarray, interval: float
) -> np.ndarray:
  """Returns in which cell of such a grid each value is."""
  first = round(math.log(grid[1]) / interval)
  with np.errstate(divide='ignore'):
    cells = np.floor(np.log(values) / interval) - first + 1
  return np.clip(cells, 0, len(grid) - 1).astype(int)


def _cut_tails(ratio: Ratio) -> Ratio:
  """Returns a ratio without points that hardly have mass."""
  tail = math.exp(_LOG_TAIL_MASS)
  values = ratio.values
  below = np.cumsum(ratio.masses)
  above = np.cumsum((values * ratio.masses)[::-1])[::-1]
  first = max(1, int(np.searchsorted(below, tail)))
  last = max(first + 1, int(np.searchsorted(-above, -tail)) - 1)
  last = min(last, len(values) - 1)
  kept = np.append(0.0, values[first : last + 1])
  cells = np.searchsorted(kept, values, side='right') - 1
  masses, lost = _split(kept, ratio.masses, ratio.masses * values, cells)
  return Ratio(kept, masses, ratio.missing + lost)


def _thin(ratio: Ratio, interval: float, most: int) -> Ratio:
  """Returns a ratio on a grid of at most so many points."""
  if len(ratio.values) <= most:
    return ratio
  wider = interval * math.ceil(len(ratio.values) / most)
  return _put_on_grid(ratio.values, ratio.masses, ratio.missing, wider)


def _choose_interval(noise: float, count: int) -> float:
  """Returns the width of cells for the average of so many ratios.

  Any width gives a bound; this one is well below the spread of the logs.
  """
  spread = math.sqrt(math.expm1(min(1 / noise**2, 40.0)) / count)
  return 12 * math.log1p(spread) / _NUM_POINTS
