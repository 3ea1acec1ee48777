"""One Gaussian mechanism, exactly: epsilon, delta or noise from the others.

Where one client changes what is noised by at most `sensitivity`, and the noise
has the standard deviation `noise_multiplier` * `sensitivity`,

  delta(epsilon) = F(m/2 - epsilon/m) - e^epsilon F(-m/2 - epsilon/m)

with m = 1 / `noise_multiplier` and F the standard normal distribution. It is
the least delta that holds, not a bound (Balle and Wang 2018, Theorem 8).
"""

import math
import sys

from scipy import optimize, special

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges, sampled_gaussian

# Above the rounding error of a ratio of two `erfcx`, which is at most 1: delta
# is computed from above, also where the two are almost equal.
_RATIO_ERROR = 16 * sys.float_info.epsilon

# Above the rounding error of a root.
_TOLERANCE = 1e-13


class GaussianCost:
  """The cost of rounds without sampling together: one Gaussian mechanism."""

  def __init__(self, parts: sampled_gaussian.Parts):
    """Takes rounds of one relation, in each of which all clients take part."""
    noise = compose_noise(parts)
    assert noise is not None  # As `accountants.compose` checks.
    self._noise = noise

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon of the parts, exactly."""
    return gaussian_epsilon(self._noise, delta)

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of the parts at `epsilon`, exactly."""
    return gaussian_delta(self._noise, epsilon)


def compose_noise(parts: sampled_gaussian.Parts) -> float | None:
  """Returns the noise over sensitivity of all rounds as one Gaussian mechanism.

  It is `None` if cohorts are sampled. All rounds are under one relation.
  """
  if any(mechanism.sampling_prob < 1 for mechanism, _ in parts):
    return None
  return 1 / math.sqrt(
    sum(
      count / mechanism.noise_over_sensitivity**2 for mechanism, count in parts
    )
  )


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
  """Returns the delta of one Gaussian mechanism at an epsilon.

  Args:
    noise_multiplier: Standard deviation of the noise over the sensitivity.
    epsilon: At least 0.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
  """
  shift = 1 / argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  epsilon = argument_checks.check_non_negative('epsilon', epsilon)
  return math.exp(_log_delta(shift, epsilon))


def gaussian_epsilon(noise_multiplier: float, target_delta: float) -> float:
  """Returns the epsilon of one Gaussian mechanism at a delta in (0, 1).

  It is at least 0, and larger than the exact one by rounding errors alone. The
  noise and errors are those of `gaussian_delta`.
  """
  shift = 1 / argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  log_delta = math.log(ranges.check('target_delta', target_delta))
  if _log_delta(shift, 0.0) <= log_delta:
    return 0.0
  # By the normal tail: F(-x) <= e^(-x^2 / 2).
  most = shift**2 / 2 + shift * math.sqrt(-2 * log_delta)
  epsilon = optimize.brentq(
    lambda e: _log_delta(shift, e) - log_delta, 0.0, most + 1e-9, xtol=1e-300
  )
  return epsilon * (1 + _TOLERANCE)


def gaussian_noise_multiplier(
  target_epsilon: float, target_delta: float
) -> float:
  """Returns the noise multiplier of one Gaussian mechanism.

  It is the least whose epsilon is not above the target, which is positive, at a
  delta in (0, 1), and larger by rounding errors alone. Errors are those of
  `gaussian_delta`.
  """
  epsilon = ranges.check('target_epsilon', target_epsilon)
  log_delta = math.log(ranges.check('target_delta', target_delta))
  low, high = 1.0, 1.0
  while _log_delta(1 / low, epsilon) < log_delta:
    low /= 2
  while _log_delta(1 / high, epsilon) > log_delta:
    high *= 2
  if low == high:
    return low
  multiplier = optimize.brentq(
    lambda z: _log_delta(1 / z, epsilon) - log_delta, low, high, xtol=1e-300
  )
  return multiplier * (1 + _TOLERANCE)


def _log_delta(shift: float, epsilon: float) -> float:
  """Returns the logarithm of delta, for Gaussians that are `shift` apart.

  F(-x) is exp(-x^2 / 2) erfcx(x / sqrt(2)) / 2, so e^epsilon cancels in the
  ratio of the two terms of delta.
  """
  middle, half = epsilon / shift, shift / 2
  ratio = special.erfcx((middle + half) / math.sqrt(2)) / special.erfcx(
    (middle - half) / math.sqrt(2)
  )
  share = min(1 - ratio + _RATIO_ERROR, 1.0)
  return float(special.log_ndtr(half - middle) + math.log(share))
