"""The strategies with the least error, and their numbers of bands or buffers.

The sensitivity times an error of the running sums is minimised: the standard
deviation of their noise for contributions of norm 1 and noise multiplier 1.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import fft, optimize, special

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.correlated_noise import (
  banded,
  buffered_toeplitz,
  noise_strategy,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import Participation

# The errors of the running sums that can be minimised.
ERRORS = ('mean', 'max')

# More bands or buffers must lower the error by this share.
_WORTHWHILE = 0.01

_MAX_BUFFERS = 6

# A step to noise this much larger than its draws is too far: its loss is above
# the loss of any start, and rounding leaves nothing of its gradient.
_EXPLODES = 1e6
_EXPLODED_LOSS = 1e3  # Above the logarithm of any loss.


def banded_strategy(
  *,
  num_rounds: int,
  participation: Participation,
  num_bands: int | None = None,
  error: str = 'mean',
) -> banded.BandedStrategy:
  """Returns the banded Toeplitz strategy with the least error.

  Args:
    num_rounds: T.
    participation: The rounds that a client may take part in.
    num_bands: The bands, with the diagonal, at most `min_separation` and T.
      None takes the least power of 2 whose error is within 1 % of the error
      with the most bands.
    error: 'mean' for the root of the mean squared error of the running sums,
      'max' for that of the worst one.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: arXiv 2306.08153.
  """
  num_rounds = ranges.check_count('num_rounds', num_rounds)
  most = min(participation.min_separation, num_rounds)
  weights = _error_weights(num_rounds, error)
  if num_bands is not None:
    num_bands = argument_checks.check_integer(
      'num_bands', num_bands, at_least=1, at_most=most
    )
    strategy, _ = _optimize_bands(num_rounds, participation, num_bands, weights)
    return strategy
  best, least = _optimize_bands(num_rounds, participation, most, weights)
  num_bands = 1
  while num_bands < most:
    strategy, loss = _optimize_bands(
      num_rounds, participation, num_bands, weights
    )
    if loss <= least * (1 + _WORTHWHILE):
      return strategy
    num_bands *= 2
  return best


def blt_strategy(
  *,
  num_rounds: int,
  participation: Participation,
  num_buffers: int | None = None,
  error: str = 'mean',
) -> buffered_toeplitz.BufferedToeplitzStrategy:
  """Returns the buffered linear Toeplitz strategy with the least error.

  Args:
    num_rounds: T.
    participation: The rounds that a client may take part in.
    num_buffers: The buffers, from 0 to 6. None adds them one by one, until one
      more lowers the error by less than 1 %.
    error: As for `banded_strategy`, as are errors.

  Source: arXiv 2404.16706 and 2408.08868.
  """
  num_rounds = ranges.check_count('num_rounds', num_rounds)
  weights = _error_weights(num_rounds, error)
  if num_buffers is not None:
    num_buffers = argument_checks.check_integer(
      'num_buffers', num_buffers, at_least=0, at_most=_MAX_BUFFERS
    )
    return _optimize_buffers(num_rounds, participation, num_buffers, weights)[0]
  best, least = _optimize_buffers(num_rounds, participation, 0, weights)
  for num_buffers in range(1, _MAX_BUFFERS + 1):
    strategy, loss = _optimize_buffers(
      num_rounds, participation, num_buffers, weights
    )
    if loss > least * (1 - _WORTHWHILE):
      break
    best, least = strategy, loss
  return best


def _error_weights(num_rounds: int, error: str) -> np.ndarray:
  """Returns how much each squared coefficient of a running sum counts."""
  argument_checks.check_choice('error', error, ERRORS)
  if error == 'max':
    return np.ones(num_rounds)
  return np.arange(num_rounds, 0, -1) / num_rounds


def _optimize_bands(
  num_rounds: int,
  participation: Participation,
  num_bands: int,
  weights: np.ndarray,
) -> tuple[banded.BandedStrategy, float]:
  """Returns the best strategy of so many bands, and its loss."""

  def build(point: np.ndarray) -> banded.BandedStrategy:
    return banded.BandedStrategy(
      num_rounds=num_rounds, coefficients=(1.0, *point.tolist())
    )

  def log_loss(point: np.ndarray) -> tuple[float, np.ndarray]:
    strategy = build(point)
    value, gradient = _log_loss(
      strategy.compute_coefficients(),
      strategy.compute_inverse_coefficients(),
      participation,
      weights,
    )
    return value, gradient[1:num_bands]

  # The best for one participation and all bands (arXiv 2202.11205).
  lags = np.arange(1, num_bands)
  point, value = _minimize(log_loss, np.cumprod(1 - 1 / (2 * lags)))
  return build(point), math.exp(value)


def _optimize_buffers(
  num_rounds: int,
  participation: Participation,
  num_buffers: int,
  weights: np.ndarray,
) -> tuple[buffered_toeplitz.BufferedToeplitzStrategy, float]:
  """Returns the best strategy of so many buffers, and its loss."""
  lags = np.arange(num_rounds - 1.0)

  def split(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.exp(point[:num_buffers])
    # More than 1 together would let the coefficients increase.
    excess = max(np.sum(scales) * (1 + 1e-12), 1.0)
    return scales / excess, special.expit(point[num_buffers:])

  def log_loss(point: np.ndarray) -> tuple[float, np.ndarray]:
    scales, decays = split(point)
    value, gradient = _log_loss(
      buffered_toeplitz.geometric_column(scales, decays, num_rounds),
      buffered_toeplitz.geometric_column(
        *buffered_toeplitz.invert_geometric(scales, decays), num_rounds
      ),
      participation,
      weights,
    )
    powers = np.exp(np.outer(np.log(decays), lags)) * gradient[1:]
    by_scales = scales * np.sum(powers, axis=1)
    if np.sum(np.exp(point[:num_buffers])) * (1 + 1e-12) > 1:
      by_scales -= scales * np.sum(by_scales)  # Their sum stays 1.
    by_decays = scales * (1 - decays) * (powers @ lags)
    return value, np.concatenate([by_scales, by_decays])

  # Rates from 1 down to 1 / T, with coefficients near those that are the best
  # without buffers: 1 / 2 at lag 1, falling like the root of the lag.
  places = (np.arange(num_buffers) + 0.5) / max(num_buffers, 1)
  rates = 0.8 * float(num_rounds) ** -places
  scales = np.sqrt(rates) / (2 * np.sum(np.sqrt(rates)))
  start = np.concatenate([np.log(scales), special.logit(1 - rates)])
  bounds = [(-40.0, 0.0)] * num_buffers + [(-25.0, 25.0)] * num_buffers
  point, value = _minimize(log_loss, start, bounds)
  scales, decays = split(point)
  strategy = buffered_toeplitz.BufferedToeplitzStrategy(
    num_rounds=num_rounds,
    scales=tuple(scales.tolist()),
    decays=tuple(decays.tolist()),
  )
  return strategy, math.exp(value)


def _minimize(
  log_loss: Callable[[np.ndarray], tuple[float, np.ndarray]],
  start: np.ndarray,
  bounds: list[tuple[float, float]] | None = None,
) -> tuple[np.ndarray, float]:
  """Returns where a function is least, and its value there."""
  if not len(start):
    return start, log_loss(start)[0]
  found = optimize.minimize(
    log_loss,
    start,
    jac=True,
    method='L-BFGS-B',
    bounds=bounds,
    options={'maxiter': 1000, 'maxcor': 30, 'ftol': 1e-14, 'gtol': 1e-9},
  )
  return found.x, float(found.fun)


def _log_loss(
  column: np.ndarray,
  inverse: np.ndarray,
  participation: Participation,
  weights: np.ndarray,
) -> tuple[float, np.ndarray]:
  """Returns the logarithm of the loss, and its gradient by the coefficients.

  `column` is the first one of C, `inverse` that of C^{-1}.
  """
  size = len(column)
  if not np.max(np.abs(inverse)) < _EXPLODES:
    return _EXPLODED_LOSS, np.zeros(size)
  separation, count = participation.min_separation, participation.count(size)
  change = noise_strategy.sum_of_columns(column, separation, count)
  squared_sensitivity = np.sum(change**2)
  # The transpose of a Toeplitz matrix is itself, read backwards.
  by_sensitivity = noise_strategy.sum_of_columns(
    change[::-1], separation, count
  )[::-1]
  # The running sums' coefficients p are those of 1 / ((1 - x) C(x)), so that a
  # change dC of C changes them by -(p * inverse) dC.
  prefix = np.cumsum(inverse)
  squared_error = np.sum(weights * prefix**2)
  length = fft.next_fast_len(2 * size, real=True)

  def transform(values: np.ndarray) -> np.ndarray:
    return fft.rfft(values, length)

  response = fft.irfft(transform(prefix) * transform(inverse), length)[:size]
  by_error = -fft.irfft(
    transform(weights * prefix) * np.conj(transform(response)), length
  )[:size]
  value = math.log(squared_sensitivity) + math.log(squared_error)
  return 0.5 * value, (
    by_sensitivity / squared_sensitivity + by_error / squared_error
  )
