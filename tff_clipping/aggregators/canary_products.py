"""The directions of an audit's canaries, and how far releases point there.

The directions are those of `tff_clipping.privacy.audit.Canaries` in NumPy, made
without a matrix of canaries times parameters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_clipping.aggregators import factories, values
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.privacy.audit import Canaries


def add_canary_products(
  inner_agg_factory: SumFactory, canaries: Canaries
) -> SumFactory:
  """Measures the products of each result with the directions of canaries.

  For an audit: canaries are clients of the cohort that send their directions
  and pass through all of `inner_agg_factory`. Put this factory outside all
  others: it measures the result, at the SERVER, before any server optimizer.
  The result and the state of `inner_agg_factory` do not change.

  A product is a function of the result alone and reveals no more than it does:
  the record of a mechanism inside holds, and lists the products. The directions
  reveal more: keep the canaries' seed as secret as the data.

  Measurements, in one `OrderedDict` with those of `inner_agg_factory`, which
  are under the name `inner` if they are not named:
    canary_products: `float64` of shape [m], in the unit of the result. Of a
      mean over P, a canary that was clipped to c adds c / P.

  Args:
    inner_agg_factory: Aggregates the values.
    canaries: A `tff_clipping.privacy.audit.Canaries`.

  Raises:
    ValueError: By `create`, if the values have another number of elements than
      the canaries' directions.
  """
  factories.check_unweighted_factory('inner_agg_factory', inner_agg_factory)

  def build(value_type):
    size = values.size_of(value_type)
    if size != canaries.num_parameters:
      raise ValueError(
        '`canaries` must have the `num_parameters` of the values, which have '
        f'{size} elements, found {canaries.num_parameters}.'
      )
    return (
      lambda _, result: result,
      lambda result: {'canary_products': project(canaries, result)},
    )

  return factories.measuring_factory(
    inner_agg_factory, build, keeps_record=True
  )


def draw_direction(
  canaries: Canaries, mark: tf.Tensor, like: Sequence[Any]
) -> list[tf.Tensor]:
  """Returns the unit vector that a canary sends, in the model's tensors.

  Args:
    canaries: The canaries.
    mark: Which canary it is, from 1, negative for the opposite direction.
    like: Tensors or variables of the shapes and dtypes to return, d elements
      together.
  """
  number = tf.cast(tf.abs(mark) - 1, tf.int32)
  common = tf.bitwise.bitwise_and(tf.range(canaries.period), number)
  ones = tf.cast(tf.raw_ops.PopulationCount(x=common), tf.int32)
  row = tf.cast(1 - 2 * (ones % 2), tf.float32)
  length = canaries.num_parameters**-0.5 * tf.cast(tf.sign(mark), tf.float32)
  signs = tf.reshape(_padded_signs(canaries), [-1, canaries.period])
  flat = tf.reshape(signs * (row * length), [-1])[: canaries.num_parameters]
  parts = tf.split(flat, [leaf.shape.num_elements() for leaf in like])
  return [
    tf.cast(tf.reshape(part, leaf.shape), leaf.dtype)
    for part, leaf in zip(parts, like, strict=True)
  ]


def project(canaries: Canaries, value: Any) -> tf.Tensor:
  """Returns the products of a value, of d elements, with all unit directions.

  They are `float64` of shape [m], in the unit of `value`.
  """
  leaves = [tf.cast(leaf, tf.float64) for leaf in tf.nest.flatten(value)]
  flat = tf.concat([tf.reshape(leaf, [-1]) for leaf in leaves], axis=0)
  flat = tf.pad(flat, [[0, -canaries.num_parameters % canaries.period]])
  signed = flat * tf.cast(_padded_signs(canaries), tf.float64)
  products = tf.reduce_sum(tf.reshape(signed, [-1, canaries.period]), axis=0)
  size = 1
  while size < canaries.period:  # A fast Walsh-Hadamard transform.
    pairs = tf.reshape(products, [-1, 2, size])
    first, second = pairs[:, 0], pairs[:, 1]
    products = tf.reshape(
      tf.stack([first + second, first - second], axis=1), [-1]
    )
    size *= 2
  return products[: canaries.num_canaries] * canaries.num_parameters**-0.5


def _padded_signs(canaries: Canaries) -> tf.Tensor:
  """Returns the random signs as 1 and -1, up to a multiple of the period."""
  # A byte each: to unpack the bits in each local step would cost more than to
  # use them.
  bits = np.unpackbits(canaries.packed_signs)[: canaries.num_parameters]
  padding = -canaries.num_parameters % canaries.period
  signs = np.pad(1 - 2 * bits.astype(np.int8), (0, padding))
  return tf.cast(tf.constant(signs), tf.float32)
