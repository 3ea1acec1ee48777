"""Estimates a quantile of the norms of updates by bits, and nothing else."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import (
  l2_clip,
  public_measurements,
  type_checks,
)

# How far a client moves the sum of the bits, which are +1/2 and -1/2.
BIT_NORM = 0.5

# The names in the state: what is estimated so far, at which norm the next bits
# are asked for, and of how many rounds both are.
ESTIMATE = 'norm_estimate'
_ASKED, _ROUNDS = 'asked_norm', 'num_estimated'


def norm_quantile_factory(
  bits_mean_factory: tff.aggregators.UnweightedAggregationFactory,
  *,
  initial_norm: float = 1.0,
  target_quantile: float = 0.5,
  step: float = 4.0,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Follows a quantile of the norms; the result is always zero.

  It is the first phase of a run: its rounds leave a model as it is, and their
  last estimate, times a factor, is the clipping norm of all rounds to come.

  In round t = 1, 2, ..., with the norm e_t. At CLIENTS, the bit whether
  ||x_i|| <= e_t, as +1/2 or -1/2. At SERVER, their mean m by
  `bits_mean_factory`, and e_{t+1} = e_t exp(-(step / t) (m + 1/2 -
  target_quantile)). The estimate is the geometric mean of e_2, ..., e_{t+1},
  with weights of 1, 4, 9, ...: a step that shrinks forgets where it began, and
  the mean does not depend on how far the norms of clients lie apart, which
  decides on how long a step should be. From a norm of 1, ten rounds find
  medians from 0.01 to 100.

  Guarantee: that of `bits_mean_factory` for values with a norm of at most 1/2.
  The estimates are computed from its result alone. An update that is not finite
  counts as one of norm 0, as which a clip takes it.

  Measurements:
    norm_estimate: The estimate after the round, `float32`; it comes from noised
      bits.
    Those of `bits_mean_factory` that are safe to report.

  State: `estimate` (`norm_estimate`, `asked_norm`, `num_estimated`) and
  `inner_agg`.

  Args:
    bits_mean_factory: Clips scalars to a norm of `BIT_NORM`, adds noise to
      their sum and divides by P: `dp_mean_factory` or
      `correlated_dp_mean_factory`.
    initial_norm: e_1, from 1e-12 to 1e19, as each norm is.
    target_quantile: The share of the norms that is to be at most the quantile,
      in (0, 1).
    step: How far the logarithm of the norm goes at most, in the first round,
      for a share that is off by 1; positive.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of its range.

  Source: The bits are those of Andrew et al. 2021, "Differentially private
    learning with adaptive clipping", Alg. 1; to estimate first and train with a
    constant then is what Xu et al. 2023, "Federated learning of Gboard language
    models with differential privacy", do. The steps are those of Robbins and
    Monro, 1951; the mean is that of Polyak and Juditsky, 1992.
  """
  type_checks.check_unweighted_factory('bits_mean_factory', bits_mean_factory)
  return _NormQuantileFactory(
    bits_mean_factory,
    l2_clip.check_clipping_norm('initial_norm', initial_norm),
    argument_checks.check_probability('target_quantile', target_quantile),
    argument_checks.check_positive('step', step),
  )


class _NormQuantileFactory(tff.aggregators.UnweightedAggregationFactory):
  """What `norm_quantile_factory` returns."""

  def __init__(self, bits_mean_factory, initial_norm, target_quantile, step):
    self._bits_mean_factory = bits_mean_factory
    self._initial_norm = initial_norm
    self._target_quantile = target_quantile
    self._step = step

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    value_type = tff.to_type(value_type)
    bits = self._bits_mean_factory.create(tff.TensorType(np.float32))

    @tff.tensorflow.computation
    def begin():
      return collections.OrderedDict(
        [
          (ESTIMATE, tf.constant(self._initial_norm, tf.float32)),
          (_ASKED, tf.constant(self._initial_norm, tf.float32)),
          (_ROUNDS, tf.constant(0, tf.int32)),
        ]
      )

    estimate_type = begin.type_signature.result

    @tff.tensorflow.computation(value_type, np.float32)
    def compare(value, norm):
      return _compare(l2_clip.l2_norm(value), norm)

    @tff.tensorflow.computation(estimate_type, np.float32)
    def follow(estimate, mean):
      count = estimate[_ROUNDS] + 1
      t = tf.cast(count, tf.float32)
      # Of no clients, a half is below.
      error = mean + np.float32(0.5 - self._target_quantile)
      asked = _within_range(
        estimate[_ASKED] * tf.exp(-np.float32(self._step) / t * error)
      )
      # t^2 over the sum of all squares up to it.
      weight = 6 * t / ((t + 1) * (2 * t + 1))
      averaged = _within_range(
        estimate[ESTIMATE] * tf.pow(asked / estimate[ESTIMATE], weight)
      )
      return collections.OrderedDict(
        [(ESTIMATE, averaged), (_ASKED, asked), (_ROUNDS, count)]
      )

    @tff.tensorflow.computation(estimate_type)
    def norm_of(estimate):
      return estimate[_ASKED]

    @tff.tensorflow.computation(estimate_type)
    def found(estimate):
      return estimate[ESTIMATE]

    @tff.tensorflow.computation(np.float32)
    def change_nothing(unused_norm):
      return tff.types.structure_from_tensor_type_tree(
        lambda leaf: tf.zeros(leaf.shape, leaf.dtype), value_type
      )

    def state_of(estimate, inner):
      return tff.federated_zip(
        collections.OrderedDict(estimate=estimate, inner_agg=inner)
      )

    @tff.federated_computation
    def initialize():
      return state_of(tff.federated_eval(begin, tff.SERVER), bits.initialize())

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      norm = tff.federated_map(norm_of, state['estimate'])
      is_below = tff.federated_map(
        compare, (value, tff.federated_broadcast(norm))
      )
      output = bits.next(state['inner_agg'], is_below)
      following = tff.federated_map(follow, (state['estimate'], output.result))
      return tff.templates.MeasuredProcessOutput(
        state=state_of(following, output.state),
        result=tff.federated_map(change_nothing, norm),
        measurements=public_measurements.with_public(
          output.measurements,
          norm_estimate=tff.federated_map(found, following),
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _within_range(norm: tf.Tensor) -> tf.Tensor:
  """Returns the nearest norm that one may clip to."""
  return tf.clip_by_value(
    norm, l2_clip.MIN_CLIPPING_NORM, l2_clip.MAX_CLIPPING_NORM
  )


def _compare(norm: tf.Tensor, asked: tf.Tensor) -> tf.Tensor:
  """Returns the bit of a client: 1/2 if its norm is at most the one asked."""
  norm = tf.where(tf.math.is_finite(norm), norm, tf.zeros_like(norm))
  is_below = norm <= tf.cast(asked, norm.dtype)
  return tf.cast(is_below, tf.float32) - BIT_NORM
