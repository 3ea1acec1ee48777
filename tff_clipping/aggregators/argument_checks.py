"""Checks of the arguments that the factories share."""

import math
import numbers
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_FLOAT_DTYPES = tuple(
  np.dtype(d.as_numpy_dtype)
  for d in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
)


def check_positive(value: Any, name: str) -> float:
  """Returns `value` as a `float` if it is a positive finite number.

  Args:
    value: What the user passed; NumPy scalars and integers are numbers.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not a number. A `bool` is not one.
    ValueError: If it is not positive and finite.
  """
  if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  number = float(value)
  if not (math.isfinite(number) and number > 0):
    raise ValueError(f'`{name}` must be positive and finite, found {value!r}.')
  return number


def check_positive_int(value: Any, name: str) -> int:
  """Returns `value` as an `int` if it is a positive integer.

  Args:
    value: What the user passed; NumPy integers are integers.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not an integer. A `bool` is not one.
    ValueError: If it is not positive.
  """
  if isinstance(value, (bool, np.bool_)) or not isinstance(
    value, numbers.Integral
  ):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if value < 1:
    raise ValueError(f'`{name}` must be positive, found {value!r}.')
  return int(value)


def check_nonnegative_int(value: Any, name: str) -> int:
  """Returns `value` as an `int` if it is an integer and not negative.

  Args:
    value: What the user passed; NumPy integers are integers.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not an integer. A `bool` is not one.
    ValueError: If it is negative.
  """
  if isinstance(value, (bool, np.bool_)) or not isinstance(
    value, numbers.Integral
  ):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if value < 0:
    raise ValueError(f'`{name}` must not be negative, found {value!r}.')
  return int(value)


def check_probability(value: Any, name: str) -> float:
  """Returns `value` as a `float` if it lies strictly between 0 and 1.

  Args:
    value: What the user passed.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not a number. A `bool` is not one.
    ValueError: If it is outside (0, 1).
  """
  if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  if not 0 < float(value) < 1:
    raise ValueError(f'`{name}` must be between 0 and 1, found {value!r}.')
  return float(value)


def check_factory(value: Any, name: str) -> tff.aggregators.AggregationFactory:
  """Returns `value` if it is an aggregation factory, weighted or not.

  Args:
    value: What the user passed.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not a factory.
  """
  if not isinstance(
    value,
    (
      tff.aggregators.UnweightedAggregationFactory,
      tff.aggregators.WeightedAggregationFactory,
    ),
  ):
    raise TypeError(
      f'`{name}` must be a `tff.aggregators.AggregationFactory`, found '
      f'{value!r}.'
    )
  return value


def check_unweighted_factory(
  value: Any, name: str
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns `value` if it is an unweighted aggregation factory.

  Args:
    value: What the user passed.
    name: The argument's name in the message.

  Raises:
    TypeError: If `value` is not an unweighted factory. The message says why
      weights are refused.
  """
  if isinstance(value, tff.aggregators.WeightedAggregationFactory):
    raise TypeError(
      f'`{name}` must be unweighted, found {value!r}: weights, such as example '
      'counts, change how much one client can move the result.'
    )
  if not isinstance(value, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      f'`{name}` must be a `tff.aggregators.UnweightedAggregationFactory`, '
      f'found {value!r}.'
    )
  return value


def check_float_leaves(value_type: Any) -> tff.Type:
  """Returns `value_type` if it is a structure of floating-point tensors.

  Args:
    value_type: What `create` was called with. Its leaves are `float16`,
      `bfloat16`, `float32` or `float64` tensors with fully defined shapes, in
      Python containers.

  Raises:
    TypeError: If it is not. The message names the leaf.
  """
  if not isinstance(value_type, (tff.TensorType, tff.StructWithPythonType)):
    raise TypeError(
      '`value_type` must be a tensor type or a structure in Python containers, '
      'as `tff.to_type(collections.OrderedDict(...))` makes it, found '
      f'{value_type!r}.'
    )
  leaves = leaf_types(value_type)
  if not leaves:
    raise TypeError('`value_type` must have a tensor, found none.')
  for leaf in leaves:
    if np.dtype(leaf.dtype) not in _FLOAT_DTYPES:
      raise TypeError(
        f'`value_type` must have floating-point leaves, found {leaf} in '
        f'{value_type}.'
      )
    if leaf.shape is None or None in tuple(leaf.shape):
      raise TypeError(
        f'`value_type` must have leaves of defined shape, found {leaf} in '
        f'{value_type}.'
      )
  return value_type


def leaf_types(value_type: tff.Type) -> list[tff.TensorType]:
  """Returns the tensor types in `value_type`, in the order of `tf.nest`.

  Args:
    value_type: A tensor type or a structure.

  Raises:
    TypeError: If a leaf is something else, a sequence for example.
  """
  if isinstance(value_type, tff.TensorType):
    return [value_type]
  if not isinstance(value_type, tff.StructType):
    raise TypeError(
      f'`value_type` must be a structure of tensors, found {value_type}.'
    )
  return [
    leaf
    for _, element in tff.structure.iter_elements(value_type)
    for leaf in leaf_types(element)
  ]
