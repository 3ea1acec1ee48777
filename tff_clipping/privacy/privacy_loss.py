"""Accounting by privacy loss distributions (PLD).

A pair of distributions (A, B) dominates a mechanism if, for every epsilon, also
below 0, its hockey-stick divergence H(epsilon) = sup_S A(S) - e^epsilon B(S) is
at least that of the mechanism's outputs on any two neighbours. Pairs that
dominate each round, composed, dominate all rounds, also when later rounds
depend on earlier ones (Zhu, Dong, Wang, "Optimal Accounting of Differential
Privacy via Characteristic Function", AISTATS 2022, Theorem 10). So each sampler
needs the curve H of one round; from there on, "Connect the Dots" (Doroshenko et
al., PETS 2022) turns it into a discrete pair that still dominates, and
dp_accounting composes that.

With s = noise over sensitivity and q the sampling probability, a Gaussian round
without sampling has, for every real epsilon (Balle and Wang, "Improving the
Gaussian Mechanism for Differential Privacy", ICML 2018, Theorem 8),

  G(epsilon) = Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s).

Poisson sampling, add or remove one. The pairs are the mixture
(1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2), for the removal of a client,
and the same pair exchanged, for the addition. The first has
H(epsilon) = q G(log(1 + (e^epsilon - 1)/q)) where e^epsilon > 1-q, else
1 - e^epsilon; exchanging a pair gives 1 - e^epsilon + e^epsilon H(-epsilon).
Two neighbours differ in the same direction in all rounds, so each pair is
composed with itself, and the larger epsilon counts.

Fixed-size cohorts, replace one: what holds, and why.
  * Amplification. If a mechanism on a cohort has the curve G under replace-one,
    then on a uniform cohort drawn without replacement it has at most
    H(epsilon) = q G(log(1 + (e^epsilon - 1)/q)) for epsilon >= 0 (Balle,
    Barthe, Gaboardi, "Privacy Amplification by Subsampling", NeurIPS 2018,
    Theorem 9; Zhu et al. 2022, Proposition 30, first part).
  * Below 0. Replace-one is symmetric: both orders of two neighbours count, so
    the curve for epsilon < 0 is 1 - e^epsilon + e^epsilon H(-epsilon) of the
    same H (Zhu et al., Proposition 30, second part). The two parts together are
    convex in e^epsilon, so they are the curve of some pair, and that pair
    dominates a round. This curve is composed here ('pld'): it is a guarantee.
    In the words of f-DP it is the symmetrised min(f_q, inverse of f_q)** of
    Dong, Roth, Su, "Gaussian Differential Privacy", JRSS B 2022, Section 4.
  * What does not hold. The mixture against N(0, s^2), one direction alone, has
    the right H for epsilon >= 0 only. It is the worst pair of neighbours for
    one round: all other clients send the opposite of what the client sends.
    Composing it with itself ('pld_one_sided') assumes that the worst pair for
    one round stays the worst for many, which is false in general (Lebeda,
    Regehr, Kamath, Steinke, "Avoiding Pitfalls for Privacy Accounting of
    Subsampled Mechanisms under Composition", 2024): for q = 0.95, s = 0.5 and
    two rounds it gives delta = 0.8047 at epsilon = 0, while two neighbours
    among clients that otherwise send zeros have 0.8100. For the small q and
    delta of training no neighbours are known that exceed it, but nothing proves
    that there are none. So it is a figure to compare with others, never one to
    plan with. The proved figure needs 4 to 9 % more noise at N = 1920, P = 80,
    T from 50 to 1000 and epsilon = 1.5.
"""

import functools
import math

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from scipy import special

from tff_clipping.privacy import sampled_gaussian

# The widest grid cell. The epsilons are about 1e-5 of them larger than with the
# 1e-4 of dp_accounting, and come four times as fast.
_DEFAULT_INTERVAL = 4e-4

# Cells are narrower for rounds that hardly lose more than a cell, and wider
# where the composed distribution would have more points than this.
_MAX_POINTS = 2**18

# The composition is a Fourier transform of doubles: each delta comes out wrong
# by up to about 1e-12. It is counted against the user, and deltas that it could
# swamp are refused.
_ROUNDING_ERROR = 1e-12
MIN_DELTA = 1e-9

# The least mass of a grid cell.
_LEAST_MASS = 1e-30

# Larger epsilons are not told apart from infinity: their exponentials are near
# the end of the range of doubles. They promise nothing anyway.
_LARGEST_EPSILON = 600.0

# Log of the probability beyond which a loss counts as infinite, per round.
_LOG_TAIL_MASS = -50.0


class PrivacyLossRounds:
  """What equal rounds cost together, by a dominating pair that is composed."""

  def __init__(
    self,
    mechanism: sampled_gaussian.SampledGaussian,
    *,
    one_sided: bool = False,
    coarseness: float = 1,
  ):
    """Prepares the accountant; the work is done for each number of rounds.

    Args:
      mechanism: One round.
      one_sided: For fixed-size cohorts: compose one direction of the worst pair
        of a single round. It is not a guarantee, see the module's docstring.
      coarseness: How many times wider than usual the grid's cells are. A coarse
        grid is fast, and its epsilon is a bound too, a little larger.

    Raises:
      ValueError: If `one_sided` is asked for another sampler.
    """
    if one_sided and mechanism.sampling != 'fixed_size':
      raise ValueError(
        "`accountant` can be 'pld_one_sided' only where `sampling` is "
        f"'fixed_size', found {mechanism.sampling!r}."
      )
    self._mechanism = mechanism
    self._one_sided = one_sided
    self._coarseness = coarseness

  def compute_epsilon(self, num_rounds: int, delta: float) -> float:
    """Returns the epsilon of `num_rounds` rounds at `delta`; inf if unknown.

    Raises:
      ValueError: If `delta` is below MIN_DELTA.
    """
    if delta < MIN_DELTA:
      raise ValueError(
        f'`target_delta` must be at least {MIN_DELTA:g} for `accountant` '
        f"'pld', whose rounding errors are near, found {delta:g}: use 'rdp'."
      )
    distribution = self._compose(num_rounds)
    if distribution is None:
      return math.inf
    epsilon = distribution.get_epsilon_for_delta(delta - _ROUNDING_ERROR)
    return float(epsilon) if epsilon <= _LARGEST_EPSILON else math.inf

  def compute_delta(self, num_rounds: int, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at `epsilon`, in [0, 1]."""
    if epsilon > _LARGEST_EPSILON:
      return 1.0
    return float(self.compute_deltas(num_rounds, np.array([epsilon]))[0])

  def compute_deltas(self, num_rounds: int, epsilons: np.ndarray) -> np.ndarray:
    """Returns the deltas at epsilons up to 600, in the time of a single one."""
    distribution = self._compose(num_rounds)
    if distribution is None:
      return np.ones(len(epsilons))
    deltas = np.asarray(distribution.get_delta_for_epsilon(list(epsilons)))
    return np.clip(deltas + _ROUNDING_ERROR, 0, 1)

  @functools.lru_cache(maxsize=2)  # noqa: B019 (the instance is small)
  def _compose(
    self, num_rounds: int
  ) -> privacy_loss_distribution.PrivacyLossDistribution | None:
    """Returns the loss of all rounds, None if it is too large for a grid."""
    noise = self._mechanism.noise_over_sensitivity
    prob = self._mechanism.sampling_prob
    if prob == 1:
      # Gaussian rounds without sampling compose into one, exactly.
      noise /= math.sqrt(num_rounds)
      num_rounds = 1
    grid = _choose_grid(noise, prob, num_rounds, self._coarseness)
    if grid is None:
      return None
    interval, least_size = grid
    directions = {
      'poisson': ('remove', 'add'),
      'fixed_size': ('remove',) if self._one_sided else ('both',),
      'none': ('both',),
    }[self._mechanism.sampling]
    if prob == 1:
      directions = ('both',)
    one_round = privacy_loss_distribution.PrivacyLossDistribution(
      *(
        _build_pmf(noise, prob, interval, each, least_size)
        for each in directions
      )
    )
    return one_round.self_compose(num_rounds)


def compute_gaussian_delta(
  noise_over_sensitivity: float, epsilon: float | np.ndarray
) -> np.ndarray:
  """Returns the delta of one Gaussian release at any real epsilon.

  Args:
    noise_over_sensitivity: Standard deviation of the noise over the most that
      one client can change.
    epsilon: One or more epsilons, also below 0.

  Source: Balle and Wang, ICML 2018, Theorem 8.
  """
  epsilon = np.asarray(epsilon, dtype=float)
  half = 0.5 / noise_over_sensitivity
  shift = epsilon * noise_over_sensitivity
  delta = special.ndtr(half - shift) - np.exp(
    epsilon + special.log_ndtr(-half - shift)
  )
  return np.clip(delta, np.maximum(0, -np.expm1(np.minimum(epsilon, 0))), 1)


def compute_sampled_delta(
  noise_over_sensitivity: float,
  sampling_prob: float,
  epsilon: float | np.ndarray,
) -> np.ndarray:
  """Returns H(epsilon) of (1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2).

  For a single round it is the smallest delta at epsilon >= 0: of Poisson
  sampling under add or remove one, and of fixed-size cohorts under replace-one.

  Args:
    noise_over_sensitivity: The s above.
    sampling_prob: The q above, in (0, 1].
    epsilon: One or more epsilons, also below 0.

  Source: Balle, Barthe, Gaboardi, NeurIPS 2018, Theorems 8 and 9.
  """
  epsilon = np.asarray(epsilon, dtype=float)
  # log(1 + (e^epsilon - 1)/q), without overflow for a large epsilon.
  with np.errstate(divide='ignore', invalid='ignore'):
    inner = np.where(
      epsilon > 1,
      epsilon
      + np.log1p(-(1 - sampling_prob) * np.exp(-np.maximum(epsilon, 1)))
      - math.log(sampling_prob),
      np.log1p(np.expm1(np.minimum(epsilon, 1)) / sampling_prob),
    )
  amplified = np.isfinite(inner)
  delta = sampling_prob * compute_gaussian_delta(
    noise_over_sensitivity, np.where(amplified, inner, 0)
  )
  least = np.maximum(0, -np.expm1(np.minimum(epsilon, 0)))
  return np.maximum(np.where(amplified, delta, least), least)


def _compute_exchanged_delta(
  noise: float, prob: float, epsilon: np.ndarray
) -> np.ndarray:
  """Returns H of N(0, s^2) against (1-q) N(0, s^2) + q N(1, s^2)."""
  # Not 1 - e^epsilon + e^epsilon H(-epsilon), which cancels in the tail. The
  # loss at x is -log(1-q + q e^((x - 1/2)/s^2)): above epsilon left of a cut.
  least = np.maximum(0, -np.expm1(np.minimum(epsilon, 0)))
  with np.errstate(divide='ignore', invalid='ignore'):
    log_ratio = np.where(
      -epsilon > 1,
      -epsilon
      + np.log1p(-(1 - prob) * np.exp(-np.maximum(-epsilon, 1)))
      - math.log(prob),
      np.log1p(np.expm1(np.minimum(-epsilon, 1)) / prob),
    )
  reachable = np.isfinite(log_ratio)
  cut = 0.5 + noise**2 * np.where(reachable, log_ratio, 0)
  upper = special.ndtr(cut / noise)
  log_lower = np.logaddexp(
    special.log_ndtr(cut / noise) + math.log1p(-prob),
    special.log_ndtr((cut - 1) / noise) + math.log(prob),
  )
  with np.errstate(over='ignore'):
    delta = upper - np.exp(epsilon + log_lower)
  return np.clip(np.where(reachable, delta, least), least, 1)


def _choose_grid(
  noise: float, prob: float, num_rounds: int, coarseness: float
) -> tuple[float, int] | None:
  """Returns the width of a grid cell, and the least cells of one round.

  None where the losses are too large for any grid.
  """
  mean, stddev = _measure_losses(noise, prob)
  _, largest = _bound_losses(noise, prob, 'both')
  spread = math.sqrt(num_rounds) * stddev
  if num_rounds * mean - 12 * spread > _LARGEST_EPSILON:
    return None
  # Any width gives a bound. A width well below the spread of one round's loss
  # gives a tight one, and the number of cells bounds time and memory.
  finest = (24 * spread + 2 * largest) / _MAX_POINTS
  interval = max(min(_DEFAULT_INTERVAL, stddev / 100), finest) * coarseness
  # dp_accounting bounds the length of the result by Chernoff bounds whose
  # orders are 1 to 20 over the length of one round: empty cells around a short
  # one save it from a result a hundred times too long.
  return interval, min(int(spread / interval), 2 * _MAX_POINTS)


def _measure_losses(noise: float, prob: float) -> tuple[float, float]:
  """Returns about the mean and standard deviation of one round's loss.

  Only to choose a grid: the larger ones of removal and addition, by a sum.
  """
  outputs = np.linspace(-10 * noise, 1 + 10 * noise, 4001)
  gaussian = np.exp(-0.5 * (outputs / noise) ** 2)
  shifted = np.exp(-0.5 * ((outputs - 1) / noise) ** 2)
  log_ratio = (outputs - 0.5) / noise**2
  losses = np.logaddexp(
    math.log1p(-prob) if prob < 1 else -np.inf, math.log(prob) + log_ratio
  )
  mixture = (1 - prob) * gaussian + prob * shifted
  mean = np.average(losses, weights=mixture)
  square = max(
    np.average(losses**2, weights=weights) for weights in (mixture, gaussian)
  )
  return float(mean), math.sqrt(square)


def _bound_losses(
  noise: float, prob: float, direction: str
) -> tuple[float, float]:
  """Returns the losses that one round exceeds with negligible probability."""
  tail = -noise * special.ndtri_exp(_LOG_TAIL_MASS - math.log(2))
  log_ratio = (tail + 0.5) / noise**2
  largest = math.log(prob) + np.logaddexp(
    math.log1p(-prob) - math.log(prob) if prob < 1 else -np.inf, log_ratio
  )
  smallest = np.logaddexp(
    math.log1p(-prob) if prob < 1 else -np.inf, math.log(prob) - log_ratio
  )
  if direction == 'remove':
    return smallest, largest
  if direction == 'add':
    return -largest, -smallest
  return -largest, largest


def _build_pmf(
  noise: float,
  prob: float,
  interval: float,
  direction: str,
  least_size: int = 2,
) -> pld_pmf.PLDPmf:
  """Returns a discrete pair that dominates one round, as its losses.

  Args:
    noise: Noise over sensitivity.
    prob: Sampling probability.
    interval: Width of a grid cell.
    direction: 'remove' (mixture against Gaussian), 'add' (the same exchanged),
      or 'both' (the symmetric curve that holds for either).
    least_size: The least number of cells; those beyond the losses stay empty.
  """
  smallest, largest = _bound_losses(noise, prob, direction)
  low = math.floor(smallest / interval)
  high = max(math.ceil(largest / interval), low + 1)
  padding = max(0, least_size - (high - low) + 1) // 2
  low, high = low - padding, high + padding
  epsilons = np.arange(low, high + 1) * interval
  if direction == 'remove':
    deltas = compute_sampled_delta(noise, prob, epsilons)
  elif direction == 'add':
    deltas = _compute_exchanged_delta(noise, prob, epsilons)
  else:
    deltas = compute_sampled_delta(noise, prob, np.abs(epsilons))
    below = np.exp(np.minimum(epsilons, 0))
    deltas = np.where(epsilons < 0, 1 - below * (1 - deltas), deltas)
  # Rounding may break the order by an ulp; a larger delta keeps the bound.
  deltas = np.clip(np.maximum.accumulate(deltas[::-1])[::-1], 0, 1)
  # Dense at once: dp_accounting's builder makes short ones sparse, and those
  # raise their size to the power of the rounds to see whether to become dense.
  return pld_pmf.DensePLDPmf(
    interval,
    low,
    _connect_dots(deltas, interval),
    infinity_mass=deltas[-1],
    pessimistic_estimate=True,
  )


def _connect_dots(deltas: np.ndarray, interval: float) -> np.ndarray:
  """Returns the masses of the pair whose curve is linear between the dots.

  Linear in e^epsilon, through `deltas` at epsilons that are `interval` apart.

  Source: Doroshenko et al., PETS 2022, Algorithm 1.
  """
  steps = np.diff(deltas)
  masses = np.empty_like(deltas)
  masses[0] = 1 - deltas[0] + steps[0] / math.expm1(interval)
  masses[1:-1] = (steps[1:] - math.exp(interval) * steps[:-1]) / math.expm1(
    interval
  )
  masses[-1] = steps[-1] / math.expm1(-interval)
  # More mass is on the safe side. Without it, masses of 0 or near the least
  # double make SciPy's logsumexp, with which the result's length is bounded,
  # overflow in some of its versions.
  return np.maximum(masses, _LEAST_MASS)
