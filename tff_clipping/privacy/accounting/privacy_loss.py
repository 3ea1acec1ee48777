"""Accounting by privacy loss distributions (PLD).

A pair of distributions (A, B) dominates a mechanism if, for every epsilon, also
below 0, its hockey-stick divergence H(epsilon) = sup_S A(S) - e^epsilon B(S) is
at least that of the mechanism's outputs on any two neighbours. Pairs that
dominate each round, composed, dominate all rounds, also when later rounds
depend on earlier ones (Zhu, Dong, Wang, "Optimal Accounting of Differential
Privacy via Characteristic Function", AISTATS 2022, Theorem 10). So each sampler
needs the curve H of one round; from there on, "Connect the Dots" (Doroshenko et
al., PETS 2022) turns it into a discrete pair that still dominates, and
`loss_composition` composes that.

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

Clients that keep something, as under SCAFFOLD, and Poisson sampling. What a
client sends then depends on its own earlier coins; the other clients depend on
it through releases alone. The charge stays as it is. Without the client a round
releases N_0; with it, w_1 N_v + w_0 N_0, where w are the probabilities of its
coin, and v, of norm at most the sensitivity, is a function of the releases and
of its coins so far, h. Write H_k(P|Q) for the integral of max(P - k Q, 0), and
A|B for the pair that dominates the rounds from t + 1 on.
  * Claim: whatever h is, H_k of the rounds from t on is at most that of a
    Poisson-sampled Gaussian and A|B. The proof goes backwards over the rounds.
  * Given the release y of round t, the later rounds with the client are a
    mixture of their laws P_b for h with the coin b = 0 or 1, in proportions
    p_b that y gives; without the client they are P. With r the ratio of the
    densities of y, H_k is the integral over
    N_0(y) r H_{k/r}(p_0 P_0 + p_1 P_1 | P).
  * H is convex in its first argument, so the last factor is at most the mean of
    H_{k/r}(P_b | P), and by assumption at most H_{k/r}(A|B). What is left is
    H_k of the round and A|B together, for one v. The removal of the client
    exchanges the arguments, and H is convex in the second one too.
  * Under replace-one both neighbours have coins that nobody sees, and the step
    to a mixture on one side alone fails.

One secret round of each epoch: see `random_allocation`.

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
    Composing it with itself assumes that the worst pair for one round stays
    the worst for many, which is false in general (Lebeda,
    Regehr, Kamath, Steinke, "Avoiding Pitfalls for Privacy Accounting of
    Subsampled Mechanisms under Composition", 2024): for q = 0.95, s = 0.5 and
    two rounds it gives delta = 0.8047 at epsilon = 0, while two neighbours
    among clients that otherwise send zeros have 0.8100. So it is a figure to
    compare with others, never one to plan with.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import special

from tff_clipping.privacy.accounting import (
  gaussian_mechanism,
  loss_composition,
  random_allocation,
  sampled_gaussian,
)

# The widest grid cell. The epsilons are about 1e-5 of them larger than with the
# 1e-4 of dp_accounting, and come four times as fast.
_DEFAULT_INTERVAL = 4e-4

# Cells are narrower for rounds that hardly lose more than a cell, and wider
# where one round or all of them would have more points than this.
_MAX_ROUND_POINTS = 2**17
_MAX_SUM_POINTS = 2**19

# Cells are never wider than this: what they would give says nothing.
_WIDEST_INTERVAL = 1.0

# Larger epsilons are not told apart from infinity: their exponentials are near
# the end of the range of doubles. They promise nothing anyway.
_LARGEST_EPSILON = 600.0

# Log of the probability beyond which a loss counts as infinite, per round.
_LOG_TAIL_MASS = -80.0


class PldCost:
  """The cost of rounds together, by the composition of dominating pairs."""

  def __init__(self, parts: sampled_gaussian.Parts):
    """Takes rounds of one relation; the rounds of an epoch are one draw."""
    self._draws = [(one, one.count_epochs(count)) for one, count in parts]
    self._noise = gaussian_mechanism.compose_noise(parts)
    self._compose = functools.lru_cache(
      functools.partial(_compose, self._draws)
    )

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon of the parts; inf if no finite one is known."""
    if self._noise is not None:
      epsilon = gaussian_mechanism.gaussian_epsilon(self._noise, delta)
    else:
      epsilon = self._compute_worst(lambda loss: loss.compute_epsilon(delta))
    return epsilon if epsilon <= _LARGEST_EPSILON else math.inf

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of the parts at `epsilon`, in [0, 1]."""
    if epsilon > _LARGEST_EPSILON:
      return 1.0
    if self._noise is not None:
      return gaussian_mechanism.gaussian_delta(self._noise, epsilon)
    return min(
      self._compute_worst(lambda loss: loss.compute_delta(epsilon)), 1.0
    )

  def _compute_worst(
    self, compute: Callable[[loss_composition.ComposedLoss], float]
  ) -> float:
    """Returns the larger figure of both directions; inf for large losses."""
    directions: tuple[str, ...] = ('remove', 'add')
    if any(one.sampling == 'fixed_size' for one, _ in self._draws):
      directions = ('both',)
    try:
      interval = _choose_interval(self._draws)
    except random_allocation.LossTooLargeError:
      return math.inf
    while interval <= _WIDEST_INTERVAL:
      try:
        return max(
          compute(self._compose(interval, direction))
          for direction in directions
        )
      except loss_composition.TooManyPointsError:
        interval *= 2  # Any width gives a bound.
    return math.inf


def compute_gaussian_delta(
  noise_over_sensitivity: float, epsilon: float | np.ndarray
) -> np.ndarray:
  """Returns the delta G of one Gaussian release at any real epsilon."""
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

  The epsilons may be below 0.

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
  """Returns H of N(0, s^2) against (1-q) N(0, s^2) + q N(1, s^2).

  For epsilon >= 0, without the cancellation of 1 - e^epsilon + e^epsilon
  H(-epsilon): the loss at x is -log(1-q + q e^((x - 1/2)/s^2)), which is above
  epsilon left of a cut, and the integral up to there is a Gaussian's.
  """
  # log((e^-epsilon - (1-q))/q): the log ratio of the Gaussians at the cut.
  with np.errstate(divide='ignore', invalid='ignore'):
    log_ratio = np.log1p(np.expm1(-epsilon) / prob)
  reachable = np.isfinite(log_ratio)
  log_ratio = np.where(reachable, log_ratio, 0)
  delta = (prob - np.expm1(epsilon) * (1 - prob)) * compute_gaussian_delta(
    noise, -log_ratio
  )
  return np.where(reachable, np.clip(delta, 0, 1), 0)


def _compose(
  draws: sampled_gaussian.Parts, interval: float, direction: str
) -> loss_composition.ComposedLoss:
  """Returns the losses of discrete pairs that dominate rounds or epochs."""
  losses = []
  for one, count in draws:
    noise, num_rounds = one.noise_over_sensitivity, one.rounds_per_epoch
    if num_rounds > 1:
      loss = random_allocation.build_losses(
        noise, num_rounds, interval, direction
      )
    else:
      loss = _build_loss(noise, one.sampling_prob, interval, direction)
    losses.append((loss, count))
  return loss_composition.ComposedLoss(tuple(losses))


def _choose_interval(draws: sampled_gaussian.Parts) -> float:
  """Returns the width of a grid cell; inf if losses are too large for any."""
  mean = variance = finest = 0.0
  narrowest = _DEFAULT_INTERVAL
  for one, count in draws:
    mean_of_round, stddev, largest = _measure_losses(one)
    mean += count * mean_of_round
    variance += count * stddev**2
    narrowest = min(narrowest, stddev / 100)
    finest = max(finest, 2 * largest / _MAX_ROUND_POINTS)
  spread = math.sqrt(variance)
  if mean - 12 * spread > _LARGEST_EPSILON:
    return math.inf
  # Any width gives a bound. A width well below the spread of one round's loss
  # gives a tight one, and the number of cells bounds time and memory.
  finest = max(24 * spread / _MAX_SUM_POINTS, finest)
  return max(narrowest, finest)


def _measure_losses(
  one: sampled_gaussian.SampledGaussian,
) -> tuple[float, float, float]:
  """Returns about the loss's mean and deviation, and its largest size.

  Only to choose a grid: the larger ones of removal and addition, by a sum.
  """
  noise, prob = one.noise_over_sensitivity, one.sampling_prob
  if one.rounds_per_epoch > 1:
    return random_allocation.measure_losses(noise, one.rounds_per_epoch)
  _, largest = _bound_losses(noise, prob, 'both')
  outputs = np.linspace(-10, 10, 2001)
  weights = np.exp(-0.5 * outputs**2)
  # With the client left out, and with it in the cohort.
  log_ratios = [(noise * outputs + x - 0.5) / noise**2 for x in (0, 1)]
  losses = [_compute_loss(prob, each) for each in log_ratios]
  out_mean, in_mean = (np.average(each, weights=weights) for each in losses)
  out_square, in_square = (
    np.average(each**2, weights=weights) for each in losses
  )
  mean = (1 - prob) * out_mean + prob * in_mean
  square = max((1 - prob) * out_square + prob * in_square, out_square)
  return float(mean), math.sqrt(square), largest


def _bound_losses(
  noise: float, prob: float, direction: str
) -> tuple[float, float]:
  """Returns the losses that one round exceeds with negligible probability."""
  tail = -noise * special.ndtri_exp(_LOG_TAIL_MASS - math.log(2))
  log_ratio = (tail + 0.5) / noise**2
  largest = float(_compute_loss(prob, log_ratio))
  smallest = float(_compute_loss(prob, -log_ratio))
  if direction == 'remove':
    return smallest, largest
  if direction == 'add':
    return -largest, -smallest
  return -largest, largest


def _compute_loss(prob: float, log_ratio: float | np.ndarray) -> np.ndarray:
  """Returns log(1 - q + q e^log_ratio), without overflow."""
  log_ratio = np.asarray(log_ratio, dtype=float)
  if prob == 1:  # Of a ratio near 0, expm1 leaves nothing.
    return log_ratio
  large = np.maximum(log_ratio, 1)
  return np.where(
    log_ratio > 1,
    large + np.log(prob + (1 - prob) * np.exp(-large)),
    np.log1p(prob * np.expm1(np.minimum(log_ratio, 1))),
  )


@functools.lru_cache(maxsize=8)
def _build_loss(
  noise: float, prob: float, interval: float, direction: str
) -> loss_composition.DiscreteLoss:
  """Returns a discrete pair that dominates one round, as its losses.

  The direction is 'remove' (mixture against Gaussian), 'add' (the same
  exchanged), or 'both' (the symmetric curve that holds for either).
  """
  smallest, largest = _bound_losses(noise, prob, direction)
  low = min(math.floor(smallest / interval), -1)
  high = max(math.ceil(largest / interval), 1)
  sampled = functools.partial(compute_sampled_delta, noise, prob)
  exchanged = functools.partial(_compute_exchanged_delta, noise, prob)
  above, below = {
    'remove': (sampled, exchanged),
    'add': (exchanged, sampled),
    'both': (sampled, sampled),
  }[direction]
  upper, infinity_mass = _connect_dots(above, high, interval)
  # A loss below 0 is one above 0 of the exchanged pair, where it is likelier.
  lower, _ = _connect_dots(below, -low, interval)
  lower *= np.exp(-np.arange(1, -low + 1) * interval)
  rest = max(1 - upper.sum() - lower.sum() - infinity_mass, 0.0)
  return loss_composition.DiscreteLoss(
    interval, low, np.concatenate([lower[::-1], [rest], upper]), infinity_mass
  )


def _connect_dots(
  curve: Callable[[np.ndarray], np.ndarray], size: int, interval: float
) -> tuple[np.ndarray, float]:
  """Returns the masses above 0 of the pair whose curve is linear between dots.

  Linear in e^epsilon, through `curve` at 0 and at `size` epsilons above it that
  are `interval` apart.

  Source: Doroshenko et al., PETS 2022, Algorithm 1.
  """
  deltas = np.clip(curve(np.arange(size + 1) * interval), 0, 1)
  # Rounding may break the order by an ulp; a larger delta keeps the bound.
  deltas = np.maximum.accumulate(deltas[::-1])[::-1]
  steps = np.diff(deltas)
  masses = np.empty(size)
  masses[:-1] = (steps[1:] - math.exp(interval) * steps[:-1]) / math.expm1(
    interval
  )
  masses[-1] = steps[-1] / math.expm1(-interval)
  # So may the convexity.
  return np.maximum(masses, 0.0), float(deltas[-1])
