"""Accounting by Renyi differential privacy (RDP), with dp_accounting.

The divergences of Poisson sampling are computed here: the series that
dp_accounting sums for fractional orders converges too slowly, and its versions
differ in what they do then. With s = noise over sensitivity and q the sampling
probability, the divergence of order a is log(A) / (a - 1) with

  A = E[(1 - q + q e^((2x - 1) / (2s^2)))^a],  x ~ N(0, s^2).

Noise in integers. Let the noise be a discrete Gaussian of parameter sigma on
the lattice Z^d, and an update an integer vector v. The bound for fixed-size
cohorts is made of moments of whole orders of three neighbours, such as

  sum_x N(x) (N(x - v) / N(x))^k = e^(k (k - 1) |v|^2 / (2 sigma^2)),

in which k v is a point of the lattice, by which its sum can be shifted: they
are those of continuous noise. Between whole orders the logarithm of a moment is
convex, so that it is at most what lies on the line between its neighbours, as
the bound has it. Where all clients take part, the divergence of any order is at
most that of continuous noise (Canonne et al., Proposition 5). Poisson sampling
is charged for continuous noise alone.

Sources: Mironov, "Renyi Differential Privacy", 2017; Mironov, Talwar, Zhang,
"Renyi Differential Privacy of the Sampled Gaussian Mechanism", 2019 (Poisson);
Wang, Balle, Kasiviswanathan, "Subsampled Renyi Differential Privacy and
Analytical Moments Accountant", AISTATS 2019, Theorem 27 (fixed-size cohorts);
Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020 (arXiv 2004.00010), Proposition 12 (from RDP to epsilon and delta).
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import rdp
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import special

from tff_clipping.privacy.accounting import sampled_gaussian

# The orders of dp_accounting.
DEFAULT_ORDERS = tuple(float(order) for order in rdp.RdpAccountant().orders)

# The best order is searched for among these first: between 63 and 512, an order
# of fixed-size cohorts takes a time that is quadratic in the order.
_FIRST_ORDERS = tuple(
  order
  for order in DEFAULT_ORDERS
  if order in (1.1, 1.3, 1.6, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63, 512, 1024)
)
_LAST_CHEAP_ORDER = 63

# A round's divergence is a difference of numbers near 1, and comes out wrong by
# up to about 2e-12, sometimes below 0. It is raised to this, so that an epsilon
# made of rounding errors is never too small.
_DIVERGENCE_FLOOR = 1e-11


class RenyiCost:
  """The cost of rounds together, by Renyi divergences, which add up."""

  def __init__(self, parts: sampled_gaussian.Parts):
    """Takes rounds of one relation; integer noise too, but for 'poisson'."""
    self._parts = tuple(parts)

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon of the parts; inf if no finite one is known.

    Every order gives a bound. The search is around the best of a few orders.

    Raises:
      ValueError: If the accountant has no answer for a noise multiplier.
    """
    epsilon, best = self._compute_epsilon(_FIRST_ORDERS, delta)
    if not math.isfinite(epsilon):
      return self._compute_epsilon(DEFAULT_ORDERS, delta)[0]
    place = _FIRST_ORDERS.index(best)
    low = _FIRST_ORDERS[max(place - 1, 0)]
    high = _FIRST_ORDERS[min(place + 1, len(_FIRST_ORDERS) - 1)]
    if high > _LAST_CHEAP_ORDER:
      low, high = min(low, _LAST_CHEAP_ORDER), DEFAULT_ORDERS[-1]
    near = tuple(order for order in DEFAULT_ORDERS if low <= order <= high)
    return self._compute_epsilon(near, delta)[0]

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of the parts at `epsilon`, at most 1."""
    orders = np.array(DEFAULT_ORDERS)
    divergences = self._add_divergences(DEFAULT_ORDERS)
    finite = np.isfinite(divergences)
    if not finite.any():
      return 1.0
    delta, _ = rdp_privacy_accountant.compute_delta(
      orders[finite], divergences[finite], epsilon
    )
    return float(delta) if math.isfinite(delta) else 1.0

  def _compute_epsilon(
    self, orders: tuple[float, ...], delta: float
  ) -> tuple[float, float]:
    """Returns the least epsilon of some orders, and its order."""
    epsilon, order = rdp_privacy_accountant.compute_epsilon(
      np.array(orders), self._add_divergences(orders), delta
    )
    return float(epsilon), float(order)

  def _add_divergences(self, orders: tuple[float, ...]) -> np.ndarray:
    """Returns bounds on the divergences of all parts together."""
    return np.sum(
      [
        count * _bound_divergences(mechanism, orders)
        for mechanism, count in self._parts
      ],
      axis=0,
    )


@functools.lru_cache(maxsize=64)  # A plan asks what its search has asked.
def _bound_divergences(
  mechanism: sampled_gaussian.SampledGaussian, listed: tuple[float, ...]
) -> np.ndarray:
  """Returns bounds on the divergences of one round."""
  orders = np.array(listed)
  if mechanism.sampling == 'poisson':
    divergences = compute_poisson_divergences(
      mechanism.noise_over_sensitivity, mechanism.sampling_prob, orders
    )
  else:
    divergences = _compute_accountant_divergences(mechanism, orders)
  # The bound for fixed-size cohorts is loose where it amplifies little, and can
  # exceed the divergence with all clients in every round. A sampled round is a
  # mixture over cohorts, so it never costs more than that (Renyi divergences
  # are quasi-convex).
  unsampled = orders / (2 * mechanism.noise_over_sensitivity**2)
  # A NaN would be taken for the smallest epsilon: it is no bound at all.
  divergences = np.nan_to_num(divergences, nan=np.inf, posinf=np.inf)
  return np.clip(divergences, _DIVERGENCE_FLOOR, unsampled)


def compute_poisson_divergences(
  noise_over_sensitivity: float,
  sampling_prob: float,
  orders: Sequence[float] | np.ndarray,
) -> np.ndarray:
  """Returns one round's divergences under Poisson sampling, add or remove one.

  Args:
    noise_over_sensitivity: The s above.
    sampling_prob: The q above, in (0, 1].
    orders: The orders, each above 1.
  """
  if sampling_prob == 1:
    return np.array(orders) / (2 * noise_over_sensitivity**2)
  moments = []
  for order in orders:
    compute = _sum_moment if order == int(order) else _integrate_moment
    moments.append(compute(noise_over_sensitivity, sampling_prob, order))
  return np.array(moments) / (np.array(orders) - 1)


def _sum_moment(noise: float, prob: float, order: float) -> float:
  """Returns log(A) of an integer order, by the binomial theorem."""
  k = np.arange(order + 1)
  log_binomials = special.gammaln([order + 1]) - (
    special.gammaln(k + 1) + special.gammaln(order - k + 1)
  )
  log_weights = k * math.log(prob) + (order - k) * math.log1p(-prob)
  return special.logsumexp(
    log_binomials + log_weights + k * (k - 1) / (2 * noise**2)
  )


def _integrate_moment(noise: float, prob: float, order: float) -> float:
  """Returns log(A) of any order, by the trapezoidal rule.

  Over x / s the integrand is analytic up to a distance of pi s from the real
  line, where 1 - q + q e^... has its zeros, and otherwise as smooth as a
  Gaussian: with this step the rule's error is below e^-37. The logarithm of the
  integrand rises below 0 and falls above a / s at least as a Gaussian's, so
  what lies 10 standard deviations outside is negligible too.
  """
  step = min(0.25, 0.5 * noise)
  most = order / noise + 10
  points = np.arange(math.floor(-10 / step), math.ceil(most / step) + 1) * step
  log_ratios = (points - 0.5 / noise) / noise
  log_integrand = order * np.logaddexp(
    math.log1p(-prob), math.log(prob) + log_ratios
  )
  log_integrand -= points**2 / 2
  return special.logsumexp(log_integrand) + math.log(
    step / math.sqrt(2 * math.pi)
  )


def _compute_accountant_divergences(
  mechanism: sampled_gaussian.SampledGaussian, orders: np.ndarray
) -> np.ndarray:
  """Returns the divergences of one round by dp_accounting."""
  try:
    # It takes logarithms of 0 on its way.
    with np.errstate(all='ignore'):
      accountant = rdp.RdpAccountant(
        orders,
        neighboring_relation=mechanism.relation.accountant_relation,
      ).compose(mechanism.dp_event)
  except (ArithmeticError, ValueError) as error:
    raise ValueError(
      'The Renyi accountant has no answer for `noise_multiplier` '
      f'{mechanism.noise_multiplier:g} ({error}).'
    ) from error
  return accountant.rdp
