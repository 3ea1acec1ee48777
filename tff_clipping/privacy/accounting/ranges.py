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

# The least and the largest number that is accounted for. Smaller targets are of
# no use, and hard to tell from 0; a larger epsilon promises nothing.
_RANGES = {
  'noise_multiplier': (MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER),
  'target_epsilon': (1e-6, 1e6),
  'target_delta': (1e-20, 1.0),
}

# The most rounds that are accounted for: more than any training takes, and few
# enough that rounding errors, which grow with the rounds, stay negligible.
MAX_ROUNDS = 10**7

# The most clients: keeps num_clients exact as a double.
MAX_CLIENTS = 10**12

# 1e13 draws of the noise, those of 1e8 elements in 1e5 rounds, add up to this
# times 1 + e^epsilon to delta, by the theorem of `aggregators.noise`.
_DELTA_OF_DRAWS, _ROUNDS_OF_DRAWS = 4e-13, 10**5
_LARGEST_EPSILON = 20.0
_SMALL_DELTA = (
  'what is drawn as noise is no exact Gaussian, which may add more to delta '
  'than the delta that is stated, for a model of 1e8 elements'
)


class DeltaWarning(UserWarning):
  """A delta is larger or smaller than a promise should have."""


class DeltaTooSmallWarning(DeltaWarning):
  """A delta is so small that the draws of the noise may double it."""


class DeltaTooLargeWarning(DeltaWarning):
  """A delta above 1/num_clients, which gives almost no protection."""


def check(name: str, value: Any) -> float:
  """Returns a number that is accounted for.

  Args:
    name: 'noise_multiplier', 'target_epsilon' or 'target_delta'.
    value: The number.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not in the range [least, largest] of its name, or a
      delta is 1.
  """
  if name == 'target_delta':
    number = argument_checks.check_probability(name, value)
  else:
    number = argument_checks.check_positive(name, value)
  least, largest = _RANGES[name]
  if least <= number <= largest:
    return number
  kept = f'at least {least:g}, below'
  if number > largest:
    kept = f'at most {largest:g}, above'
  raise ValueError(
    f'`{name}` must be {kept} which the accountants have no answer, found '
    f'{number:g}.'
  )


def check_count(name: str, value: Any, most: int = MAX_ROUNDS) -> int:
  """Returns an int in [1, `most`]; errors as in `check_integer`."""
  return argument_checks.check_integer(name, value, at_least=1, at_most=most)


def check_population(
  num_clients: Any, clients_per_round: Any
) -> tuple[int, int]:
  """Returns the population and the cohort, 1 <= cohort <= population.

  Args:
    num_clients: The paper's N.
    clients_per_round: The paper's P; the expected size of a Poisson cohort.

  Raises:
    TypeError: If one of them is not an integer.
    ValueError: If one is out of range, or the cohort is the larger one.
  """
  num_clients = check_count('num_clients', num_clients, MAX_CLIENTS)
  clients_per_round = check_count(
    'clients_per_round', clients_per_round, MAX_CLIENTS
  )
  if clients_per_round > num_clients:
    raise ValueError(
      f'`clients_per_round` must be at most `num_clients` ({num_clients}), '
      f'found {clients_per_round}.'
    )
  return num_clients, clients_per_round


def warn_of_delta(
  target_delta: float, epsilon: float, num_clients: int
) -> None:
  """Warns if a delta is above 1/num_clients, or draws may double it."""
  if target_delta > 1 / num_clients:
    _warn(
      '`target_delta` should be below 1/`num_clients` = '
      f'{1 / num_clients:.3g}, found {target_delta:g}: a mechanism that '
      'publishes the data of one client, chosen at random, has delta = '
      '1/num_clients, so that a larger delta does not rule out such a breach.',
      DeltaTooLargeWarning,
    )
  added = _delta_of_draws(epsilon)
  if target_delta < added:
    _warn(
      f'`target_delta` should be at least {added:.2g} for epsilon '
      f'{epsilon:.6g}, found {target_delta:g}: the noise is drawn in integers, '
      'and its distance from a Gaussian adds up to that to delta in 1e13 '
      'draws.',
      DeltaTooSmallWarning,
    )


def list_caveats(
  target_delta: float, epsilon: float, num_rounds: int
) -> tuple[str, ...]:
  """Returns the caveat of a delta to which draws may add more than it is."""
  added = _delta_of_draws(epsilon, num_rounds)
  return (_SMALL_DELTA,) if target_delta < added else ()


def _delta_of_draws(
  epsilon: float, num_rounds: int = _ROUNDS_OF_DRAWS
) -> float:
  """Returns what the draws of 1e8 elements in some rounds may add to delta."""
  if epsilon > _LARGEST_EPSILON:
    return 0.0  # It promises next to nothing, whatever delta is.
  share = math.sqrt(num_rounds / _ROUNDS_OF_DRAWS)
  return share * _DELTA_OF_DRAWS * (1 + math.exp(epsilon))


def _warn(message: str, category: type[Warning]) -> None:
  """Warns at the first line outside this package and `dataclasses`."""
  inside = 'tff_clipping.privacy.', 'dataclasses'
  stacklevel, frame = 1, inspect.currentframe()
  while frame and frame.f_globals.get('__name__', '').startswith(inside):
    stacklevel, frame = stacklevel + 1, frame.f_back
  warnings.warn(message, category, stacklevel=stacklevel)
