"""Poisson cohorts that are brought within bounds, and what that costs.

A cohort is drawn by Poisson sampling. If it has more than M clients, a uniform
part of M of them stays; if it has fewer than m, uniformly drawn clients join
until there are m. Noise that comes in shares needs such bounds.

What it costs. Let tau be the probability that a Poisson cohort is out of
bounds, and P_D and Q_D the distributions of the releases of T rounds on a
population D with bounds and without. With the same coins both runs are the same
until a cohort is out of bounds, also when a round's updates depend on earlier
releases, so that their total variation is at most T tau_D. For neighbours D and
D' and every set S of releases, if (epsilon, delta) holds for Poisson sampling,

  P_D(S) <= Q_D(S) + T tau_D
         <= e^epsilon Q_D'(S) + delta + T tau_D
         <= e^epsilon P_D'(S) + delta + T (tau_D + e^epsilon tau_D').

Add-or-remove neighbours of N clients have N - 1 or N + 1. A cohort is above M
most often with N + 1 clients, and below m most often with N - 1; the tau that
is charged is the sum of these two. Sampling probability and bounds are public
constants, the same for all neighbours.

Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang, "Scalable DP-SGD:
Shuffling vs. Poisson Subsampling", NeurIPS 2024, charge an upper bound alone in
this way.
"""

import bisect
import math
from collections.abc import Callable
from typing import Any

from scipy import stats

from tff_clipping.privacy.accounting import costs, ranges, sampled_gaussian

# The part of delta that default bounds spend on the tails.
_TAIL_PART = 0.01


class TruncatedCost:
  """What equal rounds of truncated Poisson sampling cost together."""

  def __init__(self, poisson_cost: costs.ComposedCost, tail_prob: float):
    """Initializes the accountant.

    Args:
      poisson_cost: The same rounds without bounds, by any accountant.
      tail_prob: The tau that is charged for one round.
    """
    self._poisson_cost = poisson_cost
    self._tail_prob = tail_prob

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` rounds at `delta`; inf if unknown."""
    # The delta of the tails grows with epsilon. The iteration rises to the
    # least epsilon that pays for both, and ends where it is paid.
    epsilon = 0.0
    for _ in range(1000):
      left = delta - _charge(self._tail_prob, num_rounds, epsilon)
      if left <= 0:
        return math.inf
      needed = self._poisson_cost.compute_epsilon(num_rounds, left)
      if needed <= epsilon or math.isinf(needed):
        return max(needed, epsilon)
      epsilon = needed
    return math.inf

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at `epsilon`, at most 1."""
    delta = self._poisson_cost.compute_delta(num_rounds, epsilon)
    return min(1.0, delta + _charge(self._tail_prob, num_rounds, epsilon))


def compute_tail_prob(cohorts: sampled_gaussian.Cohorts) -> float:
  """Returns the tau that is charged for one round, 0 for all other samplers.

  Args:
    cohorts: Those of the round.
  """
  if cohorts.sampling != 'truncated_poisson':
    return 0.0
  population = cohorts.num_clients, cohorts.sampling_prob
  least, largest = cohorts.bounds.values()
  assert least is not None
  assert largest is not None
  return float(
    _prob_below(least, *population) + _prob_above(largest, *population)
  )


def compute_poisson_delta(
  cohorts: sampled_gaussian.Cohorts,
  num_rounds: int,
  epsilon: float,
  target_delta: float,
) -> float:
  """Returns the delta that the tails leave to Poisson sampling.

  Args:
    cohorts: Those of the rounds.
    num_rounds: Rounds, at least 1.
    epsilon: The epsilon that is to hold.
    target_delta: The delta that is to hold.

  Raises:
    ValueError: If they leave nothing. The message says which bounds would do.
  """
  cost = _charge(compute_tail_prob(cohorts), num_rounds, epsilon)
  if cost >= target_delta:
    raise ValueError(
      describe_narrow_bounds(cohorts, num_rounds, epsilon, target_delta)
    )
  return target_delta - cost


def describe_narrow_bounds(
  cohorts: sampled_gaussian.Cohorts,
  num_rounds: int,
  epsilon: float,
  target_delta: float,
) -> str:
  """Returns that the tails cost too much, and which bounds would do.

  Args:
    cohorts: Those of the rounds.
    num_rounds: Rounds, at least 1.
    epsilon: The epsilon that is to hold.
    target_delta: The delta that is to hold.
  """
  cost = _charge(compute_tail_prob(cohorts), num_rounds, epsilon)
  least, largest = choose_bounds(
    cohorts,
    num_rounds=num_rounds,
    epsilon=epsilon,
    target_delta=target_delta,
  )
  return (
    '`min_clients_per_round` and `max_clients_per_round` must be wider, found '
    f'{cohorts.min_clients_per_round} and {cohorts.max_clients_per_round}: '
    f'in {num_rounds} rounds, cohorts outside of them cost a delta of '
    f'{cost:.3g} at epsilon {epsilon:.4g}, which `target_delta` '
    f'{target_delta:g} must pay for; {least} and {largest} would do.'
  )


def choose_bounds(
  sampling: sampled_gaussian.Cohorts,
  *,
  num_rounds: int,
  epsilon: float,
  target_delta: float,
) -> tuple[int, int]:
  """Returns the narrowest bounds that spend 1 % of delta, a half on each side.

  Args:
    sampling: Poisson sampling, which is to be bounded.
    num_rounds: Rounds, at least 1.
    epsilon: The epsilon that is to hold, not negative; it may be infinite.
    target_delta: The delta that is to hold.

  Returns:
    The least cohort, from 0 to P, and the largest, from P to N + 1: a neighbour
    has so many clients.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If it is out of range.
  """
  population, expected = sampling.num_clients, sampling.clients_per_round
  # As in `_charge`, and so that a large epsilon does not overflow.
  log_cost = math.log(ranges.check_num_rounds(num_rounds))
  log_cost += _log_one_plus_exp(epsilon)
  target_delta = ranges.check_target_delta(target_delta)
  allowed = _TAIL_PART / 2 * target_delta * math.exp(-log_cost)
  prob = sampling.sampling_prob
  least = bisect.bisect_right(
    range(min(expected, population - 1) + 1),
    allowed,
    key=lambda bound: _prob_below(bound, population, prob),
  )
  largest = bisect.bisect_left(
    range(expected, population + 2),
    -allowed,
    key=lambda bound: -_prob_above(bound, population, prob),
  )
  return least - 1, expected + largest


def build_cohorts(
  *,
  target_delta: float,
  compute_cost: Callable[[sampled_gaussian.Cohorts], tuple[int, float]],
  **cohorts: Any,
) -> sampled_gaussian.Cohorts:
  """Returns cohorts, with bounds where 'truncated_poisson' has none yet.

  Args:
    target_delta: The delta of which chosen bounds spend a part.
    compute_cost: Returns the rounds and the epsilon to choose bounds for, from
      Poisson sampling; called only if some are to be chosen.
    **cohorts: The attributes of `Cohorts`. A bound that is None is chosen.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If it is out of range.
  """
  bounds = {name: cohorts.pop(name) for name in sampled_gaussian.BOUNDS}
  if cohorts['sampling'] == 'truncated_poisson' and None in bounds.values():
    poisson = sampled_gaussian.Cohorts(**{**cohorts, 'sampling': 'poisson'})
    num_rounds, epsilon = compute_cost(poisson)
    chosen = choose_bounds(
      poisson,
      num_rounds=num_rounds,
      epsilon=epsilon,
      target_delta=target_delta,
    )
    for name, bound in zip(sampled_gaussian.BOUNDS, chosen, strict=True):
      bounds[name] = bound if bounds[name] is None else bounds[name]
  return sampled_gaussian.Cohorts(**cohorts, **bounds)


def without_tails(target_delta: float) -> float:
  """Returns the delta that is left where default bounds spend their part."""
  return (1 - _TAIL_PART) * target_delta


def _charge(tail_prob: float, num_rounds: int, epsilon: float) -> float:
  """Returns T (1 + e^epsilon) tau, at most 1."""
  if tail_prob == 0:
    return 0.0
  log_cost = math.log(num_rounds * tail_prob) + _log_one_plus_exp(epsilon)
  return math.exp(min(log_cost, 0.0))  # A delta of 1 is no promise anyway.


def _log_one_plus_exp(epsilon: float) -> float:
  """Returns log(1 + e^epsilon) for an epsilon that is not below 0."""
  return epsilon + math.log1p(math.exp(-epsilon))


def _prob_below(least: int, num_clients: int, prob: float) -> float:
  """Returns the chance of fewer than `least` where a client is missing."""
  return stats.binom.cdf(least - 1, num_clients - 1, prob)


def _prob_above(largest: int, num_clients: int, prob: float) -> float:
  """Returns the chance of more than `largest` where there is one more."""
  return stats.binom.sf(largest, num_clients + 1, prob)
