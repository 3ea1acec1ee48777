"""Clips to a quantile of the norms that is estimated under privacy."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import adaptive_noise, argument_checks
from tff_clipping.aggregators import gaussian_noise, private_mean, secure_sum
from tff_clipping.aggregators.parts import (
  cohort_bounds,
  float64_values,
  gaussian_draws,
  grid_sums,
  l2_clip,
  noise_keys,
  noised_sum,
  type_checks,
)
from tff_clipping.mechanism import ADAPTS, Mechanism


def adaptive_dp_mean_factory(
  *,
  initial_clipping_norm: float,
  noise_multiplier: float,
  clients_per_round: float,
  target_quantile: float = 0.5,
  learning_rate: float = 0.2,
  below_count_stddev: float | None = None,
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  noise_key: gaussian_draws.NoiseKey = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """`dp_mean_factory` whose clipping norm follows a quantile of the norms.

  In round t, with clipping norm c_t. At CLIENTS, clip(x_i, c_t), and the bit
  whether ||x_i|| <= c_t, as +-1/2. At SERVER, (sum + N(0, (z' c_t)^2 I)) / P,
  and the share of bits below, from (sum of the bits + N(0, s^2)) / P; then
  c_{t+1} = c_t exp(-learning_rate * (share - target_quantile)).

  Guarantee: bits and values together are one Gaussian mechanism with the given
  `noise_multiplier` z, in the numbers that are released, which lie on grids as
  those of `gaussian_noise_factory`, since the noise on the values is raised to
  z' = (z^-2 - (2 s)^-2)^(-1/2). A plan charges z and nothing else. The next
  clipping norm is computed from noised bits alone.

  Measurements:
    mechanism: A `Mechanism` of the kind 'gaussian', as for `dp_mean_factory`;
      its noise multiplier is z.
    clipping_norm: c_t, `float32`; it comes from noised bits.
    noise_stddev: z' c_t, on the sum, `float32`.
    bits_noise_stddev: s, on the sum of the bits, `float32`.

  State: `clipping_norm`; `privacy_noise`, the key of the noise if it takes one;
  `inner_agg`.

  Args:
    initial_clipping_norm: c_0, from 1e-12 to 1e19, as each c_t is. From a
      guess that is off by a factor f, it takes about log(f) / (learning_rate /
      2) rounds to arrive.
    noise_multiplier: z, of the values and the bits together.
    clients_per_round: P, the size of a cohort or its expectation; at least 1.
    target_quantile: The share of the updates that should not be clipped, in
      (0, 1).
    learning_rate: Of the logarithm of the norm; positive.
    below_count_stddev: s, the noise on the sum of the bits. `None` is P / 20.
      z must be below 2 s.
    sum_factory: Sums the clipped updates. `None` is
      `tff.aggregators.SumFactory()`. The bounds of a `secure_sum_factory` must
      be for the largest norm that is to be expected; what is beyond is clamped.
    noise_key: `None` for fresh noise, or a pair of integers for tests; see
      `gaussian_noise_factory`.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of its range, or `below_count_stddev` is too
      small for `noise_multiplier`.

  Source: Andrew et al. 2021, "Differentially private learning with adaptive
    clipping", Alg. 1 and Theorem 1. The paper's clipping norm is a constant.
  """
  l2_clip.check_clipping_norm('initial_clipping_norm', initial_clipping_norm)
  noise_multiplier = argument_checks.check_positive(
    'noise_multiplier', noise_multiplier
  )
  clients_per_round = cohort_bounds.check_clients_per_round(clients_per_round)
  target_quantile = argument_checks.check_probability(
    'target_quantile', target_quantile
  )
  learning_rate = argument_checks.check_positive('learning_rate', learning_rate)
  if below_count_stddev is None:
    below_count_stddev = clients_per_round / 20
  below_count_stddev = argument_checks.check_positive(
    'below_count_stddev', below_count_stddev
  )
  noise_key = gaussian_draws.check_noise_key(noise_key)
  if sum_factory is None:
    sum_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('sum_factory', sum_factory)
  mechanism = Mechanism(
    kind='gaussian',
    clipping_norm=ADAPTS,
    noise_multiplier=noise_multiplier,
    clients_per_round=clients_per_round,
    public=('clipping_norm', 'noise_stddev', 'bits_noise_stddev'),
  )
  return AdaptiveDpMeanFactory(
    float(initial_clipping_norm),
    target_quantile,
    learning_rate,
    below_count_stddev,
    adaptive_noise.split_noise_multiplier(
      noise_multiplier=noise_multiplier, below_count_stddev=below_count_stddev
    ),
    clients_per_round,
    sum_factory,
    noise_key,
    private_mean.record_of(mechanism, sum_factory),
  )


# No repr: it would show the key of the noise.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AdaptiveDpMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `adaptive_dp_mean_factory` returns; see its arguments.

  Attributes:
    values_multiplier: z', the noise multiplier of the values alone.
    record: The record of the mechanism, by its name.
  """

  initial_clipping_norm: float
  target_quantile: float
  learning_rate: float
  below_count_stddev: float
  values_multiplier: float
  clients_per_round: float
  sum_factory: tff.aggregators.UnweightedAggregationFactory
  noise_key: gaussian_draws.NoiseKey
  record: Mapping[str, str]

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    dtypes = float64_values.dtypes_of(value_type)
    is_on_grid = secure_sum.is_plain_sum(self.sum_factory)
    multiplier = self.values_multiplier * grid_sums.noise_factor(
      value_type,
      0.0 if is_on_grid else gaussian_draws.RELATIVE_STEP,
      self.values_multiplier,
    )
    bits = gaussian_noise.gaussian_noise_factory(
      self.below_count_stddev, noise_key=_other_key(self.noise_key)
    ).create(tff.TensorType(np.float32))
    keys = noise_keys.NoiseKeys(self.noise_key)

    @tff.tensorflow.computation(value_type, np.float32)
    def send(value, norm):
      clipped = l2_clip.clip_by_l2_norm(value, norm)
      # The grid of the noise that the server will add: the norm is public.
      wide_norm = tf.cast(norm, tf.float64)
      step = gaussian_draws.grid_step(multiplier * wide_norm)
      on_grid = noised_sum.to_grid(clipped.value, step, wide_norm)
      is_below = clipped.norm <= tf.cast(norm, clipped.norm.dtype)
      return on_grid, tf.cast(is_below, tf.float32) - 0.5

    inner = self.sum_factory.create(send.type_signature.result[0])

    @tff.tensorflow.computation
    def initial_norm():
      return tf.constant(self.initial_clipping_norm, tf.float32)

    @tff.tensorflow.computation(np.float32, np.float32)
    def adapt(norm, total):
      # Of no clients, a half is below.
      share = total / np.float32(self.clients_per_round) + 0.5
      error = share - np.float32(self.target_quantile)
      factor = tf.exp(-np.float32(self.learning_rate) * error)
      return tf.clip_by_value(
        norm * factor, l2_clip.MIN_CLIPPING_NORM, l2_clip.MAX_CLIPPING_NORM
      )

    @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member,
      np.float32,
      keys.initial.type_signature.result,
    )
    def release(total, norm, noise_state):
      stddev = multiplier * tf.cast(norm, tf.float64)
      key, next_noise = keys.next_key(noise_state)
      noised = gaussian_draws.add_gaussian_noise(total, stddev, key)
      mean = noised_sum.divide(noised, self.clients_per_round, dtypes)
      return mean, next_noise, tf.cast(stddev, tf.float32)

    @tff.federated_computation
    def initialize():
      norm_state = collections.OrderedDict(
        norm=tff.federated_eval(initial_norm, tff.SERVER),
        bits=bits.initialize(),
      )
      return noised_sum.zip_state(
        tff.federated_eval(keys.initial, tff.SERVER),
        inner.initialize(),
        clipping_norm=tff.federated_zip(norm_state),
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      norm = state['clipping_norm']['norm']
      sent, is_below = tff.federated_map(
        send, (value, tff.federated_broadcast(norm))
      )
      output = inner.next(state['inner_agg'], sent)
      mean, next_noise, stddev = tff.federated_map(
        release, (output.result, norm, state[noised_sum.NOISE_STATE])
      )
      below = bits.next(state['clipping_norm']['bits'], is_below)
      norm_state = collections.OrderedDict(
        norm=tff.federated_map(adapt, (norm, below.result)), bits=below.state
      )
      return tff.templates.MeasuredProcessOutput(
        state=noised_sum.zip_state(
          next_noise,
          output.state,
          clipping_norm=tff.federated_zip(norm_state),
        ),
        result=mean,
        measurements=noised_sum.at_server(
          collections.OrderedDict(
            **self.record,
            clipping_norm=norm,
            noise_stddev=stddev,
            bits_noise_stddev=np.float32(self.below_count_stddev),
          )
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _other_key(noise_key):
  """Returns a key that is not `noise_key`: no two draws may share one."""
  if noise_key is None:
    return None
  low, high = noise_key
  return low, high ^ 0x5DEECE66D
