"""Sums values in wider types than their own: `float64` where noise is added.

A rounded sum is rounded anew at each addition, and one client more or less can
turn each of these roundings the other way: two sums of n values, each of norm c
at most, that differ by one of them differ by c and by up to n^2 c times the
precision. In `float32` that is several c for ten thousand clients, in 16 bits
for a few dozen, so that noise for a sensitivity of c would not hide a client.
In `float64` it is 1e-4 c for a million, and nothing for values on a grid, whose
sums are exact. So whatever is to be noised is rounded to a grid (see
`gaussian_draws`), summed in `float64`, gets noise on the grid, and is returned
in the type that it had.

A mean without noise is summed in `float32` at least: in 16 bits a sum of some
hundred values stays where it is, and a count has no room.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


def widen(value: Any, least: tf.DType = tf.float64) -> Any:
  """Returns a structure of tensors with leaves of `least` in place of narrower.

  Args:
    value: A structure of floating-point tensors, in a graph.
    least: What narrower leaves become.
  """
  return tf.nest.map_structure(
    lambda t: t if t.dtype.size >= least.size else tf.cast(t, least), value
  )


def dtypes_of(value_type: tff.Type) -> Sequence[tf.DType]:
  """Returns the dtypes of values of a type, in the order of a graph."""
  return [leaf.dtype for leaf in _leaves(value_type)]


def shapes_of(value_type: tff.Type) -> Sequence[tf.TensorShape]:
  """Returns the shapes of values of a type, in the order of a graph."""
  return [leaf.shape for leaf in _leaves(value_type)]


def narrow(value: Any, dtypes: Sequence[tf.DType]) -> Any:
  """Returns a structure of tensors in the dtypes that it once had.

  Args:
    value: The structure, in a graph.
    dtypes: What `dtypes_of` returns.
  """
  leaves = [
    tf.cast(leaf, dtype)
    for leaf, dtype in zip(tf.nest.flatten(value), dtypes, strict=True)
  ]
  return tf.nest.pack_sequence_as(value, leaves)


def _leaves(value_type: tff.Type) -> list[tf.TensorSpec]:
  """Returns the specs of a value's tensors, in the order of a graph."""
  specs: list[tf.TensorSpec] = []

  # A graph sorts the keys of mappings, and a type does not.
  @tff.tensorflow.computation(value_type)
  def record(value):
    specs.extend(
      tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(value)
    )
    return value

  del record  # It has been traced, which was all.
  return specs
