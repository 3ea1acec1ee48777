"""Accounting by Renyi differential privacy (RDP), with dp_accounting.

Sources: Mironov, "Renyi Differential Privacy", 2017; Mironov, Talwar, Zhang,
"Renyi Differential Privacy of the Sampled Gaussian Mechanism", 2019 (Poisson);
Wang, Balle, Kasiviswanathan, "Subsampled Renyi Differential Privacy and
Analytical Moments Accountant", AISTATS 2019, Theorem 27 (fixed-size cohorts);
Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020, Proposition 12 (from RDP to epsilon and delta).
"""

import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import rdp
from dp_accounting.rdp import rdp_privacy_accountant

from tff_clipping.privacy import sampled_gaussian

# The orders of dp_accounting.
DEFAULT_ORDERS = [float(order) for order in rdp.RdpAccountant().orders]

# A round's divergence is a difference of numbers near 1, and comes out wrong by
# up to about 2e-12, sometimes below 0. It is raised to this, so that an epsilon
# made of rounding errors is never too small.
_DIVERGENCE_FLOOR = 1e-11


class RenyiRounds:
  """What equal rounds cost together, by Renyi divergences that add up."""

  def __init__(
    self,
    mechanism: sampled_gaussian.SampledGaussian,
    orders: Sequence[float] | None = None,
  ):
    """Computes the divergences of one round.

    Args:
      mechanism: One round.
      orders: The orders at which to bound it; by default the 156 of
        dp_accounting. Fewer are faster and give an epsilon at least as large.

    Raises:
      ValueError: If the accountant has no answer for this noise multiplier.
    """
    orders = DEFAULT_ORDERS if orders is None else [*orders]
    try:
      accountant = rdp.RdpAccountant(
        orders, neighboring_relation=mechanism.relation.accountant_relation
      ).compose(mechanism.dp_event)
    except (ArithmeticError, ValueError) as error:
      raise ValueError(
        'The Renyi accountant has no answer for `noise_multiplier` '
        f'{mechanism.noise_multiplier:g} ({error}).'
      ) from error
    self._orders = accountant.orders
    # The bound for fixed-size cohorts is loose where it amplifies little, and
    # can exceed the divergence with all clients in every round. A sampled round
    # is a mixture over cohorts, so it never costs more than that (Renyi
    # divergences are quasi-convex).
    unsampled = self._orders / (2 * mechanism.noise_over_sensitivity**2)
    # A NaN would be taken for the smallest epsilon: it is no bound at all.
    divergences = np.nan_to_num(accountant.rdp, nan=np.inf, posinf=np.inf)
    self._divergences = np.clip(divergences, _DIVERGENCE_FLOOR, unsampled)

  @property
  def orders(self) -> np.ndarray:
    """The orders at which the divergences are known."""
    return self._orders

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` rounds at `delta`; inf if unknown."""
    return self.compute_epsilon_and_order(num_rounds, delta)[0]

  def compute_epsilon_and_order(
    self, num_rounds: int, delta: float
  ) -> tuple[float, float]:
    """Returns the epsilon, and the order that gave it."""
    epsilon, order = rdp_privacy_accountant.compute_epsilon(
      self._orders, num_rounds * self._divergences, delta
    )
    return float(epsilon), float(order)

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at `epsilon`, at most 1."""
    divergences = num_rounds * self._divergences
    finite = np.isfinite(divergences)
    if not finite.any():
      return 1.0
    delta, _ = rdp_privacy_accountant.compute_delta(
      self._orders[finite], divergences[finite], epsilon
    )
    return float(delta) if math.isfinite(delta) else 1.0

  def compute_deltas(self, num_rounds: int, epsilons: np.ndarray) -> np.ndarray:
    """Returns the deltas of `num_rounds` rounds at epsilons, at most 1."""
    return np.array([self.compute_delta(num_rounds, e) for e in epsilons])
