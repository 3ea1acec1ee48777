"""Measures the norms of clients' updates, for simulations."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import l2_clip, type_checks

# What `add_update_norm_measurements` adds. These are exact functions of
# clients' data: they are for simulations, and no privacy guarantee covers them.
SIMULATION_ONLY_MEASUREMENTS = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_min',
  'update_norm_max',
  'update_norm_nonfinite_count',
  'clipped_fraction',
)


def add_update_norm_measurements(
  inner_agg_factory: tff.aggregators.AggregationFactory,
  *,
  clipping_norm: float | None = None,
) -> tff.aggregators.AggregationFactory:
  """Measures the L2 norms of the values that `inner_agg_factory` is given.

  SIMULATION ONLY. The measurements are exact functions of the clients' updates,
  and no noise of `inner_agg_factory` covers them: a training run on real data
  that has to be private must not use this. Their names are in
  `SIMULATION_ONLY_MEASUREMENTS`, so that programs can label or drop them.

  Put it outside a clip to see the norms before the clip. The result, the state
  and the measurements of `inner_agg_factory` are unchanged.

  Measurements, over the clients of the round, beside those of
  `inner_agg_factory` in one `OrderedDict`, all `float32` but the count:
    update_norm_mean: Mean; 0 for no clients.
    update_norm_std: Population standard deviation; 0 for no clients.
    update_norm_min: Least; 0 for no clients.
    update_norm_max: Greatest; 0 for no clients.
    update_norm_nonfinite_count: `int32`, the number of updates that have no
      finite norm. They are left out of the others.
    clipped_fraction: Only if `clipping_norm` is given: the share of the updates
      with a finite norm that is above it; 0 for no clients.

  If the measurements of `inner_agg_factory` are not named, they are under the
  name `inner`.

  Args:
    inner_agg_factory: Aggregates the values; weighted or not.
    clipping_norm: The norm that the share of longer updates is measured for. It
      measures only; it does not clip.

  Returns:
    An aggregation factory, weighted if `inner_agg_factory` is.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If `clipping_norm` is not finite or too small.

  Source: Sec. 2.2, where the clipping norm is half the mean norm of the updates
    of an unclipped run, and Figs. 1 and 2.
  """
  type_checks.check_factory('inner_agg_factory', inner_agg_factory)
  if clipping_norm is not None:
    clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  if isinstance(inner_agg_factory, tff.aggregators.WeightedAggregationFactory):
    return _WeightedNormsFactory(inner_agg_factory, clipping_norm)
  return _UnweightedNormsFactory(inner_agg_factory, clipping_norm)


class _UnweightedNormsFactory(tff.aggregators.UnweightedAggregationFactory):
  """Measures norms around an unweighted factory."""

  def __init__(self, inner_agg_factory, clipping_norm):
    self._inner_agg_factory = inner_agg_factory
    self._clipping_norm = clipping_norm

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      return _with_norms(output, value, self._clipping_norm)

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


class _WeightedNormsFactory(tff.aggregators.WeightedAggregationFactory):
  """Measures norms around a weighted factory; the norms are not weighted."""

  def __init__(self, inner_agg_factory, clipping_norm):
    self._inner_agg_factory = inner_agg_factory
    self._clipping_norm = clipping_norm

  def create(
    self, value_type: Any, weight_type: Any
  ) -> tff.templates.AggregationProcess:
    """Creates the process for `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    inner = self._inner_agg_factory.create(value_type, weight_type)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      output = inner.next(state, value, weight)
      return _with_norms(output, value, self._clipping_norm)

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def _with_norms(output, value, clipping_norm):
  """Returns `output` with the norms of `value` among its measurements."""

  @tff.tensorflow.computation(value.type_signature.member)
  def norm_of(update):
    return l2_clip.l2_norm(update)

  statistics = _norm_statistics(
    tff.federated_map(norm_of, value), clipping_norm
  )

  @tff.tensorflow.computation(
    output.measurements.type_signature.member, statistics.type_signature.member
  )
  def join(inner, own):
    if isinstance(inner, collections.OrderedDict):
      joined = collections.OrderedDict(inner)
    elif tf.nest.flatten(inner):
      joined = collections.OrderedDict(inner=inner)
    else:
      joined = collections.OrderedDict()
    joined.update(own)
    return joined

  return tff.templates.MeasuredProcessOutput(
    state=output.state,
    result=output.result,
    measurements=tff.federated_map(join, (output.measurements, statistics)),
  )


def _norm_statistics(norms, clipping_norm):
  """Returns the statistics of `norms`, at the server, by one aggregation."""

  # Count, mean and sum of squared deviations are updated together (Welford),
  # since a difference of sums of squares would cancel.
  @tff.tensorflow.computation
  def zero():
    return collections.OrderedDict(
      count=tf.zeros([], tf.float64),
      mean=tf.zeros([], tf.float64),
      deviations=tf.zeros([], tf.float64),
      least=tf.constant(np.inf, tf.float64),
      greatest=tf.zeros([], tf.float64),
      nonfinite=tf.zeros([], tf.int32),
      longer=tf.zeros([], tf.float64),
    )

  accumulator_type = zero.type_signature.result

  @tff.tensorflow.computation(accumulator_type, np.float64)
  def accumulate(total, norm):
    is_finite = tf.math.is_finite(norm)
    is_longer = is_finite & (norm > (clipping_norm or np.inf))
    norm = tf.where(is_finite, norm, tf.zeros_like(norm))
    one = collections.OrderedDict(
      count=tf.cast(is_finite, tf.float64),
      mean=norm,
      deviations=tf.zeros([], tf.float64),
      least=tf.where(is_finite, norm, tf.constant(np.inf, tf.float64)),
      greatest=norm,
      nonfinite=tf.cast(~is_finite, tf.int32),
      longer=tf.cast(is_longer, tf.float64),
    )
    return _merged(total, one)

  @tff.tensorflow.computation(accumulator_type, accumulator_type)
  def merge(left, right):
    return _merged(left, right)

  @tff.tensorflow.computation(accumulator_type)
  def report(total):
    def share(x):
      return tf.cast(tf.math.divide_no_nan(x, total['count']), tf.float32)

    result = collections.OrderedDict(
      update_norm_mean=tf.cast(total['mean'], tf.float32),
      update_norm_std=tf.sqrt(share(total['deviations'])),
      update_norm_min=tf.cast(
        tf.where(
          total['count'] > 0, total['least'], tf.zeros_like(total['least'])
        ),
        tf.float32,
      ),
      update_norm_max=tf.cast(total['greatest'], tf.float32),
      update_norm_nonfinite_count=total['nonfinite'],
    )
    if clipping_norm is not None:
      result['clipped_fraction'] = share(total['longer'])
    return result

  return tff.federated_aggregate(norms, zero(), accumulate, merge, report)


def _merged(left, right):
  """Returns the statistics of two disjoint sets of norms together."""
  count = left['count'] + right['count']
  step = right['mean'] - left['mean']
  right_share = tf.math.divide_no_nan(right['count'], count)
  return collections.OrderedDict(
    count=count,
    mean=left['mean'] + step * right_share,
    deviations=left['deviations']
    + right['deviations']
    + tf.square(step) * left['count'] * right_share,
    least=tf.minimum(left['least'], right['least']),
    greatest=tf.maximum(left['greatest'], right['greatest']),
    nonfinite=left['nonfinite'] + right['nonfinite'],
    longer=left['longer'] + right['longer'],
  )
