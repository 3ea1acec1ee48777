"""DP-SGD in each local step: noise against the server too."""

import dataclasses
import math
from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import gaussian_draws, grid_sums, l2_clip
from tff_clipping.learning.steps.local_step import LocalStep, StepContext


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisedSgd(LocalStep):
  """The noised mean of clipped gradients of single examples.

  In each step each of the client's examples joins by a coin of its own, with
  probability p, and the direction is

      (sum_j clip(g_j, C) + N(0, (z C)² I)) / B

  over those that joined, where g_j is the gradient of one example's loss and B
  a public number. Where more than M joined, a uniform part of M stays: the
  memory is that of M examples, in every step. A client without examples takes
  its steps too, of noise alone.

  Guarantee: the directions of k rounds are Q k Poisson-sampled Gaussian
  mechanisms, of probability p and noise multiplier z, under adding or removing
  one example of the client, but for steps in which more than M joined; an
  `ExamplePlan` charges for both. It holds against whoever sees what the client
  sends, the server too, since nothing else of the examples is in it. Coins and
  noise come from fresh entropy of the client's machine; the run's seed has no
  part in them. Each clipped gradient has a norm of at most C in real numbers,
  sums are in `float64`, and the noise is drawn in integers on a grid, as in
  `gaussian_noise_factory`. What is not proved: the last bits of a gradient in
  `float32` may depend on which examples are beside it, so that neighbouring
  sums may differ by a few 1e-7 of C more.

  A step around it that asks for the gradient itself is refused.

  Not claimed: that cohorts are secret, or that the noise of other clients hides
  anything. For Q > 1 a client's noise enters its own later gradients, so that
  the sum over clients is no Gaussian mechanism of their summed noise.

  Attributes:
    clipping_norm: C, from 1e-12 to 1e19, in the unit of a gradient.
    noise_multiplier: z, positive.
    sampling_prob: p, in (0, 1].
    expected_batch_size: B, positive: p times a public number of examples.
    max_batch_size: M, at least 1.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If one is out of range.

  Source: Truex et al. 2019, "A hybrid approach to privacy-preserving federated
    learning"; Abadi et al. 2016 (arXiv 1607.00133), Algorithm 1.
  """

  clipping_norm: float
  noise_multiplier: float
  sampling_prob: float
  expected_batch_size: float
  max_batch_size: int

  def __post_init__(self):
    l2_clip.check_clipping_norm('clipping_norm', self.clipping_norm)
    argument_checks.check_positive('noise_multiplier', self.noise_multiplier)
    argument_checks.check_positive('sampling_prob', self.sampling_prob)
    if self.sampling_prob > 1:
      raise ValueError(
        f'`sampling_prob` must be at most 1, found {self.sampling_prob}.'
      )
    argument_checks.check_positive(
      'expected_batch_size', self.expected_batch_size
    )
    argument_checks.check_integer(
      'max_batch_size', self.max_batch_size, at_least=1
    )

  @property
  def noised(self) -> 'NoisedSgd':
    """See `LocalStep`."""
    return self

  def begin(self, start: Any) -> tf.Tensor:
    """See `LocalStep`: a key that is fresh in each round of each client."""
    del start
    return gaussian_draws.fresh_key()

  def direction(
    self, context: StepContext, memory: Any
  ) -> tuple[list[tf.Tensor], Any]:
    """See `LocalStep`."""
    step = tf.cast(context.step, tf.int64)
    coins, noise = (
      gaussian_draws.derive_key(
        memory, tf.stack([step, tf.constant(use, tf.int64)])
      )
      for use in (0, 1)
    )
    rows, is_used = self.draw_batch(context.num_examples, coins)
    sums = context.clipped_gradients(rows, is_used, self.clipping_norm)
    dim = sum(math.prod(part.shape) for part in sums)
    # Two sums that are rounded to the grid may differ by more.
    stddev = (
      self.noise_multiplier
      * self.clipping_norm
      * grid_sums.rounding_factor(
        dim, gaussian_draws.RELATIVE_STEP, self.noise_multiplier
      )
    )
    noised = gaussian_draws.add_gaussian_noise(sums, stddev, noise)
    direction = [
      tf.ensure_shape(
        tf.cast(part / self.expected_batch_size, like.dtype), like.shape
      )
      for part, like in zip(noised, context.start, strict=True)
    ]
    return direction, memory

  def draw_batch(
    self, num_examples: tf.Tensor, key: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns which examples make up a batch.

    Args:
      num_examples: How many there are, an `int32` scalar.
      key: An `int64` tensor of shape [2].

    Returns:
      M rows, `int32`, and which of them joined. A row that did not may be any,
      or `num_examples`, the one after the last.
    """
    draws = tf.random.stateless_uniform(
      [num_examples],
      key,
      minval=None,
      maxval=None,
      dtype=tf.int64,
      alg='philox',
    )
    draws = tf.bitwise.bitwise_and(draws, tf.int64.max)
    # Of 2^63 numbers, rounded down: the probability is p at most.
    threshold = min(math.floor(self.sampling_prob * 2**63), 2**63 - 1)
    joins = draws < threshold
    # Among those that joined, the least draws are a uniform part.
    order = tf.argsort(tf.where(joins, draws, tf.int64.max))
    rows = order[: self.max_batch_size]
    is_used = tf.cast(tf.gather(joins, rows), tf.int32)
    missing = [[0, self.max_batch_size - tf.shape(rows)[0]]]
    rows = tf.pad(rows, missing, constant_values=num_examples)
    is_used = tf.cast(tf.pad(is_used, missing), tf.bool)
    return (
      tf.ensure_shape(rows, [self.max_batch_size]),
      tf.ensure_shape(is_used, [self.max_batch_size]),
    )
