"""Clips to a quantile of the norms that is estimated under privacy."""

import collections
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import adaptive_noise, argument_checks
from tff_clipping.aggregators import (
  factories,
  l2_clip,
  pipeline,
  private_mean,
  secure_sum,
  server_noise,
  values,
)
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import gaussian, grid, keys
from tff_clipping.mechanism import ADAPTS, Mechanism


def adaptive_dp_mean_factory(
  *,
  initial_clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  target_quantile: float = 0.5,
  learning_rate: float = 0.2,
  below_count_stddev: float | None = None,
  sum_factory: SumFactory | None = None,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """`dp_mean_factory` whose clipping norm follows a quantile of the norms.

  In round t, with clipping norm c_t. At CLIENTS, clip(x_i, c_t), and the bit
  whether ||x_i|| <= c_t, as +-1/2. At SERVER, (sum + N(0, (z' c_t)^2 I)) / P,
  and the share of bits below, from (sum of the bits + N(0, s^2)) / P; then
  c_{t+1} = c_t exp(-learning_rate * (share - target_quantile)).

  Guarantee: bits and values together are one Gaussian mechanism with the given
  `noise_multiplier` z, since the noise on the values is raised to z' = (z^-2 -
  (2 s)^-2)^(-1/2), in the numbers that are released, as for `dp_mean_factory`.
  A plan charges z and nothing else. The next clipping norm is computed from
  noised bits alone.

  Measurements, `float32` but for the record:
    mechanism: As for `dp_mean_factory`; its noise multiplier is z.
    clipping_norm: c_t.
    noise_stddev: z' c_t, on the sum.
    bits_noise_stddev: s, on the sum of the bits.

  State: `clipping_norm`; `privacy_noise`, the key of the noise if it takes one;
  `inner_agg`.

  Args:
    initial_clipping_norm: c_0, from 1e-12 to 1e19, as each c_t is. From a
      guess that is off by a factor f, it takes about log(f) / (learning_rate /
      2) rounds to arrive.
    noise_multiplier: z, of the values and the bits together.
    clients_per_round: As for `dp_mean_factory`.
    target_quantile: The share of the updates that should not be clipped, in
      (0, 1).
    learning_rate: Of the logarithm of the norm; positive.
    below_count_stddev: s, the noise on the sum of the bits. `None` is P / 20.
      z must be below 2 s.
    sum_factory: As for `dp_mean_factory`. The bounds of a `secure_sum_factory`
      must cover the largest clipping norm that you expect; values beyond are
      clamped. With it, the bits are summed securely too.
    noise_key: As for `gaussian_noise_factory`.

  Source: Andrew et al. 2021, "Differentially private learning with adaptive
    clipping", Alg. 1 and Theorem 1. The paper's clipping norm is a constant.
  """
  initial_norm = l2_clip.check_clipping_norm(
    'initial_clipping_norm', initial_clipping_norm
  )
  denominator = private_mean.check_clients_per_round(clients_per_round)
  quantile = argument_checks.check_probability(
    'target_quantile', target_quantile
  )
  rate = argument_checks.check_positive('learning_rate', learning_rate)
  if below_count_stddev is None:
    below_count_stddev = denominator / 20
  noise_key = server_noise.check_noise_key(noise_key)
  sum_factory = factories.check_sum_factory('sum_factory', sum_factory)
  values_multiplier = adaptive_noise.split_noise_multiplier(
    noise_multiplier=noise_multiplier, below_count_stddev=below_count_stddev
  )
  mechanism = Mechanism(
    kind='gaussian',
    clipping_norm=ADAPTS,
    noise_multiplier=noise_multiplier,
    clients_per_round=denominator,
    public=('clipping_norm', 'noise_stddev', 'bits_noise_stddev'),
  )
  record = private_mean.record_of(mechanism, sum_factory)
  bits_factory: SumFactory = tff.aggregators.SumFactory()
  if isinstance(sum_factory, secure_sum.SecureSumFactory):
    # On the grid of this bound, the bits are exact.
    bits_factory = secure_sum.secure_sum_factory(0.5)

  def build(value_type):
    is_on_grid = secure_sum.is_plain_sum(sum_factory, math.inf)
    shift = 0.0 if is_on_grid else grid.RELATIVE_STEP
    multiplier = values_multiplier * grid.noise_factor(
      values.size_of(value_type), shift, values_multiplier
    )

    def initial():
      return collections.OrderedDict(
        clipping_norm=tf.constant(initial_norm, tf.float32),
        privacy_noise=keys.initial_state(noise_key),
      )

    def send(value, norm):
      clipped = l2_clip.clip_by_l2_norm(value, norm)
      # The grid of the noise that the server adds: the norm is public.
      step = grid.grid_step(multiplier * tf.cast(norm, tf.float64))
      bit = tf.cast(clipped.norm <= norm, tf.float64) - 0.5
      return (
        grid.round_towards_zero(clipped.value, step, norm),
        grid.round_towards_zero(bit, grid.grid_step(below_count_stddev)),
      )

    def release(total, kept, total_bits):
      norm, state = kept['clipping_norm'], kept[pipeline.NOISE_STATE]
      stddev = multiplier * tf.cast(norm, tf.float64)
      key = keys.round_key(state)
      noised = gaussian.add_gaussian_noise(
        total, stddev, keys.derive_key(key, 0)
      )
      bits = gaussian.add_gaussian_noise(
        total_bits, below_count_stddev, keys.derive_key(key, 1)
      )
      # Of no clients, a half is below.
      error = bits / denominator + 0.5 - quantile
      adapted = tf.clip_by_value(
        norm * tf.cast(tf.exp(-rate * error), tf.float32),
        l2_clip.MIN_CLIPPING_NORM,
        l2_clip.MAX_CLIPPING_NORM,
      )
      after = collections.OrderedDict(
        clipping_norm=adapted, privacy_noise=keys.next_state(state)
      )
      measured = dict(
        **record,
        clipping_norm=norm,
        noise_stddev=tf.cast(stddev, tf.float32),
        bits_noise_stddev=np.float32(below_count_stddev),
      )
      return noised, after, measured

    return pipeline.Steps(
      sum_factory,
      initial,
      send,
      release,
      told='clipping_norm',
      number_factory=bits_factory,
    )

  return pipeline.build_factory(build, denominator)
