"""What an attacker may get right under a guarantee: its trade-off curve.

An attacker says of a client whether it took part. Of the clients that did, the
share that the attacker finds is the true-positive rate; of those that did not,
the share that it names is the false-positive rate. (epsilon, delta) holds for a
mechanism if and only if, for every attack,

  tpr <= e^epsilon fpr + delta   and   1 - fpr <= e^epsilon (1 - tpr) + delta

(Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy",
ICML 2015). A plan states a delta for every epsilon, and so a curve; mu-GDP
states that no attack is better than telling N(0, 1) from N(mu, 1) by a draw
(Dong, Roth, Su, "Gaussian Differential Privacy", JRSS B 2022).

`bound_attacks` has two numbers of a plan's curve. One is mu: a run is no worse
than one Gaussian mechanism of this mu, at every delta from the plan's up. In
full: for every epsilon, its delta is at most that of mu-GDP, or at most the
plan's. Where the run is one Gaussian mechanism, it is so at every delta. The
other is the largest true-positive rate at a given false-positive rate.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  gaussian_mechanism,
  privacy_loss,
  ranges,
)
from tff_clipping.privacy.plans.base_plan import BasePlan

# The epsilons at which a plan's delta is asked for. Any of them is a valid
# constraint; more of them make the curve tighter.
_EPSILONS = np.geomspace(0.02, 24, 33)

# Between which mu is searched: the epsilons from 0 to the plan's at which delta
# is computed, and the points in each step between them.
_NUM_EPSILONS = 25
_POINTS_PER_STEP = 100

# Of a larger mu, `compute_gaussian_epsilon` gives the epsilon of this one, near
# 1000; `bound_attacks` gives a larger mu than the second as infinite.
_LARGEST_MU_OF_EPSILON = 40.0
_LARGEST_MU = 1e3


@dataclasses.dataclass(frozen=True)
class TradeOff:
  """A curve of (epsilon, delta) that hold together.

  Attributes:
    epsilons: Not negative, in rising order, of shape [n].
    deltas: The delta of each, in [0, 1], of shape [n].
  """

  epsilons: np.ndarray
  deltas: np.ndarray

  def max_true_positive_rate(self, false_positive_rate: float) -> float:
    """Returns the most that an attack finds at this false-positive rate."""
    growth = np.exp(self.epsilons)
    first = growth * false_positive_rate + self.deltas
    second = 1 - (1 - false_positive_rate - self.deltas) / growth
    return float(min(first.min(), second.min(), 1))

  def min_false_positive_rate(self, true_positive_rate: float) -> float:
    """Returns the least false-positive rate of an attack that finds so many."""
    growth = np.exp(self.epsilons)
    first = (true_positive_rate - self.deltas) / growth
    second = 1 - self.deltas - growth * (1 - true_positive_rate)
    return float(max(first.max(), second.max(), 0))


@dataclasses.dataclass(frozen=True)
class GaussianTradeOff:
  """The curve of mu-GDP.

  Attributes:
    mu: How far apart the two normal distributions are, not negative.
  """

  mu: float

  def max_true_positive_rate(self, false_positive_rate: float) -> float:
    """Returns the most that an attack finds at this false-positive rate."""
    return float(special.ndtr(special.ndtri(false_positive_rate) + self.mu))

  def min_false_positive_rate(self, true_positive_rate: float) -> float:
    """Returns the least false-positive rate of an attack that finds so many."""
    return float(special.ndtr(special.ndtri(true_positive_rate) - self.mu))


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


def compute_trade_off(plan: BasePlan) -> TradeOff:
  """Returns the curve that a plan's mechanism allows after all of its rounds.

  It is for the plan's neighbouring relation. Whatever accountant the plan is
  charged by, the curve is by the tightest that is proved.
  """
  return _compute_curve(plan, _EPSILONS)


def bound_attacks(plan: BasePlan, false_positive_rate: float) -> AttackBounds:
  """Returns what an attacker may find out after all rounds of a plan.

  The bounds are of the curve of `compute_trade_off`.

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
  noise = gaussian_mechanism.compose_noise(plan.parts(plan.num_rounds))
  curve: TradeOff | GaussianTradeOff
  if noise is not None:  # One Gaussian mechanism.
    curve = GaussianTradeOff(1 / noise)
    mu = curve.mu
  else:
    curve = _compute_curve(plan, np.linspace(0, plan.epsilon, _NUM_EPSILONS))
    mu = _find_mu(curve, plan.target_delta)
  return AttackBounds(mu, rate, curve.max_true_positive_rate(rate))


def compute_gaussian_epsilon(mu: float, delta: float) -> float:
  """Returns the epsilon of mu-GDP at `delta`.

  Args:
    mu: Sensitivity over the standard deviation of the noise, not negative. Of a
      mu above 40, it is the epsilon of 40.
    delta: In (0, 1).

  Raises:
    TypeError: If an argument is not a number.
    ValueError: If it is out of range.
  """
  mu = argument_checks.check_non_negative('mu', mu)
  if mu == 0:
    ranges.check('target_delta', delta)
    return 0.0
  return gaussian_mechanism.gaussian_epsilon(
    1 / min(mu, _LARGEST_MU_OF_EPSILON), delta
  )


def _compute_curve(plan: BasePlan, epsilons: np.ndarray) -> TradeOff:
  """Returns the curve by 'pld' at these epsilons."""
  cost = accountants.compose(plan.parts(plan.num_rounds), 'pld')
  return TradeOff(epsilons, np.array([*map(cost.compute_delta, epsilons)]))


def _find_mu(curve: TradeOff, target_delta: float) -> float:
  """Returns about the least mu whose delta is above the curve's, never less.

  The curve begins with epsilon 0. Where it is below the target it counts not.
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
