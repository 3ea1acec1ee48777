"""Discrete privacy losses, and the cost of many rounds of them.

The loss of T rounds is the sum of T draws, and its distribution a power of the
Fourier transform of one round's. Taken as it stands, rounding errors of 1e-16 a
round would drown a small delta. So the round is tilted first: its masses p(l)
become p(l) e^(theta l) / M, with theta such that T rounds lose on average about
the epsilon in question. The sum's masses near that epsilon are then the middle
of a bell curve, come out precise relative to themselves, and are tilted back.

Everything errs on one side. The transform is cyclic, so that masses outside the
points that are kept are added to those inside; what lies above them is bounded
by Chernoff's inequality and added to delta as well; and delta is raised by more
than the rounding errors. The number of points is bounded, and with it time and
memory, whatever the number of rounds.

Source: Koskela, Jalko, Honkela, "Computing Tight Differential Privacy
Guarantees Using FFT", AISTATS 2020, for the Fourier transform.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import fft, optimize

# The most points of a distribution: an array of them has 8 MB.
MAX_POINTS = 2**20

# Added to delta, relative to it: more than the rounding errors of all points
# and rounds together.
_ROUNDING_ERROR = 1e-6

# Log of the probability of the tilted sums that are left out on either side.
_LOG_LEFT_OUT = -45.0

# Points that tilting back would raise by more than e to this are left out: they
# are far below the epsilon in question.
_MOST_TILT = 60.0

# Losses this far from the epsilon in question count as if they were no further:
# no exponential leaves the range of doubles, and delta is no smaller for it.
_LARGEST_EXPONENT = 600.0


class TooManyPointsError(Exception):
  """A sum has more points than MAX_POINTS on this grid: take wider cells."""


@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteLoss:
  """One round's privacy loss, on a grid.

  Attributes:
    interval: The width of the grid's cells.
    lowest: The loss of the first cell, in cells.
    masses: The probability of each cell's loss.
    infinity_mass: The probability of a loss without bound.
  """

  interval: float
  lowest: int
  masses: np.ndarray
  infinity_mass: float

  @property
  def highest(self) -> int:
    """The loss of the last cell, in cells."""
    return self.lowest + len(self.masses) - 1

  @functools.cached_property
  def losses(self) -> np.ndarray:
    """The losses of the cells."""
    return np.arange(self.lowest, self.highest + 1) * self.interval

  @functools.cached_property
  def _log_masses(self) -> np.ndarray:
    """The logs of the masses."""
    with np.errstate(divide='ignore'):
      return np.log(self.masses)

  def tilt_masses(self, tilt: float) -> tuple[np.ndarray, float]:
    """Returns the masses tilted, and the log of what they were divided by."""
    masses = tilt * self.losses  # In place: this is where the time goes.
    masses += self._log_masses
    most = np.max(masses)
    masses -= most
    np.exp(masses, out=masses)
    total = np.sum(masses)
    masses /= total
    return masses, float(most + math.log(total))


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedLoss:
  """The privacy loss of many rounds, of one kind or of several.

  Attributes:
    parts: Losses of a round, all on grids of one width, and how many rounds
      there are of each.
  """

  parts: tuple[tuple[DiscreteLoss, int], ...]
  # The searches come back to their ends.
  _tilts: dict[float, tuple[float, float]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon >= 0 of all rounds at `delta`, from above.

    It is infinite if losses without bound are more likely than `delta`.

    Raises:
      TooManyPointsError: If the grid is too fine for so many rounds.
    """
    delta -= self._compute_infinity_mass()
    if delta <= 0:
      return math.inf
    # Chernoff's inequality gives an epsilon that is near the right one.
    tilt = self._find_tilt(
      lambda t, moment, mean: moment - t * mean - math.log(delta)
    )
    log_moment, mean = self._tilt(tilt)
    if log_moment <= math.log(delta):
      return 0.0
    sums = self._compose(tilt, mean)
    found = int(np.argmax(sums.deltas <= delta))
    if sums.deltas[found] > delta:
      return math.inf
    # Between two points, delta is linear in e^epsilon.
    missing = (delta - sums.deltas[found]) / sums.slopes[found]
    step = math.log1p(-missing) if found > 0 and missing < 1 else 0.0
    return max(0.0, float(sums.losses[found]) + step)

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of all rounds at `epsilon` >= 0, from above.

    Raises:
      TooManyPointsError: If the grid is too fine for so many rounds.
    """
    infinity_mass = self._compute_infinity_mass()
    if epsilon >= self._highest * self._interval:
      return infinity_mass
    tilt = self._find_tilt(lambda t, moment, mean: epsilon - mean)
    sums = self._compose(tilt, epsilon)
    above = int(np.searchsorted(sums.losses, epsilon))
    # Between two points, delta is linear in e^epsilon.
    within = -math.expm1(epsilon - sums.losses[above]) * sums.slopes[above]
    return min(1.0, infinity_mass + float(sums.deltas[above] + within))

  @property
  def _interval(self) -> float:
    """The width of the cells."""
    return self.parts[0][0].interval

  @property
  def _highest(self) -> int:
    """The largest loss, in cells."""
    return sum(count * loss.highest for loss, count in self.parts)

  def _compute_infinity_mass(self) -> float:
    """Returns the chance that a round's loss has no bound."""
    return -math.expm1(
      sum(count * math.log1p(-loss.infinity_mass) for loss, count in self.parts)
    )

  def _tilt(self, tilt: float) -> tuple[float, float]:
    """Returns the log of the tilted masses' sum, and their mean loss."""
    if tilt not in self._tilts:
      log_moment = mean = 0.0
      for loss, count in self.parts:
        tilted, log_total = loss.tilt_masses(tilt)
        log_moment += count * log_total
        mean += count * float(np.dot(tilted, loss.losses))
      self._tilts[tilt] = log_moment, mean
    return self._tilts[tilt]

  def _find_tilt(
    self,
    gap: Callable[[float, float, float], float],
    start: float = 0.0,
    direction: int = 1,
  ) -> float:
    """Returns about the tilt at which a gap closes; any tilt gives bounds.

    `gap` is of a tilt, and of the log of the sum and the mean that it gives. It
    falls the further the tilt is above `start`, or below for direction -1.
    """

    def gap_at(log_distance: float) -> float:
      tilt = start + direction * math.exp(log_distance)
      return gap(tilt, *self._tilt(tilt))

    if gap(start, *self._tilt(start)) <= 0:
      return start
    # A few times what moves a bell curve by its own width; at the furthest, all
    # mass is in the first or in the last cell.
    variance = self._compute_variance(start)
    furthest = math.log(64 / self._interval + abs(start))
    likely = math.log(6) - 0.5 * math.log(max(variance, 1e-300))
    high = min(likely + 1, furthest)
    while gap_at(high) > 0:
      if high == furthest:
        return start + direction * math.exp(furthest)
      high = min(high + 2, furthest)
    low = high - 2
    while gap_at(low) <= 0:
      high, low = low, low - 2
      if low < furthest - 64:
        return start
    found = optimize.brentq(gap_at, low, high, xtol=0.02)
    return start + direction * math.exp(found)

  def _compute_variance(self, tilt: float) -> float:
    """Returns the variance of the sum of tilted losses."""
    variance = 0.0
    for loss, count in self.parts:
      tilted, _ = loss.tilt_masses(tilt)
      mean = float(np.dot(tilted, loss.losses))
      variance += count * float(np.dot(tilted, (loss.losses - mean) ** 2))
    return variance

  def _compose(self, tilt: float, center: float) -> '_Sums':
    """Returns the sum of the rounds' losses around `center`, from above."""
    interval = self._interval
    log_moment, _ = self._tilt(tilt)
    # Chernoff's bound of the probability of a loss above the center.
    log_bound = log_moment - tilt * center

    # And of a sum of tilted losses beyond its mean at another tilt.
    def gap(other: float, moment: float, mean: float) -> float:
      return moment - log_moment - (other - tilt) * mean - _LOG_LEFT_OUT

    upper = self._find_tilt(gap, tilt)
    lower = self._find_tilt(gap, tilt, direction=-1)
    upper_moment, highest = self._tilt(upper)
    _, lowest = self._tilt(lower)
    first = math.floor(min(lowest, center) / interval) - 1
    first = max(first, sum(count * loss.lowest for loss, count in self.parts))
    last = math.ceil(max(highest, center) / interval) + 1
    last = min(last, self._highest)
    if last - first >= MAX_POINTS:
      raise TooManyPointsError
    left_out = 0.0
    if last < self._highest:
      left_out = math.exp(upper_moment - upper * last * interval)
    cells = np.arange(first, last + 1)
    masses = self._sum_tilted(tilt, cells)
    distances = cells * interval - center
    kept = -tilt * distances <= _MOST_TILT
    distances, masses = distances[kept], masses[kept]
    masses *= np.exp(log_bound - tilt * distances) * (1 + _ROUNDING_ERROR)
    # Each of these is a sum of positive numbers: nothing cancels.
    exponents = np.clip(distances, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    exchanged = np.cumsum((masses * np.exp(-exponents))[::-1])[::-1]
    slopes = np.exp(exponents) * exchanged
    steps = -math.expm1(-interval) * slopes
    deltas = left_out + np.append(np.cumsum(steps[:0:-1])[::-1], 0.0)
    return _Sums(cells[kept] * interval, deltas, slopes)

  def _sum_tilted(self, tilt: float, cells: np.ndarray) -> np.ndarray:
    """Returns the masses of the sum of tilted losses at `cells`, or more."""
    size = fft.next_fast_len(len(cells), real=True)
    power, shift = 1.0, 0
    for loss, count in self.parts:
      tilted, _ = loss.tilt_masses(tilt)
      # Around the mean, phases are small where the transform is large.
      middle = round(float(np.dot(tilted, loss.losses)) / self._interval)
      places = (np.arange(len(tilted)) + loss.lowest - middle) % size
      transform = fft.rfft(np.bincount(places, tilted, minlength=size))
      powers = np.zeros_like(transform)
      with np.errstate(under='ignore', divide='ignore'):
        kept = count * np.log(np.abs(transform)) > -750  # The others are 0.
        np.power(transform, count, out=powers, where=kept)
      power = power * powers
      shift += count * middle
    sums = fft.irfft(power, size)
    return np.maximum(sums[(cells - shift) % size], 0.0)


@dataclasses.dataclass(frozen=True)
class _Sums:
  """A sum of losses around an epsilon, with the delta at each point."""

  losses: np.ndarray  # Increasing.
  deltas: np.ndarray
  # Below a point, delta grows by this times 1 - e^(epsilon - loss).
  slopes: np.ndarray
