"""How accountants find the least noise: the searches in `accountants.TABLE`."""

import functools
import math
from collections.abc import Callable, Sequence

from scipy import optimize

from tff_clipping.privacy.accounting import (
  costs,
  privacy_loss,
  ranges,
  renyi,
  rounding,
  sampled_gaussian,
)

# Multipliers are returned with this many significant digits, rounded up, so
# that the number that is printed is the number that was checked.
MULTIPLIER_DIGITS = 6

# Orders that a search starts from: sparse, and all of them cheap (between 63
# and 512 dp_accounting takes time that is quadratic in the order).
_FIRST_ORDERS = (
  *(1.1, 1.3, 1.6, 2, 3, 4, 6, 8),
  *(12, 16, 24, 32, 48, 63, 512, 1024),
)


def search_noise_multiplier(
  compose: Callable[..., costs.ComposedCost],
  cohorts: sampled_gaussian.Cohorts,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
  *,
  guess: float = 1.0,
  step: float = 1.5,
  tolerance: float = 1e-5,
  advice: str = ' or a larger delta',
) -> float:
  """Returns about the least 6-digit multiplier that meets the target.

  Args:
    compose: As in `accountants.Accountant`.
    cohorts: How the cohorts are drawn.
    num_rounds: Rounds, at least 1.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).
    guess: Where to start.
    step: By which factor to leave the guess at first.
    tolerance: How far above the least one the answer may be, relative to it.
    advice: What to take besides fewer rounds where there is no answer.

  Raises:
    ValueError: If no multiplier in range meets the target, or all of them do.
  """

  def epsilon_at(multiplier: float) -> float:
    mechanism = sampled_gaussian.SampledGaussian(cohorts, multiplier)
    cost = compose([(mechanism, 1)])
    return cost.compute_epsilon(num_rounds, target_delta)

  return search_multiplier(
    epsilon_at,
    target_epsilon,
    guess=guess,
    step=step,
    tolerance=tolerance,
    advice=advice,
  )


def search_multiplier(
  epsilon_at: Callable[[float], float],
  target_epsilon: float,
  *,
  guess: float = 1.0,
  step: float = 1.5,
  tolerance: float = 1e-5,
  advice: str = ' or a larger delta',
) -> float:
  """Returns about the least 6-digit multiplier whose epsilon is in the target.

  Args:
    epsilon_at: Returns the epsilon of a multiplier, which falls with it.
    target_epsilon: As in `search_noise_multiplier`.
    guess: As there.
    step: As there.
    tolerance: As there.
    advice: As there.

  Raises:
    ValueError: As there.
  """
  least, most = ranges.MIN_NOISE_MULTIPLIER, ranges.MAX_NOISE_MULTIPLIER

  @functools.cache  # The ends of the bracket are asked for again.
  def log_gap(log_multiplier: float) -> float:
    multiplier = min(max(math.exp(log_multiplier), least), most)
    epsilon = max(epsilon_at(multiplier), 1e-300)
    # Clipped, so that neither an infinite epsilon nor 0 leads a secant astray.
    return min(max(math.log(epsilon / target_epsilon), -5.0), 5.0)

  # From here on, low misses the target and high meets it.
  low = high = None
  point = guess
  while low is None or high is None:
    if log_gap(math.log(point)) > 0:
      low = point
      if point == most:
        raise ValueError(
          f'`target_epsilon` {target_epsilon:g} is out of reach: even a noise '
          f'multiplier of {most:g}, the most that is accounted for, costs '
          f'more. Take fewer rounds{advice}.'
        )
      if high is None:
        point = min(point * step, most)
    else:
      high = point
      if point == least:
        raise ValueError(
          f'`target_epsilon` must be smaller, found {target_epsilon:g}: even a '
          f'noise multiplier of {least:g}, the least that is accounted for, '
          'stays below it.'
        )
      if low is None:
        point = max(point / step, least)
    step = min(step**2, 100.0)

  root = optimize.brentq(
    log_gap, math.log(low), math.log(high), xtol=tolerance / 2
  )
  # The target is met above the root, which may be off by half the tolerance.
  multiplier = rounding.round_up(
    math.exp(root) * (1 + tolerance / 2), digits=MULTIPLIER_DIGITS
  )
  while epsilon_at(multiplier) > target_epsilon:
    multiplier = rounding.round_up(
      multiplier * (1 + 10.0**-MULTIPLIER_DIGITS), digits=MULTIPLIER_DIGITS
    )
  return multiplier


def search_by_orders(
  cohorts: sampled_gaussian.Cohorts,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least multiplier by RDP, computing few orders most of the time.

  An order's divergence is slow to compute, and only the best order counts.
  Fewer orders give a larger epsilon, so that a multiplier that meets the target
  with some of them meets it with all.

  Args:
    cohorts: As in `search_noise_multiplier`.
    num_rounds: As there.
    target_epsilon: As there.
    target_delta: As there.

  Raises:
    ValueError: As there.
  """
  question = cohorts, num_rounds, target_epsilon, target_delta

  def find_neighbours(
    multiplier: float, orders: Sequence[float]
  ) -> tuple[float, float, float]:
    """Returns the best of some orders, and those before and after it."""
    mechanism = sampled_gaussian.SampledGaussian(cohorts, multiplier)
    cost = renyi.RenyiCost([(mechanism, 1)], orders)
    _, best = cost.compute_epsilon_and_order(num_rounds, target_delta)
    place = orders.index(best)
    after = orders[min(place + 1, len(orders) - 1)]
    return best, orders[max(place - 1, 0)], after

  orders: Sequence[float] = _FIRST_ORDERS
  guess, step, tolerance = 1.0, 1.5, 1e-3
  for attempt in range(8):
    try:
      guess = search_noise_multiplier(
        functools.partial(renyi.RenyiCost, orders=orders),
        *question,
        guess=guess,
        step=step,
        tolerance=tolerance,
      )
    except ValueError:
      break  # Out of reach with these orders, perhaps not with all of them.
    known = renyi.DEFAULT_ORDERS if attempt else orders
    best, low, high = find_neighbours(guess, known)
    if attempt and best in orders:
      return guess
    # The best order lies between the neighbours of the best one so far.
    orders = [x for x in renyi.DEFAULT_ORDERS if low <= x <= high]
    step, tolerance = 1.01, 1e-6
  return search_noise_multiplier(
    renyi.RenyiCost,
    *question,
    guess=guess,
    step=step,
    tolerance=1e-6,
    advice=", a larger delta, or the accountant 'pld'",
  )


def search_by_grids(
  cohorts: sampled_gaussian.Cohorts,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the least multiplier by PLD, by a coarse grid and a fine one.

  Args:
    cohorts: As in `search_noise_multiplier`.
    num_rounds: As there.
    target_epsilon: As there.
    target_delta: As there.

  Raises:
    ValueError: As there.
  """
  question = cohorts, num_rounds, target_epsilon, target_delta
  guess, step = 1.0, 1.5
  try:
    guess = search_noise_multiplier(
      functools.partial(privacy_loss.PldCost, coarseness=16),
      *question,
      tolerance=1e-4,
    )
    step = 1.0005
  except ValueError:
    pass  # Out of reach on the coarse grid, perhaps not on the fine one.
  return search_noise_multiplier(
    privacy_loss.PldCost, *question, guess=guess, step=step
  )
