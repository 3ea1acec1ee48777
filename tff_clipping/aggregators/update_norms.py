"""Measures the norms of clients' updates, for simulations."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import client_rows, factories, l2_clip

# What `add_update_norm_measurements` adds.
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
  and no noise of `inner_agg_factory` covers them: a private run on real data
  must not use this. Their names are in
  `SIMULATION_ONLY_MEASUREMENTS`, so that programs can label or drop them.

  Put it outside a clip to see the norms before the clip. The result, the state
  and the measurements of `inner_agg_factory` are unchanged, without the record
  of a mechanism.

  Measurements, over the clients of the round, `float32` but for the count, and
  0 for no clients; in one `OrderedDict` with those of `inner_agg_factory`,
  which are under the name `inner` if they are not named:
    update_norm_mean: Mean.
    update_norm_std: Population standard deviation.
    update_norm_min: Least.
    update_norm_max: Greatest.
    update_norm_nonfinite_count: `int32`, the number of updates that have no
      finite norm. They are left out of the others.
    clipped_fraction: Only if `clipping_norm` is given: the share of the updates
      whose norm is above it.

  Args:
    inner_agg_factory: Aggregates the values; weighted or not.
    clipping_norm: The norm for the share of longer updates, 1e-12 to 1e19.
      Nothing is clipped to it.

  Source: Sec. 2.2, where the clipping norm is half the mean norm of the updates
    of an unclipped run, and Figs. 1 and 2.
  """
  if clipping_norm is not None:
    clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)

  def build(value_type):
    norm = tff.tensorflow.computation(l2_clip.l2_norm, value_type)
    return (
      lambda value, _: client_rows.stack(tff.federated_map(norm, value)),
      lambda norms: _statistics(norms, clipping_norm),
    )

  # The statistics are exact.
  return factories.measuring_factory(
    inner_agg_factory, build, keeps_record=False
  )


def _statistics(norms, clipping_norm):
  """Returns the statistics of `norms`, a vector of `float64`."""
  is_finite = tf.math.is_finite(norms)
  finite = tf.boolean_mask(norms, is_finite)
  # All is 0 where there is none.
  finite = tf.cond(
    tf.size(finite) > 0, lambda: finite, lambda: tf.zeros([1], tf.float64)
  )
  result = collections.OrderedDict(
    update_norm_mean=tf.reduce_mean(finite),
    update_norm_std=tf.math.reduce_std(finite),
    update_norm_min=tf.reduce_min(finite),
    update_norm_max=tf.reduce_max(finite),
  )
  if clipping_norm is not None:
    is_longer = tf.cast(finite > clipping_norm, tf.float64)
    result['clipped_fraction'] = tf.reduce_mean(is_longer)
  return collections.OrderedDict(
    {name: tf.cast(each, tf.float32) for name, each in result.items()},
    update_norm_nonfinite_count=tf.math.count_nonzero(
      ~is_finite, dtype=tf.int32
    ),
  )
