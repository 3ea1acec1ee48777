"""The types of clients' values."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_FLOAT_DTYPES = tuple(
  np.dtype(d.as_numpy_dtype)
  for d in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
)


def check_float_leaves(value_type: Any) -> tff.Type:
  """Returns a type of floating-point tensors in Python containers as it is."""
  if not isinstance(value_type, (tff.TensorType, tff.StructWithPythonType)):
    raise TypeError(
      '`value_type` must be a tensor type or a structure in Python containers, '
      'as `tff.to_type(collections.OrderedDict(...))` makes it, found '
      f'{value_type!r}.'
    )
  leaves = tff.structure.flatten(value_type)
  if not leaves:
    raise TypeError('`value_type` must have a tensor, found none.')
  for leaf in leaves:
    if (
      not isinstance(leaf, tff.TensorType)
      or np.dtype(leaf.dtype) not in _FLOAT_DTYPES
      or leaf.shape is None
      or None in tuple(leaf.shape)
    ):
      raise TypeError(
        '`value_type` must have floating-point leaves of defined shape, found '
        f'{leaf} in {value_type}.'
      )
  return value_type


def size_of(value_type: tff.Type) -> int:
  """Returns the number of elements of values of a type."""
  return sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )


def specs_of(value_type: tff.Type) -> Any:
  """Returns `tf.TensorSpec`s of values of a type, in the same containers."""
  return tff.types.structure_from_tensor_type_tree(
    lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), value_type
  )


def narrow(value: Any, specs: Any) -> Any:
  """Returns a structure of tensors in the dtypes of `specs`."""
  return tf.nest.map_structure(lambda t, s: tf.cast(t, s.dtype), value, specs)
