"""Epsilon, delta, noise multiplier or rounds of DP-FedAvg, from the others.

Every function takes the same keyword arguments:

  num_clients, clients_per_round: The paper's N and P.
  noise_multiplier: Standard deviation of the noise on the sum of the clipped
    updates, divided by the clipping norm, whatever the relation.
  num_rounds: The paper's T.
  target_epsilon, target_delta: The paper's epsilon and delta.
  sampling: 'poisson', 'truncated_poisson', 'fixed_size' or 'none', see
    `sampled_gaussian.SampledGaussian`. It fixes the neighbouring relation.
  min_clients_per_round, max_clients_per_round: The bounds of a cohort, for
    'truncated_poisson' alone, which needs both. `PrivacyPlan` chooses them.
  accountant: 'rdp' (default; what TensorFlow Privacy uses) or 'pld' (tighter).
    For fixed-size cohorts also 'pld_one_sided', which is not a guarantee and no
    plan accepts: see `privacy_loss` for what holds and why.

All of them raise TypeError for an argument of the wrong kind and ValueError for
one that is out of range, and warn (`DeltaTooLargeWarning`) of a delta above
1/num_clients.
"""

import functools
import math
from collections.abc import Callable
from typing import Protocol

from tff_clipping.privacy import (
  arguments,
  privacy_loss,
  renyi,
  sampled_gaussian,
  truncated_poisson,
)

# The accountants whose answers are guarantees.
ACCOUNTANTS = ('rdp', 'pld')

_ALL_ACCOUNTANTS = (*ACCOUNTANTS, 'pld_one_sided')

# Multipliers are returned with this many significant digits, rounded up, so
# that the number that is printed is the number that was checked.
_MULTIPLIER_DIGITS = 6


class Rounds(Protocol):
  """Equal rounds of one mechanism, as an accountant sees them."""

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` rounds at `delta`."""

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at `epsilon`."""


def compute_epsilon(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  noise_multiplier: float,
  target_delta: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
) -> float:
  """Returns the epsilon that `num_rounds` rounds spend, an upper bound.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A finite epsilon >= 0.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or the accountant has no finite
      answer.
  """
  accountant = _check_accountant(accountant, sampling)
  mechanism = sampled_gaussian.SampledGaussian(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    noise_multiplier=noise_multiplier,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  num_rounds = arguments.check_num_rounds(num_rounds)
  target_delta = _check_delta(target_delta, mechanism.num_clients)
  epsilon = build_rounds(mechanism, accountant).compute_epsilon(
    num_rounds, target_delta
  )
  if not math.isfinite(epsilon):
    raise ValueError(
      explain_no_epsilon(mechanism, accountant, num_rounds, target_delta)
    )
  return epsilon


def compute_delta(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  noise_multiplier: float,
  target_epsilon: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
) -> float:
  """Returns the delta that `num_rounds` rounds spend at an epsilon, from above.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_epsilon: Epsilon, positive.
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A delta in [0, 1]; 1 promises nothing.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
  """
  accountant = _check_accountant(accountant, sampling)
  mechanism = sampled_gaussian.SampledGaussian(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    noise_multiplier=noise_multiplier,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  num_rounds = arguments.check_num_rounds(num_rounds)
  target_epsilon = arguments.check_target_epsilon(target_epsilon)
  rounds = build_rounds(mechanism, accountant)
  return rounds.compute_delta(num_rounds, target_epsilon)


def calibrate_noise_multiplier(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
  warn: bool = True,
) -> float:
  """Returns the smallest noise multiplier that keeps epsilon in the target.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.
    warn: Whether to warn of a delta above 1/num_clients.

  Returns:
    A multiplier of 6 significant digits, rounded up: its epsilon by the same
    accountant was computed and is not above the target. It is the least such
    multiplier but for the search's tolerance: 1e-6 of it by 'rdp', 1e-5 by
    'pld'.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no multiplier in the
      accountants' range has this epsilon.
  """
  accountant = _check_accountant(accountant, sampling)
  num_rounds = arguments.check_num_rounds(num_rounds)
  target_epsilon = arguments.check_target_epsilon(target_epsilon)

  def build_mechanism(noise_multiplier: float):
    return sampled_gaussian.SampledGaussian(
      sampling=sampling,
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      noise_multiplier=noise_multiplier,
      min_clients_per_round=min_clients_per_round,
      max_clients_per_round=max_clients_per_round,
    )

  mechanism = build_mechanism(1.0)
  target_delta = _check_delta(target_delta, mechanism.num_clients, warn=warn)
  if sampling == 'truncated_poisson':
    target_delta = truncated_poisson.compute_poisson_delta(
      mechanism, num_rounds, target_epsilon, target_delta
    )

  def build_charged(noise_multiplier: float):
    return build_mechanism(noise_multiplier).without_bounds()

  if accountant == 'rdp':
    search = _search_by_orders
  else:
    search = functools.partial(
      _search_by_grids, one_sided=accountant == 'pld_one_sided'
    )
  return search(build_charged, num_rounds, target_epsilon, target_delta)


def compute_max_rounds(
  *,
  num_clients: int,
  clients_per_round: int,
  noise_multiplier: float,
  target_epsilon: float,
  target_delta: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
  warn: bool = True,
) -> int:
  """Returns the most rounds whose epsilon is not above the target.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.
    warn: Whether to warn of a delta above 1/num_clients.

  Returns:
    A number of rounds >= 1.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, one round alone passes the
      target, or more rounds would fit than are accounted for.
  """
  accountant = _check_accountant(accountant, sampling)
  mechanism = sampled_gaussian.SampledGaussian(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    noise_multiplier=noise_multiplier,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  target_epsilon = arguments.check_target_epsilon(target_epsilon)
  target_delta = _check_delta(target_delta, mechanism.num_clients, warn=warn)
  rounds = build_rounds(mechanism, accountant)

  def fits(num_rounds: int) -> bool:
    return rounds.compute_epsilon(num_rounds, target_delta) <= target_epsilon

  if not fits(1):
    epsilon = rounds.compute_epsilon(1, target_delta)
    raise ValueError(
      f'`target_epsilon` {target_epsilon:g} does not allow a single round: '
      f'with `noise_multiplier` {mechanism.noise_multiplier:g} one round costs '
      f'{epsilon:.4g}.'
    )
  # Invariant: `low` rounds fit, `high` rounds do not.
  low, high = 1, 8
  while fits(high):
    if high >= arguments.MAX_ROUNDS:
      raise ValueError(
        f'`noise_multiplier` {mechanism.noise_multiplier:g} allows more than '
        f'{arguments.MAX_ROUNDS} rounds within `target_epsilon` '
        f'{target_epsilon:g}: give fewer rounds, or less noise.'
      )
    low, high = high, min(8 * high, arguments.MAX_ROUNDS)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return low


@functools.lru_cache(maxsize=64)
def build_rounds(
  mechanism: sampled_gaussian.SampledGaussian, accountant: str
) -> Rounds:
  """Returns what equal rounds of `mechanism` cost by an accountant.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
  """
  if mechanism.sampling == 'truncated_poisson':
    return truncated_poisson.TruncatedRounds(
      build_rounds(mechanism.without_bounds(), accountant), mechanism
    )
  if accountant == 'rdp':
    return renyi.RenyiRounds(mechanism)
  return privacy_loss.PrivacyLossRounds(
    mechanism, one_sided=accountant == 'pld_one_sided'
  )


def explain_no_epsilon(
  mechanism: sampled_gaussian.SampledGaussian,
  accountant: str,
  num_rounds: int,
  target_delta: float,
) -> str:
  """Returns why rounds have no finite epsilon.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    num_rounds: How many rounds.
    target_delta: The delta that was asked for.
  """
  if mechanism.sampling == 'truncated_poisson':
    rounds = build_rounds(mechanism.without_bounds(), accountant)
    epsilon = rounds.compute_epsilon(
      num_rounds, truncated_poisson.without_tails(target_delta)
    )
    if math.isfinite(epsilon):
      return truncated_poisson.describe_narrow_bounds(
        mechanism, num_rounds, epsilon, target_delta
      )
  return (
    'The accountant has no finite epsilon for `noise_multiplier` '
    f'{mechanism.noise_multiplier:g} and `target_delta` {target_delta:g}.'
  )


# Orders that a search starts from: sparse, and all of them cheap (between 63
# and 512 dp_accounting takes time that is quadratic in the order).
_FIRST_ORDERS = (
  *(1.1, 1.3, 1.6, 2, 3, 4, 6, 8),
  *(12, 16, 24, 32, 48, 63, 512, 1024),
)

_MechanismBuilder = Callable[[float], sampled_gaussian.SampledGaussian]


def _check_accountant(accountant: str, sampling: str) -> str:
  """Returns the accountant; 'paper' is a plan's, since it needs two numbers."""
  if sampling == 'paper':
    raise ValueError(
      "`sampling` 'paper' has two epsilons, the paper's and the one that its "
      "sampler really gives: build a `PrivacyPlan`, or take 'poisson' for the "
      "first and 'fixed_size' for the second, found 'paper'."
    )
  arguments.check_choice('sampling', sampling, [*sampled_gaussian.RELATIONS])
  accountant = arguments.check_choice(
    'accountant', accountant, _ALL_ACCOUNTANTS
  )
  if accountant == 'pld_one_sided' and sampling != 'fixed_size':
    raise ValueError(
      "`accountant` can be 'pld_one_sided' only where `sampling` is "
      f"'fixed_size', found {sampling!r}."
    )
  return accountant


def _check_delta(
  target_delta: float, num_clients: int, *, warn: bool = True
) -> float:
  """Returns delta; warns the caller's caller where it is too large."""
  target_delta = arguments.check_target_delta(target_delta)
  if warn:
    arguments.warn_of_large_delta(target_delta, num_clients, stacklevel=3)
  return target_delta


def _search_by_orders(
  build_mechanism: _MechanismBuilder,
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
    rounds = renyi.RenyiRounds(build_mechanism(multiplier), orders)
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
      rounds = renyi.RenyiRounds(build_mechanism(guess), orders)
      _, best = rounds.compute_epsilon_and_order(num_rounds, target_delta)
      place = orders.index(best)
      low = orders[max(place - 1, 0)]
      high = orders[min(place + 1, len(orders) - 1)]
    else:
      rounds = build_rounds(build_mechanism(guess), 'rdp')
      _, best = rounds.compute_epsilon_and_order(num_rounds, target_delta)
      if best in orders:
        return guess
      place = all_orders.index(best)
      low = all_orders[max(place - 1, 0)]
      high = all_orders[min(place + 1, len(all_orders) - 1)]
    orders = [order for order in all_orders if low <= order <= high]
    step, tolerance = 1.01, 1e-6
  return _find_multiplier(
    epsilon_at, target_epsilon, guess=guess, step=step, tolerance=1e-6
  )


def _search_by_grids(
  build_mechanism: _MechanismBuilder,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
  *,
  one_sided: bool,
) -> float:
  """Returns the least multiplier by PLD, by a coarse grid and a fine one."""

  def epsilon_at(multiplier: float, coarseness: float = 1) -> float:
    rounds = privacy_loss.PrivacyLossRounds(
      build_mechanism(multiplier), one_sided=one_sided, coarseness=coarseness
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
) -> float:
  """Returns about the least 6-digit multiplier with epsilon_at(it) <= target.

  Args:
    epsilon_at: A decreasing function of the noise multiplier.
    target: The epsilon to meet.
    guess: Where to start.
    step: By which factor to leave the guess at first.
    tolerance: How far above the least one the answer may be, relative to it.

  Raises:
    ValueError: If no multiplier in range meets the target, or all of them do.
  """
  least, most = arguments.MIN_NOISE_MULTIPLIER, arguments.MAX_NOISE_MULTIPLIER

  def log_gap(multiplier: float) -> float:
    epsilon = max(epsilon_at(multiplier), 1e-300)
    # Clipped, so that neither an infinite epsilon nor 0 leads a secant astray.
    return min(max(math.log(epsilon / target), -5.0), 5.0)

  # Invariant from here on: low misses the target, high meets it.
  low = high = None
  point = guess
  while low is None or high is None:
    gap = log_gap(point)
    if gap > 0:
      low, low_gap = point, gap
      if point == most:
        raise ValueError(
          f'`target_epsilon` {target:g} is out of reach: even a noise '
          f'multiplier of {most:g}, the most that is accounted for, costs '
          "more. Take fewer rounds, a larger delta, or the accountant 'pld'."
        )
      if high is None:
        point = min(point * step, most)
    else:
      high, high_gap = point, gap
      if point == least:
        raise ValueError(
          f'`target_epsilon` must be smaller, found {target:g}: even a noise '
          f'multiplier of {least:g}, the least that is accounted for, stays '
          'below it.'
        )
      if low is None:
        point = max(point / step, least)
    step = min(step**2, 100.0)

  # Illinois' variant of false position on the logarithms, with a bisection now
  # and then (epsilon jumps to 0 near the accountants' limits). Points are moved
  # a little to one side and the other, so that both ends of the bracket close.
  side, shift = 0, 0.4 * tolerance
  for count in range(200):
    if high <= low * (1 + tolerance):
      break
    fraction = 0.5 if count % 5 == 4 else low_gap / (low_gap - high_gap)
    point = low * (high / low) ** fraction * (1 + (-1) ** count * shift)
    point = min(max(point, low * (1 + shift / 4)), high * (1 - shift / 4))
    gap = log_gap(point)
    if gap > 0:
      low, low_gap = point, gap
      high_gap = high_gap / 2 if side == 1 else high_gap
      side = 1
    else:
      high, high_gap = point, gap
      low_gap = low_gap / 2 if side == -1 else low_gap
      side = -1

  multiplier = _round_up(high)
  while epsilon_at(multiplier) > target:
    multiplier = _round_up(multiplier * (1 + 10.0**-_MULTIPLIER_DIGITS))
  return multiplier


def _round_up(value: float) -> float:
  """Returns the least number of 6 significant digits that is not below."""
  exponent = math.floor(math.log10(value)) - _MULTIPLIER_DIGITS + 1
  digits = math.floor(value / 10.0**exponent)
  while float(f'{digits}e{exponent}') < value:
    digits += 1
  return float(f'{digits}e{exponent}')
