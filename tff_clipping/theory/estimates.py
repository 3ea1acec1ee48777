"""What a run's update norms say: the bound by round, and which norm to clip to.

Theorem 1 bounds a client's update by η_l Q G. A run has the norms themselves,
so the estimates here put ||Δx_i|| in its place and need neither G nor L.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import argument_checks
from tff_clipping.theory import bounds, clipping_bias


class RoundTerms(NamedTuple):
  """The terms of Theorem 1 that change by round, [T] each.

  Their means over rounds are the terms of `bounds.Theorem1Terms`.
  """

  client_drift: np.ndarray
  sampling_noise: np.ndarray
  client_sampling: np.ndarray
  privacy_noise: np.ndarray
  clipping_bias: np.ndarray
  clipping_variance: np.ndarray


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """What the noise on the averaged update depends on, beside c.

  Attributes:
    noise_multiplier: z, the noise on the sum over the clipping norm.
    clients_per_round: P, the denominator of the mean.
    dimension: d, the number of the model's parameters.
    num_rounds: T, over how many rounds the noise averages out.
  """

  noise_multiplier: float
  clients_per_round: int
  dimension: int
  num_rounds: int = 1

  def __post_init__(self):
    argument_checks.check_non_negative(
      'noise_multiplier', self.noise_multiplier
    )
    argument_checks.check_integer(
      'clients_per_round', self.clients_per_round, at_least=1
    )
    argument_checks.check_integer('dimension', self.dimension, at_least=1)
    argument_checks.check_integer('num_rounds', self.num_rounds, at_least=1)

  def noise_norm(self, clipping_norm: float) -> float:
    """√(E||noise on the mean||²) = z c √d / P, in the unit of the update."""
    return (
      self.noise_multiplier
      * clipping_norm
      * math.sqrt(self.dimension)
      / self.clients_per_round
    )


class UpdateError(NamedTuple):
  """What clipping and noise do to the averaged update, relative to its size.

  Attributes:
    bias: A bound on the norm of what clipping changes beyond a common factor,
      over the mean norm of the updates.
    noise: The norm of one round's noise, over the same.
    averaged_noise: The same over √T. Biases of T rounds add up to T of them,
      their independent noises to √T.
    shrinkage: ᾱ, the common factor by which clipping shortens updates.
  """

  bias: float
  noise: float
  averaged_noise: float
  shrinkage: float

  @property
  def total(self) -> float:
    """√(bias² + averaged_noise²): the error of T rounds, if they agree."""
    return math.hypot(self.bias, self.averaged_noise)


def round_terms(
  problem: bounds.Problem,
  schedule: bounds.Schedule,
  factors: clipping_bias.ClippingFactors,
  *,
  noise_stddev: float = 0.0,
  constants: bounds.Constants = 'corrected',
) -> RoundTerms:
  """Theorem 1's terms of each round that was measured.

  Args:
    problem: The losses, as estimated.
    schedule: The step sizes and sizes.
    factors: The α of the rounds that were measured.
    noise_stddev: σ of the noise of each client.
    constants: Of the bound that holds, of the printed one or of its proof.

  Source: Theorem 1, before the mean over rounds.
  """
  terms = [
    bounds.theorem_1_terms(
      problem,
      schedule,
      noise_stddev=noise_stddev,
      factors=clipping_bias.ClippingFactors(
        actual[None], expected[None], mean[None]
      ),
      constants=constants,
    )
    for actual, expected, mean in zip(*factors, strict=True)
  ]
  return RoundTerms(
    *(
      np.array([getattr(term, field) for term in terms])
      for field in RoundTerms._fields
    )
  )


def update_error(
  update_norms: Sequence[ArrayLike], clipping_norm: float, mechanism: Mechanism
) -> UpdateError:
  """Bias and noise of the averaged update with a clipping norm c.

  Clipping turns the mean of Δx_i into that of α_i Δx_i, which is ᾱ times the
  mean and a rest of norm at most 1/P Σ_i |α_i − ᾱ| ||Δx_i||. ᾱ is a step size,
  which η_g can undo, and which enlarges the noise as well. So with n the mean
  norm of the updates

    bias = 1/P Σ_i |α_i − ᾱ| ||Δx_i|| / (ᾱ n),   noise = z c √d / (P ᾱ n),

  each a mean over rounds. As c grows the bias falls to 0 and the noise grows.
  The bias is a bound: rests that point in different directions cancel.

  Args:
    update_norms: For each round, the clients' ||Δx_i|| before clipping, at
      least one of them positive.
    clipping_norm: c.
    mechanism: The noise.

  Source: the decomposition in the proof of Theorem 1, with σ_l = 0.
  """
  errors = []
  if not len(update_norms):
    raise ValueError('`update_norms` must hold at least one round, found none.')
  for norms in update_norms:
    norms = np.asarray(norms, float)
    alpha = clipping_bias.clip_factor(norms, clipping_norm)
    mean = float(norms.mean()) if norms.size else 0.0
    if mean <= 0.0:
      raise ValueError(
        '`update_norms` must hold a positive norm in every round, found none.'
      )
    shrinkage = float(alpha.mean())
    scale = shrinkage * mean
    rest = float(np.mean(np.abs(alpha - shrinkage) * norms))
    noise = mechanism.noise_norm(clipping_norm) / scale
    averaged = noise / math.sqrt(mechanism.num_rounds)
    errors.append((rest / scale, noise, averaged, shrinkage))
  return UpdateError(*(float(value) for value in np.mean(errors, axis=0)))


def best_clipping_norm(
  update_norms: Sequence[ArrayLike], mechanism: Mechanism, num_points: int = 400
) -> tuple[float, UpdateError]:
  """The clipping norm with the least `update_error`.

  It is looked for between the smallest positive norm, below which all updates
  are clipped and bias and noise stand in one proportion, and the largest, above
  which nothing is clipped.

  Args:
    update_norms: As for `update_error`.
    mechanism: The noise.
    num_points: How many norms to try.

  Returns:
    The norm and its error.
  """
  argument_checks.check_integer('num_points', num_points, at_least=1)
  every = np.concatenate([np.ravel(norms) for norms in update_norms])
  positive = every[every > 0]
  if not len(positive):
    raise ValueError('`update_norms` must hold a positive norm, found none.')
  candidates = np.linspace(positive.min(), positive.max(), num_points)
  errors = [update_error(update_norms, float(c), mechanism) for c in candidates]
  best = int(np.argmin([error.total for error in errors]))
  return float(candidates[best]), errors[best]
