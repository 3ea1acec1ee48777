"""Checks of factories, and of the types of the values that they aggregate."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_FLOAT_DTYPES = tuple(
  np.dtype(d.as_numpy_dtype)
  for d in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
)


def check_factory(name: str, value: Any) -> tff.aggregators.AggregationFactory:
  """Returns `value` if it is an aggregation factory, weighted or not.

  Args:
    name: The argument's name in the message.
    value: What the user passed.

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
  name: str, value: Any
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns `value` if it is an unweighted aggregation factory.

  Args:
    name: The argument's name in the message.
    value: What the user passed.

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
  leaves = tff.structure.flatten(value_type)
  if not leaves:
    raise TypeError('`value_type` must have a tensor, found none.')
  for leaf in leaves:
    if not isinstance(leaf, tff.TensorType):
      raise TypeError(
        f'`value_type` must be a structure of tensors, found {leaf}.'
      )
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
