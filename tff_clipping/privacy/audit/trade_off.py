"""The trade-off curve of a guarantee: bounds on all attacks.

An attacker names the clients that took part. Its true-positive rate is the
share of the participants that it names, its false-positive rate the share of
the others that it names. (epsilon, delta) holds for a mechanism if and only if,
for every attack,

  tpr <= e^epsilon fpr + delta   and   1 - fpr <= e^epsilon (1 - tpr) + delta

(Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy",
ICML 2015). A plan states a delta for every epsilon, and so a curve; mu-GDP
states that no attack is better than telling N(0, 1) from N(mu, 1) by a draw
(Dong, Roth, Su, "Gaussian Differential Privacy", JRSS B 2022).

`bound_attacks` returns two numbers of a plan's curve: the largest true-positive
rate at a false-positive rate, and mu. At every epsilon, the delta of the run is
at most that of mu-GDP or at most the plan's, so that the run is no worse than
one Gaussian mechanism of this mu, at every delta from the plan's up. If the run
is one Gaussian mechanism, its mu is exact, and holds at every delta.
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

# The rate at which results and texts tell of a true-positive rate.
FALSE_POSITIVE_RATE = 0.01

# The epsilons of a plan's curve.
_EPSILONS = np.geomspace(0.02, 24, 33)

# For mu, delta is computed at so many epsilons from 0 to the plan's, and is
# bounded at so many points in each step between two of them.
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
    """Returns the largest true-positive rate at this false-positive rate."""
    growth = np.exp(self.epsilons)
    first = growth * false_positive_rate + self.deltas
    second = 1 - (1 - false_positive_rate - self.deltas) / growth
    return float(min(first.min(), second.min(), 1))

  def min_false_positive_rate(self, true_positive_rate: float) -> float:
    """Returns the least false-positive rate at this true-positive rate."""
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
    """Returns the largest true-positive rate at this false-positive rate."""
    return float(special.ndtr(special.ndtri(false_positive_rate) + self.mu))

  def min_false_positive_rate(self, true_positive_rate: float) -> float:
    """Returns the least false-positive rate at this true-positive rate."""
    return float(special.ndtr(special.ndtri(true_positive_rate) - self.mu))


class AttackBounds(NamedTuple):
  """Bounds on what an attacker finds out about one client.

  Attributes:
    mu: See the module; infinite if it is above 1000.
    false_positive_rate: The false-positive rate of the attacks.
    true_positive_rate: The largest of any attack with this false-positive rate.
  """

  mu: float
  false_positive_rate: float
  true_positive_rate: float


def compute_trade_off(
  plan: BasePlan, epsilons: np.ndarray = _EPSILONS
) -> TradeOff:
  """Returns the curve of all rounds of a plan, for its neighbouring relation.

  It is by 'pld', the tightest that is proved, whatever the plan's accountant.

  Args:
    plan: The plan.
    epsilons: As the attribute of the curve; more of them make it tighter.
  """
  cost = accountants.compose(plan.parts(plan.num_rounds), 'pld')
  return TradeOff(epsilons, np.array([*map(cost.compute_delta, epsilons)]))


def bound_attacks(plan: BasePlan, false_positive_rate: float) -> AttackBounds:
  """Returns bounds on all attacks on all rounds of a plan.

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
    curve = compute_trade_off(plan, np.linspace(0, plan.epsilon, _NUM_EPSILONS))
    mu = _find_mu(curve, plan.target_delta)
  return AttackBounds(mu, rate, curve.max_true_positive_rate(rate))


def compute_gaussian_epsilon(mu: float, delta: float) -> float:
  """Returns the epsilon of mu-GDP at `delta`.

  Args:
    mu: Sensitivity over the standard deviation of the noise, not negative; a
      larger one than 40 counts as 40.
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


def _find_mu(curve: TradeOff, target_delta: float) -> float:
  """Returns about the least mu whose delta is above the curve's, never less.

  The curve begins at epsilon 0. Deltas up to the target are left out.
  """
  # Delta is convex in e^epsilon, so that a line between two epsilons is above
  # it. Both curves fall: a point is compared with the next.
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
