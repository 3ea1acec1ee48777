"""The arguments of the accountants, and the ranges that they answer for."""

import inspect
import math
import warnings
from typing import Any

from tff_clipping import argument_checks

# Noise multipliers that the accountants can answer for. Below, epsilon is in
# the thousands for a single round and the accountants' arithmetic leaves the
# range of doubles; above, a round's divergence is lost in their rounding.
MIN_NOISE_MULTIPLIER = 0.01
MAX_NOISE_MULTIPLIER = 1e5

# The most rounds that are accounted for: more than any training takes, and few
# enough that rounding errors, which grow with the rounds, stay negligible.
MAX_ROUNDS = 10**7

# The targets that are accounted for. Smaller ones are of no use, and near what
# the accountants can still tell from 0; a larger epsilon promises nothing.
MIN_TARGET_DELTA = 1e-20
MIN_TARGET_EPSILON = 1e-6
MAX_TARGET_EPSILON = 1e6

# The most clients: keeps num_clients exact as a double.
MAX_CLIENTS = 10**12


# What 1e13 draws of the noise add to delta, over 1 + e^epsilon; the theorem of
# `aggregators.noise` has it.
DELTA_OF_DRAWS = 4e-13
_LARGEST_EPSILON = 20.0


class DeltaWarning(UserWarning):
  """A delta is larger or smaller than a promise should have."""


class DeltaTooSmallWarning(DeltaWarning):
  """A delta is below what the draws of the noise may add to it."""


class DeltaTooLargeWarning(DeltaWarning):
  """A delta above 1/num_clients, which gives almost no protection."""


def check_population(
  num_clients: Any, clients_per_round: Any
) -> tuple[int, int]:
  """Returns the population and the cohort, 1 <= cohort <= population.

  Args:
    num_clients: The paper's N.
    clients_per_round: The paper's P: the size of a fixed-size cohort, or the
      expected size of a Poisson cohort.

  Raises:
    TypeError: If one of them is not an integer.
    ValueError: If one is below 1, or the cohort is larger than the population.
  """
  num_clients = argument_checks.check_integer(
    'num_clients', num_clients, at_least=1, at_most=MAX_CLIENTS
  )
  clients_per_round = argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1, at_most=MAX_CLIENTS
  )
  if clients_per_round > num_clients:
    raise ValueError(
      f'`clients_per_round` must be at most `num_clients` ({num_clients}), '
      f'found {clients_per_round}.'
    )
  return num_clients, clients_per_round


def check_noise_multiplier(value: Any) -> float:
  """Returns a noise multiplier that the accountants can answer for.

  Args:
    value: Standard deviation of the noise on the sum over the clipping norm.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not finite, not positive, or out of the range
      [MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER].
  """
  number = argument_checks.check_positive('noise_multiplier', value)
  return _check_range(
    'noise_multiplier', number, MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER
  )


def check_num_rounds(value: Any) -> int:
  """Returns an int in [1, MAX_ROUNDS]; errors as in `check_integer`."""
  return argument_checks.check_integer(
    'num_rounds', value, at_least=1, at_most=MAX_ROUNDS
  )


def check_target_epsilon(value: Any) -> float:
  """Returns an epsilon in [MIN_TARGET_EPSILON, MAX_TARGET_EPSILON].

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is out of range.
  """
  number = argument_checks.check_positive('target_epsilon', value)
  return _check_range(
    'target_epsilon', number, MIN_TARGET_EPSILON, MAX_TARGET_EPSILON
  )


def check_target_delta(value: Any) -> float:
  """Returns a delta in [MIN_TARGET_DELTA, 1).

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is out of range.
  """
  number = argument_checks.check_number('target_delta', value)
  if not 0 < number < 1:
    raise ValueError(
      f'`target_delta` must be above 0 and below 1, found {number:g}.'
    )
  return _check_range('target_delta', number, MIN_TARGET_DELTA, 1.0)


def _check_range(name: str, number: float, least: float, most: float) -> float:
  """Returns a number if the accountants have an answer for it."""
  if number < least:
    rule = f'at least {least:g}, below'
  elif number > most:
    rule = f'at most {most:g}, above'
  else:
    return number
  raise ValueError(
    f'`{name}` must be {rule} which the accountants have no answer, found '
    f'{number:g}.'
  )


def warn_of_large_delta(target_delta: float, num_clients: int) -> None:
  """Warns if delta is above 1/num_clients, at the line outside this package.

  With `DeltaTooLargeWarning`.
  """
  if target_delta <= 1 / num_clients:
    return
  _warn(
    f'`target_delta` should be below 1/`num_clients` = {1 / num_clients:.3g}, '
    f'found {target_delta:g}: a mechanism that publishes the data of one '
    'client, chosen at random, has delta = 1/num_clients, so that a larger '
    'delta does not rule out such a breach.',
    DeltaTooLargeWarning,
  )


def warn_of_small_delta(target_delta: float, epsilon: float) -> None:
  """Warns if delta is below what the draws of the noise may add to it.

  With `DeltaTooSmallWarning`, at the line outside this package.

  Args:
    target_delta: The delta of a promise.
    epsilon: Its epsilon.
  """
  if epsilon > _LARGEST_EPSILON:
    return  # It promises next to nothing, whatever delta is.
  added = DELTA_OF_DRAWS * (1 + math.exp(epsilon))
  if target_delta >= added:
    return
  _warn(
    f'`target_delta` should be at least {added:.2g} for epsilon {epsilon:.6g}, '
    f'found {target_delta:g}: the noise is drawn in integers, and its distance '
    'from a Gaussian adds up to that to delta in 1e13 draws.',
    DeltaTooSmallWarning,
  )


def _warn(message: str, category: type[Warning]) -> None:
  """Warns at the line outside this package."""
  here = 'tff_clipping.privacy.'
  stacklevel, frame = 1, inspect.currentframe()
  while frame is not None and str(frame.f_globals.get('__name__')).startswith(
    here
  ):
    stacklevel, frame = stacklevel + 1, frame.f_back
  warnings.warn(message, category, stacklevel=stacklevel)
