"""What a plan asks for: the least noise, the most rounds or the fewest clients.

Each within an epsilon, by the accountant of the plan in `accountants.TABLE`.
"""

import bisect
import functools
import math
from collections.abc import Callable

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
)

# How often the search for a population expects a straight line.
_STRAIGHT_STEPS = 12


def find_noise_multiplier(
  cohorts: sampled_gaussian.Cohorts,
  accountant: str,
  *,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least noise multiplier that keeps epsilon in the target.

  Args:
    cohorts: How they are drawn.
    accountant: 'rdp' or 'pld'.
    num_rounds: Rounds, at least 1.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).

  Returns:
    A multiplier of 6 significant digits, rounded up; see
    `privacy.calibrate_noise_multiplier`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no multiplier in the
      accountants' range has this epsilon.
  """
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  target_delta = ranges.check_target_delta(target_delta)
  return _find_noise_multiplier(
    cohorts, accountant, num_rounds, target_epsilon, target_delta
  )


def search_rounds_within(
  epsilon_at: Callable[[int], float],
  *,
  noise_multiplier: float,
  target_epsilon: float,
  most: int,
  unit: int = 1,
) -> int:
  """Returns the most rounds whose epsilon is not above the target.

  Args:
    epsilon_at: Returns the epsilon of so many rounds, which grows with them.
    noise_multiplier: That of the rounds, for the message.
    target_epsilon: The epsilon that must not be passed.
    most: The most rounds that are tried.
    unit: How many rounds go together, such as those of an epoch.

  Raises:
    ValueError: If not even `unit` rounds fit.
  """
  found = unit * search_max_rounds(
    lambda count: epsilon_at(count * unit) <= target_epsilon, most // unit
  )
  if not found:
    least, what = 'a single round', 'one round'
    if unit > 1:
      least = what = f'an epoch of {unit} rounds'
    raise ValueError(
      f'`target_epsilon` {target_epsilon:g} does not allow {least}: with '
      f'`noise_multiplier` {noise_multiplier:g} {what} costs '
      f'{epsilon_at(unit):.4g}.'
    )
  return found


def search_max_rounds(fits: Callable[[int], bool], most: int) -> int:
  """Returns the most rounds that fit, from 0 to `most`.

  Args:
    fits: Returns whether so many rounds fit; fewer do then as well.
    most: The most rounds that are tried.
  """
  # Invariant: `low` rounds fit.
  low, high = 0, 1
  while fits(high):
    if high >= most:
      return high
    low, high = high, min(8 * high, most)
  # And here, `high` rounds do not.
  return low + bisect.bisect_left(
    range(low + 1, high), True, key=lambda count: not fits(count)
  )


def search_clients_per_round(
  epsilon_at: Callable[[int], float],
  *,
  noise_to_clients_ratio: float,
  target_epsilon: float,
  most: int,
) -> int:
  """Returns the fewest clients a round whose epsilon is not above the target.

  The noise grows with the cohort, so that the noise on the mean stays the same.
  The search takes epsilon to fall as cohorts grow. Should it not, there might
  be fewer clients that do; those that are returned always do.

  Args:
    epsilon_at: Returns the epsilon of so many clients a round, with the noise
      that goes with them.
    noise_to_clients_ratio: The noise multiplier over the clients a round.
    target_epsilon: The epsilon that must not be passed, positive.
    most: The most clients in a round.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no cohort is large enough.
  """
  ratio = argument_checks.check_positive(
    'noise_to_clients_ratio', noise_to_clients_ratio
  )
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  # Those whose noise is in the accountants' range.
  fewest = max(1, math.ceil(ranges.MIN_NOISE_MULTIPLIER / ratio))
  most = min(most, math.floor(ranges.MAX_NOISE_MULTIPLIER / ratio))
  if fewest > most:
    raise ValueError(
      f'`noise_to_clients_ratio` {ratio:g} gives no cohort a noise multiplier '
      f'from {ranges.MIN_NOISE_MULTIPLIER:g} to '
      f'{ranges.MAX_NOISE_MULTIPLIER:g}, the range that is accounted for.'
    )

  def fits(clients_per_round: int) -> bool:
    return epsilon_at(clients_per_round) <= target_epsilon

  if not fits(most):
    raise ValueError(
      f'`noise_to_clients_ratio` must be larger, found {ratio:g}: even cohorts '
      f'of {most} clients, with a noise multiplier of {ratio * most:g}, cost '
      f'more than `target_epsilon` {target_epsilon:g}.'
    )
  return fewest + bisect.bisect_left(range(fewest, most), True, key=fits)


def search_num_clients(
  epsilon_at: Callable[[int], float], *, target_epsilon: float, fewest: int
) -> int:
  """Returns the smallest population whose epsilon is not above the target.

  The search takes epsilon to fall as the population grows. Should it not, there
  might be a smaller one; what is returned always fits.

  Args:
    epsilon_at: Returns the epsilon of a population of so many clients.
    target_epsilon: The epsilon that must not be passed, positive.
    fewest: The smallest population that is tried.

  Raises:
    TypeError: If the target is not a number.
    ValueError: If it is out of range, or no population is large enough.
  """
  target_epsilon = ranges.check_target_epsilon(target_epsilon)

  @functools.cache
  def log_gap(num_clients: int) -> float:
    # Nothing is spent, or all: any number with the sign will do.
    ratio = min(max(epsilon_at(num_clients) / target_epsilon, 1e-9), 1e9)
    return math.log(ratio)

  low = high = fewest
  while high <= ranges.MAX_CLIENTS and log_gap(high) > 0:
    low, high = high, 16 * high
  if high > ranges.MAX_CLIENTS:
    raise ValueError(
      f'`target_epsilon` must be larger, found {target_epsilon:g}: with this '
      f'noise and these cohorts, a population of {low} clients costs '
      f'{epsilon_at(low):.4g}.'
    )
  if low == high or log_gap(high) == 0:
    return high
  # Invariant: `low` clients are too few, `high` are enough. The first steps
  # follow the line between both in logarithms, which is nearly straight.
  steps = 0
  while high - low > 1:
    middle = math.sqrt(low) * math.sqrt(high)
    if steps < _STRAIGHT_STEPS:
      share = log_gap(low) / (log_gap(low) - log_gap(high))
      middle = low * (high / low) ** share
      # To the other side of the root in turn, so that both ends move.
      middle *= 1 + (-1) ** steps * 16.0 ** -(steps + 1)
    tried = min(max(round(middle), low + 1), high - 1)
    low, high = (tried, high) if log_gap(tried) > 0 else (low, tried)
    steps += 1
  return high


@functools.lru_cache(maxsize=64)  # A table asks what its plan has asked.
def _find_noise_multiplier(
  cohorts: sampled_gaussian.Cohorts,
  accountant: str,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least noise multiplier, from arguments that are checked."""
  return accountants.TABLE[accountant].find_noise_multiplier(
    cohorts, num_rounds, target_epsilon, target_delta
  )
