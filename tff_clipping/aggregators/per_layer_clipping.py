"""Clips each tensor of an update to an L2 norm of its own."""

import collections
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import clipping_process, l2_clip


def per_layer_clipping_factory(
  clipping_norms: Sequence[float],
  inner_agg_factory: tff.aggregators.AggregationFactory | None = None,
  *,
  count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
  """Clips tensor k of each client's update to `clipping_norms[k]`.

  At CLIENTS, x_k * min(1, c_k / ||x_k||) for each tensor x_k, then
  `inner_agg_factory` on the clipped values. It is weighted if
  `inner_agg_factory` is.

  Guarantee: the norm of what reaches `inner_agg_factory` is at most
  sqrt(sum_k c_k^2), in real arithmetic. That is the sensitivity to charge, and
  what a noise multiplier multiplies: `combined_clipping_norm(clipping_norms)`
  returns it.

  An update with a tensor that is not finite, or whose sum of squares is above
  the largest `float32`, becomes zero as a whole. Zero stays zero.

  Measurements:
    clipping: Those of `inner_agg_factory`.
    clipping_norms: The constants c_k, `float32`, in a tensor of shape [K].
    clipped_counts: How many updates were longer, for each tensor, `int32` of
      shape [K].
    zeroed_count: How many updates became zero.

  The counts are exact, and left out if anything inside `inner_agg_factory` adds
  noise.

  State: `clipping_norms` (empty), `inner_agg`, `count_agg`.

  Args:
    clipping_norms: c_1 ... c_K, each from 1e-12 to 1e19, in the order of the
      tensors in the value type: that of the trainable variables of a model.
    inner_agg_factory: Aggregates the clipped updates. `None` is
      `tff.aggregators.SumFactory()`.
    count_sum_factory: Sums the counts, an `OrderedDict` of `int32` tensors.
      `None` is `tff.aggregators.SumFactory()`, or nothing in a private
      pipeline, where nothing else is allowed.

  Returns:
    An aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a norm is not finite or too small, or there are none. By
      `create`, if the value type has another number of tensors, or
      `count_sum_factory` is given and `inner_agg_factory` adds noise.

  Source: McMahan et al. 2018, "Learning differentially private recurrent
    language models", Sec. 2. The paper clips the update as a whole.
  """
  clipping_norms = _check_clipping_norms(clipping_norms)
  return clipping_process.clipping_wrapper(
    inner_agg_factory,
    lambda value_type: _make_clip(value_type, clipping_norms),
    count_sum_factory,
  )


def combined_clipping_norm(clipping_norms: Sequence[float]) -> float:
  """Returns sqrt(sum_k c_k^2), rounded up: the norm of all tensors together.

  Args:
    clipping_norms: c_1 ... c_K; see `per_layer_clipping_factory`.

  Raises:
    TypeError: If they are not a sequence of numbers.
    ValueError: If one is not finite or too small, or there are none.
  """
  norms = _check_clipping_norms(clipping_norms)
  # `hypot` is wrong by less than one unit in the last place.
  return math.nextafter(math.hypot(*norms), math.inf)


def _check_clipping_norms(clipping_norms):
  """Returns the norms as floats, or raises."""
  if isinstance(clipping_norms, (str, bytes)) or not (
    isinstance(clipping_norms, Sequence) or np.ndim(clipping_norms) == 1
  ):
    raise TypeError(
      '`clipping_norms` must be a sequence of numbers, found '
      f'{clipping_norms!r}.'
    )
  if len(clipping_norms) == 0:
    raise ValueError('`clipping_norms` must not be empty.')
  return [
    l2_clip.check_clipping_norm(f'clipping_norms[{k}]', norm)
    for k, norm in enumerate(clipping_norms)
  ]


def _make_clip(value_type, clipping_norms):
  """Returns the clip of values of `value_type`."""
  num_tensors = len(tff.structure.flatten(value_type))
  if num_tensors != len(clipping_norms):
    raise ValueError(
      f'`clipping_norms` must have a norm for each of the {num_tensors} '
      f'tensors of {value_type}, found {len(clipping_norms)}.'
    )

  @tff.tensorflow.computation(value_type)
  def clip(value):
    leaves = tf.nest.flatten(value)
    clipped = [None] * num_tensors
    for position, norm in zip(
      _positions(value, value_type), clipping_norms, strict=True
    ):
      clipped[position] = l2_clip.clip_by_l2_norm(leaves[position], norm)
    was_zeroed = tf.reduce_max(tf.stack([c.was_zeroed for c in clipped]))
    kept = tf.cond(
      was_zeroed > 0,
      lambda: [tf.zeros_like(c.value) for c in clipped],
      lambda: [tf.identity(c.value) for c in clipped],
    )
    was_clipped = [
      clipped[position].was_clipped
      for position in _positions(value, value_type)
    ]
    counts = collections.OrderedDict(
      clipped_counts=tf.stack(was_clipped) * (1 - was_zeroed),
      zeroed_count=was_zeroed,
    )
    norm = tf.sqrt(tf.add_n([tf.square(c.norm) for c in clipped]))
    return tf.nest.pack_sequence_as(value, kept), norm, counts

  return clipping_process.Clip(
    clip, 'clipping_norms', np.array(clipping_norms, np.float32)
  )


def _positions(value, value_type):
  """Returns where `tf.nest`, which sorts keys, has each tensor of the type."""
  if isinstance(value_type, tff.TensorType):
    return [0]
  indices = tf.nest.pack_sequence_as(
    value, list(range(len(tf.nest.flatten(value))))
  )
  return tff.structure.flatten(
    tff.structure.from_container(indices, recursive=True)
  )
