"""What an attacker may find out about one client, as two numbers.

mu: a run is no worse than one Gaussian mechanism of this mu (mu-GDP), at every
delta from the plan's up. In full: for every epsilon, its delta is at most that
of telling N(0, 1) from N(mu, 1) by a draw, or at most the plan's. Where the run
is one Gaussian mechanism, it is so at every delta.

The true-positive rate: of the clients that took part, the largest share that an
attacker names who names no more than a given share of those that did not.

Sources: Dong, Roth, Su, "Gaussian Differential Privacy", JRSS B 2022; Kairouz,
Oh, Viswanath, "The Composition Theorem for Differential Privacy", ICML 2015.
"""

import math
from typing import NamedTuple

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import privacy_loss
from tff_clipping.privacy.audit import trade_off
from tff_clipping.privacy.plans import base_plan

# The epsilons from 0 to the plan's at which delta is computed, and the points
# in each step between them at which the curves are compared.
_NUM_EPSILONS = 25
_POINTS_PER_STEP = 100

# A larger mu says nothing.
_LARGEST_MU = 1e3


class AttackBounds(NamedTuple):
  """What an attacker may find out about one client, at most.

  Attributes:
    mu: See the module; infinite if it is above 1000.
    false_positive_rate: That of the attacks.
    true_positive_rate: The largest that an attack has at that rate.
  """

  mu: float
  false_positive_rate: float
  true_positive_rate: float


def bound_attacks(
  plan: base_plan.BasePlan, false_positive_rate: float
) -> AttackBounds:
  """Returns what an attacker may find out after all rounds of a plan.

  Whatever accountant the plan is charged by, the bounds are by the tightest
  that is proved, for the clients that are really drawn.

  Args:
    plan: The plan.
    false_positive_rate: In (0, 1).

  Raises:
    TypeError: If the rate is not a number.
    ValueError: If it is not in (0, 1).
  """
  rate = argument_checks.check_probability(
    'false_positive_rate', false_positive_rate
  )
  parts = plan.released_mechanisms(plan.num_releases)
  if all(part.cohorts.sampling_prob == 1 for part, _ in parts):
    # One Gaussian mechanism.
    mu = math.hypot(
      *(math.sqrt(count) / part.noise_over_sensitivity for part, count in parts)
    )
    true_positive_rate = trade_off.GaussianTradeOff(mu).max_true_positive_rate
  else:
    epsilons = np.linspace(0, plan.actual_epsilon, _NUM_EPSILONS)
    deltas = np.array([plan.tightest_delta(epsilon) for epsilon in epsilons])
    curve = trade_off.TradeOff(epsilons, deltas)
    mu = _find_mu(curve, plan.target_delta)
    true_positive_rate = curve.max_true_positive_rate
  return AttackBounds(mu, rate, true_positive_rate(rate))


def _find_mu(curve: trade_off.TradeOff, target_delta: float) -> float:
  """Returns about the least mu whose delta is above the curve's, never less.

  Args:
    curve: Its epsilons begin with 0.
    target_delta: Where the curve is below it, mu need not be above.
  """
  # Between two epsilons, delta is at most linear in e^epsilon, for it is convex
  # in that. Both curves fall: a point is compared with the next.
  steps = np.linspace(0, 1, _POINTS_PER_STEP, endpoint=False)
  points = curve.epsilons[:-1, np.newaxis] + np.outer(
    np.diff(curve.epsilons), steps
  )
  points = np.append(points.ravel(), curve.epsilons[-1])
  deltas = np.interp(np.exp(points), np.exp(curve.epsilons), curve.deltas)

  def is_above(mu: float) -> bool:
    above = privacy_loss.compute_gaussian_delta(1 / mu, points[1:])
    return bool(np.all((above >= deltas[:-1]) | (deltas[:-1] <= target_delta)))

  low, high = 1e-9, 1e-3
  while not is_above(high):
    low, high = high, 2 * high
    if high > _LARGEST_MU:
      return math.inf
  while high > low * (1 + 1e-6):
    middle = math.sqrt(low * high)
    low, high = (low, middle) if is_above(middle) else (middle, high)
  return high
