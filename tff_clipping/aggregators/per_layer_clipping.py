"""Clips each tensor of an update to an L2 norm of its own."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

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
  returns it. `dp_mean_factory` takes the norms, and adds the noise.

  An update with a tensor that is not finite, or whose sum of squares is above
  the largest `float32`, becomes zero as a whole. Zero stays zero.

  Measurements:
    clipping: Those of `inner_agg_factory`.
    clipping_norms: The constants c_k, `float32`, in a tensor of shape [K].
    clipped_counts: How many updates were longer, for each tensor, `int32` of
      shape [K].
    zeroed_count: How many updates became zero.

  The counts are exact, and measured only if `count_sum_factory` is given.

  State: `clipping_norms` (empty), `inner_agg`, `count_agg`.

  Args:
    clipping_norms: c_1 ... c_K, each from 1e-12 to 1e19, in the order of the
      tensors in the value type: that of the trainable variables of a model.
    inner_agg_factory: Aggregates the clipped updates. `None` is
      `tff.aggregators.SumFactory()`.
    count_sum_factory: Sums the counts, an `OrderedDict` of `int32` tensors;
      `None` to measure none, as where something inside adds noise.

  Returns:
    An aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a norm is not finite or too small, or there are none. By
      `create`, if the value type has another number of tensors.

  Source: McMahan et al. 2018, "Learning differentially private recurrent
    language models", Sec. 2. The paper clips the update as a whole.
  """
  norms = check_clipping_norms(clipping_norms)
  return clipping_process.clipping_wrapper(
    inner_agg_factory,
    clipping_process.Clip(
      build=functools.partial(build_clip, norms=norms),
      norm_name='clipping_norms',
      norm=np.array(norms, np.float32),
      count_name='clipped_counts',
    ),
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
  norms = check_clipping_norms(clipping_norms)
  # `hypot` is wrong by less than one unit in the last place.
  return math.nextafter(math.hypot(*norms), math.inf)


def check_clipping_norms(clipping_norms: Any) -> list[float]:
  """Returns the norms as floats; raises as `combined_clipping_norm`."""
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


def build_clip(
  value_type: tff.Type, norms: Sequence[float]
) -> Callable[[Any], l2_clip.Clipped]:
  """Returns the clip of values of a type, in a graph.

  Args:
    value_type: The type of a client's value.
    norms: c_1 ... c_K, which `check_clipping_norms` has returned.

  Returns:
    A function of a value. Its `was_clipped` has an element for each tensor.

  Raises:
    ValueError: If the values have another number of tensors.
  """
  num_tensors = len(tff.structure.flatten(value_type))
  if num_tensors != len(norms):
    raise ValueError(
      f'`clipping_norms` must have a norm for each of the {num_tensors} '
      f'tensors of {value_type}, found {len(norms)}.'
    )

  def clip(value):
    leaves = tf.nest.flatten(value)
    positions = _positions(value, value_type)
    clipped = [None] * num_tensors
    for position, norm in zip(positions, norms, strict=True):
      clipped[position] = l2_clip.clip_by_l2_norm(leaves[position], norm)
    was_zeroed = tf.reduce_max(tf.stack([c.was_zeroed for c in clipped]))
    kept = tf.cond(
      was_zeroed > 0,
      lambda: [tf.zeros_like(c.value) for c in clipped],
      lambda: [tf.identity(c.value) for c in clipped],
    )
    was_clipped = tf.stack([clipped[p].was_clipped for p in positions])
    return l2_clip.Clipped(
      value=tf.nest.pack_sequence_as(value, kept),
      norm=tf.sqrt(tf.add_n([tf.square(c.norm) for c in clipped])),
      was_clipped=was_clipped * (1 - was_zeroed),
      was_zeroed=was_zeroed,
    )

  return clip


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
