"""Converts between Python values and flat lists of arrays, by TFF type."""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def federated_leaves(type_spec: tff.Type | None) -> list[tff.FederatedType]:
  """Returns the federated types in `type_spec`, in order.

  Args:
    type_spec: A federated type, a structure of them, or `None`.

  Raises:
    TypeError: If a leaf of `type_spec` is not federated.
  """
  if type_spec is None:
    return []
  if isinstance(type_spec, tff.FederatedType):
    return [type_spec]
  if isinstance(type_spec, tff.StructType):
    return [f for t in type_spec for f in federated_leaves(t)]
  raise TypeError(f'Expected a federated type, found {type_spec}.')


def federated_values(value, type_spec: tff.Type) -> list:
  """Returns the part of `value` for each of `federated_leaves(type_spec)`."""
  if isinstance(type_spec, tff.FederatedType):
    return [value]
  return [
    leaf
    for element, element_type in zip(
      _elements(value, type_spec), type_spec, strict=True
    )
    for leaf in federated_values(element, element_type)
  ]


def flatten(value, type_spec: tff.Type) -> list:
  """Returns the leaves of `value`, checked and converted to `type_spec`.

  Args:
    value: A Python structure: the containers may be any that TFF accepts for
      `type_spec` (`tff.structure.Struct`, mappings, named tuples, attrs
      classes, sequences).
    type_spec: An unplaced TFF type.

  Returns:
    A list with a NumPy array for each tensor and a `tf.data.Dataset` for each
    sequence of `type_spec`, in order.

  Raises:
    TypeError: If `value` is not of the structure, dtypes and shapes of
      `type_spec`.
  """
  if isinstance(type_spec, tff.TensorType):
    return [_to_array(value, type_spec)]
  if isinstance(type_spec, tff.SequenceType):
    return [_to_dataset(value, type_spec)]
  if isinstance(type_spec, tff.StructType):
    return [
      leaf
      for element, element_type in zip(
        _elements(value, type_spec), type_spec, strict=True
      )
      for leaf in flatten(element, element_type)
    ]
  raise TypeError(f'A value of type {type_spec} cannot be passed in.')


def unflatten(leaves: Sequence, type_spec: tff.Type):
  """Returns `leaves` in the Python containers of `type_spec`.

  Args:
    leaves: One array for each tensor of `type_spec`, in order.
    type_spec: A TFF type; federated types in it are placed at the server.

  Returns:
    What TFF's native context returns for a result of this type.
  """
  remaining = iter(leaves)
  value = _unflatten(remaining, type_spec)
  assert next(remaining, None) is None
  return tff.types.type_to_py_container(value, type_spec)


def num_tensors(type_spec: tff.Type) -> int:
  """Returns the number of tensors in `type_spec`."""
  if isinstance(type_spec, tff.FederatedType):
    return num_tensors(type_spec.member)
  if isinstance(type_spec, tff.StructType):
    return sum(num_tensors(t) for t in type_spec)
  return 1


def _unflatten(leaves: Iterator, type_spec: tff.Type):
  if isinstance(type_spec, tff.FederatedType):
    value = _unflatten(leaves, type_spec.member)
    return tff.types.type_to_py_container(value, type_spec.member)
  if isinstance(type_spec, tff.StructType):
    return tff.structure.Struct(
      [
        (name, _unflatten(leaves, element_type))
        for name, element_type in tff.structure.iter_elements(type_spec)
      ]
    )
  return next(leaves)


def _elements(value, type_spec: tff.StructType) -> list:
  """Returns the elements of the container `value`, in the type's order."""
  names = [name for name, _ in tff.structure.iter_elements(type_spec)]
  if attrs.has(type(value)):
    value = attrs.asdict(value, recurse=False)
  elif hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, tff.structure.Struct):
    found = list(tff.structure.iter_elements(value))
    if len(found) != len(names) or any(
      f is not None and f != n for (f, _), n in zip(found, names, strict=True)
    ):
      raise TypeError(f'Expected a value of type {type_spec}, found {value}.')
    return [v for _, v in found]
  if isinstance(value, Mapping):
    if set(value) != set(names):
      raise TypeError(
        f'Expected a structure with the fields {names}, found {list(value)}.'
      )
    return [value[name] for name in names]
  if isinstance(value, (list, tuple)) and len(value) == len(names):
    return list(value)
  raise TypeError(
    f'Expected a value of type {type_spec}, found one of {type(value)}.'
  )


def _to_array(value, type_spec: tff.TensorType):
  """Returns `value` as an array, or raises if that would change it."""
  if isinstance(value, tf.Tensor):
    value = value.numpy()
  dtype = tf.as_dtype(type_spec.dtype).as_numpy_dtype
  if dtype is np.str_ or dtype is np.bytes_:
    dtype = object
  if not isinstance(value, (np.ndarray, np.generic)):
    # A Python number, string or nested list takes the dtype of the type, as
    # long as it is of that kind.
    found = np.asarray(value)
    if dtype is not object and not np.can_cast(found.dtype, dtype, 'same_kind'):
      raise TypeError(f'Expected a value of type {type_spec}, found {value!r}.')
    array = found if dtype is object else found.astype(dtype)
  else:
    array = np.asarray(value)
    is_string = array.dtype.kind in 'OSU'
    if is_string != (dtype is object) or not (
      is_string or array.dtype == dtype
    ):
      raise TypeError(
        f'Expected a value of type {type_spec}, found an array of dtype '
        f'{array.dtype}.'
      )
  if not tf.TensorShape(type_spec.shape).is_compatible_with(array.shape):
    raise TypeError(
      f'Expected a value of type {type_spec}, found an array of shape '
      f'{array.shape}.'
    )
  return array


def _to_dataset(value, type_spec: tff.SequenceType) -> tf.data.Dataset:
  """Returns `value` as a data set with elements of the sequence's type."""
  element_type = type_spec.element
  if not isinstance(value, tf.data.Dataset):
    return _dataset_from_elements(value, element_type)
  found = tff.types.tensorflow_to_type(value.element_spec)
  if not element_type.is_assignable_from(found):
    raise TypeError(
      f'Expected a data set of elements of type {element_type}, found '
      f'elements of type {found}.'
    )
  return value


def _dataset_from_elements(
  elements: Sequence, element_type: tff.Type
) -> tf.data.Dataset:
  """Returns a data set of a list of elements, which may differ in shape."""
  specs = tff.types.type_to_tf_tensor_specs(element_type)
  flat_specs = tf.nest.flatten(specs)
  rows = [flatten(element, element_type) for element in elements]
  datasets = [
    tf.data.Dataset.from_tensors(tuple(tf.constant(leaf) for leaf in row))
    for row in rows
  ]
  if not datasets:
    datasets = [
      tf.data.Dataset.from_tensors(
        tuple(
          tf.zeros([d or 0 for d in spec.shape], spec.dtype)
          for spec in flat_specs
        )
      ).take(0)
    ]
  joined = datasets[0]
  for dataset in datasets[1:]:
    joined = joined.concatenate(dataset)
  return joined.map(lambda *leaves: tf.nest.pack_sequence_as(specs, leaves))
