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
"""

import dataclasses

import numpy as np
from scipy import special

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import gaussian_mechanism, ranges
from tff_clipping.privacy.plans.base_plan import BasePlan

# The epsilons at which a plan's delta is asked for. Any of them is a valid
# constraint; more of them make the curve tighter.
_EPSILONS = np.geomspace(0.02, 24, 33)

# With epsilons near 1000.
_LARGEST_MU = 40.0


@dataclasses.dataclass(frozen=True)
class TradeOff:
  """A curve of (epsilon, delta) that hold together.

  Attributes:
    epsilons: Positive epsilons, of shape [n].
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


def compute_trade_off(plan: BasePlan) -> TradeOff:
  """Returns the curve that a plan allows after all of its rounds.

  It is for the plan's neighbouring relation. Under 'paper', whose epsilon does
  not hold, it is that of the cohorts that are really drawn, under replace-one.
  Whatever accountant the plan is charged by, the curve is by the tightest that
  is proved: it is what the plan's mechanism allows.

  Args:
    plan: The plan.
  """
  deltas = [plan.tightest_delta(epsilon) for epsilon in _EPSILONS]
  return TradeOff(_EPSILONS, np.array(deltas))


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
  mu = argument_checks.check_number('mu', mu)
  if mu < 0:
    raise ValueError(f'`mu` must not be negative, found {mu:g}.')
  if mu == 0:
    ranges.check_target_delta(delta)
    return 0.0
  return gaussian_mechanism.gaussian_epsilon(1 / min(mu, _LARGEST_MU), delta)


def compute_gaussian_mu(epsilon: float, delta: float) -> float:
  """Returns the mu, at most 40, whose Gaussian has this epsilon at `delta`.

  Args:
    epsilon: Not negative. Of less than 1e-6, it is the mu of 1e-6.
    delta: In (0, 1).

  Raises:
    TypeError: If an argument is not a number.
    ValueError: If it is out of range.
  """
  epsilon = argument_checks.check_number('epsilon', epsilon)
  if epsilon < 0:
    raise ValueError(f'`epsilon` must not be negative, found {epsilon:g}.')
  epsilon = max(epsilon, ranges.MIN_TARGET_EPSILON)
  epsilon = min(epsilon, ranges.MAX_TARGET_EPSILON)
  noise = gaussian_mechanism.gaussian_noise_multiplier(epsilon, delta)
  return min(1 / noise, _LARGEST_MU)
