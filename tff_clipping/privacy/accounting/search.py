"""The least noise, most rounds or fewest clients within an epsilon."""

import bisect
import functools
import math
from collections.abc import Callable
from typing import Any

from scipy import optimize

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  privacy_loss,
  ranges,
  renyi,
  rounding,
  sampled_gaussian,
  truncated_poisson,
)

# Multipliers are returned with this many significant digits, rounded up, so
# that the number that is printed is the number that was checked.
_MULTIPLIER_DIGITS = 6

# Orders that a search starts from: sparse, and all of them cheap (between 63
# and 512 dp_accounting takes time that is quadratic in the order).
_FIRST_ORDERS = (
  *(1.1, 1.3, 1.6, 2, 3, 4, 6, 8),
  *(12, 16, 24, 32, 48, 63, 512, 1024),
)


def find_noise_multiplier(
  sampling: sampled_gaussian.CohortSampling,
  accountant: str,
  *,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least noise multiplier that keeps epsilon in the target.

  Args:
    sampling: How the cohorts are drawn.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    num_rounds: Rounds, at least 1.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).

  Returns:
    A multiplier of 6 significant digits; see
    `accounting.calibrate_noise_multiplier`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no multiplier in the
      accountants' range has this epsilon.
  """
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  target_delta = ranges.check_target_delta(target_delta)
  if sampling.sampling == 'truncated_poisson':
    target_delta = truncated_poisson.compute_poisson_delta(
      sampling, num_rounds, target_epsilon, target_delta
    )
  return _search_noise_multiplier(
    sampling, accountant, num_rounds, target_epsilon, target_delta
  )


def find_max_rounds(
  mechanism: sampled_gaussian.SampledGaussian,
  accountant: str,
  *,
  target_epsilon: float,
  target_delta: float,
) -> int:
  """Returns the most rounds whose epsilon is not above the target.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, one round alone passes the
      target, or more rounds would fit than are accounted for.
  """
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  target_delta = ranges.check_target_delta(target_delta)
  rounds = accountants.build_rounds(mechanism, accountant)

  def fits(num_rounds: int) -> bool:
    return rounds.compute_epsilon(num_rounds, target_delta) <= target_epsilon

  found = search_max_rounds(fits, ranges.MAX_ROUNDS)
  if found == 0:
    epsilon = rounds.compute_epsilon(1, target_delta)
    raise ValueError(
      f'`target_epsilon` {target_epsilon:g} does not allow a single round: '
      f'with `noise_multiplier` {mechanism.noise_multiplier:g} one round costs '
      f'{epsilon:.4g}.'
    )
  if found == ranges.MAX_ROUNDS:
    raise ValueError(
      f'`noise_multiplier` {mechanism.noise_multiplier:g} allows more than '
      f'{ranges.MAX_ROUNDS} rounds within `target_epsilon` '
      f'{target_epsilon:g}: give fewer rounds, or less noise.'
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


def find_clients_per_round(
  sampling: str,
  accountant: str,
  *,
  num_clients: int,
  num_rounds: int,
  noise_to_clients_ratio: float,
  target_epsilon: float,
  target_delta: float,
) -> int:
  """Returns the fewest clients a round whose epsilon is not above the target.

  Args:
    sampling: 'poisson', 'fixed_size', or 'truncated_poisson' with a cohort that
      is within its bounds.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    num_clients: The paper's N.
    num_rounds: Rounds, at least 1.
    noise_to_clients_ratio: The noise multiplier over the clients a round.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no cohort is large enough.
  """
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_delta = ranges.check_target_delta(target_delta)
  # Of truncated cohorts, the tails are paid for apart.
  widest = sampling == 'truncated_poisson'

  def epsilon_at(clients_per_round: int, noise_multiplier: float) -> float:
    mechanism = sampled_gaussian.SampledGaussian(
      sampling=sampling,
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      noise_multiplier=noise_multiplier,
      min_clients_per_round=0 if widest else None,
      max_clients_per_round=num_clients + 1 if widest else None,
    )
    return accountants.build_rounds(mechanism, accountant).compute_epsilon(
      num_rounds, target_delta
    )

  return search_clients_per_round(
    epsilon_at,
    noise_to_clients_ratio=noise_to_clients_ratio,
    target_epsilon=target_epsilon,
    most=ranges.check_population(num_clients, 1)[0],
  )


def search_clients_per_round(
  epsilon_at: Callable[[int, float], float],
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
    epsilon_at: Returns the epsilon of so many clients a round and of the noise
      multiplier that goes with them.
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
    epsilon = epsilon_at(clients_per_round, ratio * clients_per_round)
    return epsilon <= target_epsilon

  if not fits(most):
    raise ValueError(
      f'`noise_to_clients_ratio` must be larger, found {ratio:g}: even cohorts '
      f'of {most} clients, with a noise multiplier of {ratio * most:g}, cost '
      f'more than `target_epsilon` {target_epsilon:g}.'
    )
  return fewest + bisect.bisect_left(range(fewest, most), True, key=fits)


@functools.lru_cache(maxsize=64)  # A table asks what its plan has asked.
def _search_noise_multiplier(
  sampling: sampled_gaussian.CohortSampling,
  accountant: str,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least noise multiplier, from arguments that are checked."""
  if accountant == 'rdp':
    search = _search_by_orders
  else:
    search = functools.partial(
      _search_by_grids, one_sided=accountant == 'pld_one_sided'
    )
  return search(sampling, num_rounds, target_epsilon, target_delta)


def _search_by_orders(
  sampling: sampled_gaussian.CohortSampling,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least multiplier by RDP, computing few orders most of the time.

  An order's divergence is slow to compute, and only the best order counts.
  Fewer orders give a larger epsilon, so that a multiplier that meets the target
  with some of them meets it with all.
  """

  def epsilon_at(multiplier: float, orders=None) -> float:
    mechanism = sampled_gaussian.add_noise(sampling, multiplier)
    rounds = renyi.RenyiRounds([(mechanism, 1)], orders)
    return rounds.compute_epsilon(num_rounds, target_delta)

  orders = [*_FIRST_ORDERS]
  guess, step, tolerance = 1.0, 1.5, 1e-3
  all_orders = renyi.DEFAULT_ORDERS
  for attempt in range(8):
    try:
      guess = _find_multiplier(
        functools.partial(epsilon_at, orders=orders),
        target_epsilon,
        guess=guess,
        step=step,
        tolerance=tolerance,
      )
    except ValueError:
      break  # Out of reach with these orders, perhaps not with all of them.
    if attempt == 0:
      # The best order lies between the neighbours of the best one so far.
      mechanism = sampled_gaussian.add_noise(sampling, guess)
      rounds = renyi.RenyiRounds([(mechanism, 1)], orders)
      _, best = rounds.compute_epsilon_and_order(num_rounds, target_delta)
      place = orders.index(best)
      low = orders[max(place - 1, 0)]
      high = orders[min(place + 1, len(orders) - 1)]
    else:
      # Those of 'rdp' tell their best order.
      all_rounds: Any = accountants.build_rounds_within_bounds(
        sampled_gaussian.add_noise(sampling, guess), 'rdp'
      )
      _, best = all_rounds.compute_epsilon_and_order(num_rounds, target_delta)
      if best in orders:
        return guess
      place = all_orders.index(best)
      low = all_orders[max(place - 1, 0)]
      high = all_orders[min(place + 1, len(all_orders) - 1)]
    orders = [order for order in all_orders if low <= order <= high]
    step, tolerance = 1.01, 1e-6
  return _find_multiplier(
    epsilon_at,
    target_epsilon,
    guess=guess,
    step=step,
    tolerance=1e-6,
    advice=", a larger delta, or the accountant 'pld'",
  )


def _search_by_grids(
  sampling: sampled_gaussian.CohortSampling,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
  *,
  one_sided: bool,
) -> float:
  """Returns the least multiplier by PLD, by a coarse grid and a fine one."""

  def epsilon_at(multiplier: float, coarseness: float = 1) -> float:
    rounds = privacy_loss.PrivacyLossRounds(
      [(sampled_gaussian.add_noise(sampling, multiplier), 1)],
      one_sided=one_sided,
      coarseness=coarseness,
    )
    return rounds.compute_epsilon(num_rounds, target_delta)

  guess, step = 1.0, 1.5
  try:
    guess = _find_multiplier(
      functools.partial(epsilon_at, coarseness=16),
      target_epsilon,
      guess=guess,
      step=step,
      tolerance=1e-4,
    )
    step = 1.0005
  except ValueError:
    pass  # Out of reach on the coarse grid, perhaps not on the fine one.
  return _find_multiplier(
    epsilon_at, target_epsilon, guess=guess, step=step, tolerance=1e-5
  )


def _find_multiplier(
  epsilon_at: Callable[[float], float],
  target: float,
  *,
  guess: float,
  step: float,
  tolerance: float,
  advice: str = ' or a larger delta',
) -> float:
  """Returns about the least 6-digit multiplier with epsilon_at(it) <= target.

  Args:
    epsilon_at: A decreasing function of the noise multiplier.
    target: The epsilon to meet.
    guess: Where to start.
    step: By which factor to leave the guess at first.
    tolerance: How far above the least one the answer may be, relative to it.
    advice: What to take besides fewer rounds where there is no answer.

  Raises:
    ValueError: If no multiplier in range meets the target, or all of them do.
  """
  least, most = ranges.MIN_NOISE_MULTIPLIER, ranges.MAX_NOISE_MULTIPLIER

  @functools.cache  # The ends of the bracket are asked for again.
  def log_gap(log_multiplier: float) -> float:
    multiplier = min(max(math.exp(log_multiplier), least), most)
    epsilon = max(epsilon_at(multiplier), 1e-300)
    # Clipped, so that neither an infinite epsilon nor 0 leads a secant astray.
    return min(max(math.log(epsilon / target), -5.0), 5.0)

  # From here on, low misses the target and high meets it.
  low = high = None
  point = guess
  while low is None or high is None:
    if log_gap(math.log(point)) > 0:
      low = point
      if point == most:
        raise ValueError(
          f'`target_epsilon` {target:g} is out of reach: even a noise '
          f'multiplier of {most:g}, the most that is accounted for, costs '
          f'more. Take fewer rounds{advice}.'
        )
      if high is None:
        point = min(point * step, most)
    else:
      high = point
      if point == least:
        raise ValueError(
          f'`target_epsilon` must be smaller, found {target:g}: even a noise '
          f'multiplier of {least:g}, the least that is accounted for, stays '
          'below it.'
        )
      if low is None:
        point = max(point / step, least)
    step = min(step**2, 100.0)

  root = optimize.brentq(
    log_gap, math.log(low), math.log(high), xtol=tolerance / 2
  )
  # The target is met above the root, which may be off by half the tolerance.
  multiplier = rounding.round_up(
    math.exp(root) * (1 + tolerance / 2), digits=_MULTIPLIER_DIGITS
  )
  while epsilon_at(multiplier) > target:
    multiplier = rounding.round_up(
      multiplier * (1 + 10.0**-_MULTIPLIER_DIGITS), digits=_MULTIPLIER_DIGITS
    )
  return multiplier
