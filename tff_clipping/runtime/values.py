"""Converts between Python values and flat lists of arrays, by TFF type.

A value is checked and never changed in silence: it must have the kind and the
shape of its type, and fit in it. Errors are `TypeError`s, as in TFF, also for a
number that is out of range.
"""

import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime import sequences

# Where a value is in the argument of a computation: names and positions.
Path = tuple[str | int, ...]

# What `detached` has returned and is still in use, by `id`.
_detached: weakref.WeakValueDictionary[int, np.ndarray] = (
  weakref.WeakValueDictionary()
)


def federated_parts(
  value, type_spec: tff.Type, path: Path = ()
) -> list[tuple[Path, object, tff.FederatedType]]:
  """Returns the path, the value and the type of each federated part, in order.

  Raises:
    TypeError: If `value` is not of the structure of `type_spec`.
  """
  if isinstance(type_spec, tff.FederatedType):
    return [(path, value, type_spec)]
  return [
    part
    for key, element, element_type in _struct_elements(value, type_spec, path)
    for part in federated_parts(element, element_type, (*path, key))
  ]


def flatten(
  value, type_spec: tff.Type, path: Path = (), *, by_value: bool = False
) -> list:
  """Returns the leaves of `value`, checked and converted to `type_spec`.

  Args:
    value: A Python structure: the containers may be any that TFF accepts for
      `type_spec` (`tff.structure.Struct`, mappings, named tuples, attrs
      classes, sequences).
    type_spec: An unplaced TFF type.
    path: Where `value` is in the argument, for messages.
    by_value: Whether an array is taken for a list of numbers, as TFF does
      inside of sequences.

  Returns:
    A list with a NumPy array for each tensor and a `tf.data.Dataset` for each
    sequence of `type_spec`, in order.

  Raises:
    TypeError: If `value` is not of the structure, kinds and shapes of
      `type_spec`, or does not fit in it.
  """
  if isinstance(type_spec, tff.TensorType):
    return [_to_array(value, type_spec, path, by_value)]
  if isinstance(type_spec, tff.SequenceType):
    return [_to_dataset(value, type_spec, path)]
  if isinstance(type_spec, tff.StructType):
    return [
      leaf
      for key, element, element_type in _struct_elements(value, type_spec, path)
      for leaf in flatten(
        element, element_type, (*path, key), by_value=by_value
      )
    ]
  raise TypeError(
    f'{name_of(path)} must be of a type with values, found {type_spec}.'
  )


def unflatten(leaves: Sequence, type_spec: tff.Type):
  """Returns `leaves` in the Python containers of `type_spec`.

  Args:
    leaves: One array for each tensor of `type_spec`, and what
      `sequences.elements` takes for each sequence, in order.
    type_spec: A TFF type; federated types in it are placed at the server.

  Returns:
    What TFF's native context returns for a result of this type; but for a
    sequence the list of its elements, in place of a data set.
  """
  remaining = iter(leaves)
  value = _unflatten(remaining, type_spec)
  assert next(remaining, None) is None
  return tff.types.type_to_py_container(value, type_spec)


def detached(leaves: Sequence, arguments: Sequence) -> list:
  """Returns a session's results such that nobody can change them.

  A session returns its graph's constants and its arguments without a copy.
  Arguments that are earlier results, such as the model in a state, need none.

  Args:
    leaves: What the session returned.
    arguments: The session's arguments.
  """
  arrays = [
    leaf
    for leaf in arguments
    if isinstance(leaf, np.ndarray) and not _is_detached(leaf)
  ]
  starts = np.array([a.ctypes.data for a in arrays], np.uint64)
  ends = starts + np.array([a.nbytes for a in arrays], np.uint64)

  def one(leaf):
    if not isinstance(leaf, np.ndarray):
      return leaf
    start = leaf.ctypes.data
    is_fed = np.any((starts < start + leaf.nbytes) & (start < ends))
    result = read_only(leaf.copy() if is_fed else leaf)
    _detached[id(result)] = result
    return result

  return [one(leaf) for leaf in leaves]


def _is_detached(leaf: np.ndarray) -> bool:
  return _detached.get(id(leaf)) is leaf and not leaf.flags.writeable


def read_only(array: np.ndarray) -> np.ndarray:
  """Returns an array that cannot be written, on the same memory."""
  view = array.view()
  view.flags.writeable = False
  return view


def num_tensors(type_spec: tff.Type) -> int:
  """Returns the number of tensors in `type_spec`."""
  return sum(
    num_tensors(leaf.member) if isinstance(leaf, tff.FederatedType) else 1
    for leaf in tff.structure.flatten(type_spec)
  )


def _struct_elements(
  value, type_spec: tff.StructType, path: Path
) -> list[tuple[str | int, object, tff.Type]]:
  """Returns the name or position, the value and the type of each element."""
  types = list(tff.structure.iter_elements(type_spec))
  names = [name for name, _ in types]
  try:
    found = list(
      tff.structure.iter_elements(tff.structure.from_container(value))
    )
  except (TypeError, ValueError) as e:
    raise _wrong(path, type_spec, value) from e
  by_name = dict(found)
  if None not in by_name and set(by_name) == set(names):
    found = [(name, by_name[name]) for name in names]
  if len(found) != len(names) or any(
    f not in (None, n) for (f, _), n in zip(found, names, strict=True)
  ):
    raise _wrong(path, type_spec, value)
  return [
    (i if name is None else name, part, element_type)
    for i, ((name, element_type), (_, part)) in enumerate(
      zip(types, found, strict=True)
    )
  ]


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
  if isinstance(type_spec, tff.SequenceType):
    return sequences.elements(next(leaves), type_spec.element)
  return next(leaves)


def _to_array(value, type_spec: tff.TensorType, path: Path, by_value: bool):
  """Returns `value` as an array, or raises if that would change it.

  Python's numbers have no dtype: they take that of the type, where they fit,
  and an integer is a good float. An array keeps its own, and must be of that of
  the type or a smaller one; `by_value` takes it for a list of numbers, as TFF
  does inside of sequences. Floats are rounded.
  """
  if isinstance(value, (tf.Tensor, tf.Variable)):
    value = value.numpy()
  dtype = tf.as_dtype(type_spec.dtype)
  by_value = by_value or not isinstance(value, (np.ndarray, np.generic))
  if dtype == tf.string:
    # Not as NumPy's own strings, which lose zero bytes at their end.
    given = np.asarray(value, object)
    if not all(isinstance(x, (str, bytes)) for x in given.flat):
      raise _wrong(path, type_spec, value)
    array = np.empty(given.shape, object)
    for i, x in np.ndenumerate(given):
      array[i] = x.encode() if isinstance(x, str) else bytes(x)
  else:
    try:
      array = np.asarray(value)
      found = tf.as_dtype(array.dtype)
    except (TypeError, ValueError) as e:
      raise _wrong(path, type_spec, value) from e
    if found != dtype:
      array = _cast(array, dtype, by_value)
    if array is None:
      raise _wrong(path, type_spec, value)
  if not tf.TensorShape(type_spec.shape).is_compatible_with(array.shape):
    raise TypeError(
      f'{name_of(path)} must be of type {type_spec}, found a value of shape '
      f'{array.shape}.'
    )
  return array


def _cast(array: np.ndarray, dtype: tf.DType, by_value: bool):
  """Returns `array` with another dtype, or `None` if it does not fit."""
  target = dtype.as_numpy_dtype
  if array.dtype == object:
    # Integers beyond 64 bits, and what is not a number.
    return None
  kinds = _kind(tf.as_dtype(array.dtype)), _kind(dtype)
  if not by_value:
    is_safe = np.can_cast(array.dtype, target, 'safe')
    return array.astype(target) if kinds[0] == kinds[1] and is_safe else None
  if kinds not in (
    ('integer', 'integer'),
    ('integer', 'float'),
    ('float', 'float'),
    ('float', 'complex'),
    ('complex', 'complex'),
  ):
    # An empty list has no kind.
    return array.astype(target) if not array.size else None
  with np.errstate(over='ignore'):
    cast = array.astype(target)
  if kinds[0] == 'integer':
    # Wide enough for every integer.
    fits = np.array_equal(cast.astype(np.longdouble), array)
  else:
    fits = np.array_equal(np.isfinite(cast), np.isfinite(array))
  return cast if fits else None


def _kind(dtype: tf.DType) -> str:
  if dtype.is_integer:
    return 'integer'
  if dtype.is_floating:
    return 'float'
  return 'complex' if dtype.is_complex else dtype.name


def _to_dataset(value, type_spec: tff.SequenceType, path: Path):
  """Returns `value` as a data set with elements of the sequence's type."""
  element_type = type_spec.element
  if isinstance(value, tf.data.Dataset):
    found = tff.types.tensorflow_to_type(value.element_spec)
    if not element_type.is_assignable_from(found):
      raise TypeError(
        f'{name_of(path)} must be a data set of elements of type '
        f'{element_type}, with its fields in their order, found elements of '
        f'type {found}.'
      )
    return value
  if not isinstance(value, (list, tuple)):
    raise _wrong(path, type_spec, value)
  rows = [
    flatten(element, element_type, (*path, i), by_value=True)
    for i, element in enumerate(value)
  ]
  return sequences.dataset_of_rows(rows, element_type)


def _wrong(path: Path, type_spec: tff.Type, value) -> TypeError:
  """Returns the error of a value that is not of its type."""
  text = repr(value)
  text = text if len(text) <= 80 else text[:77] + '...'
  kind = getattr(value, 'dtype', None)
  return TypeError(
    f'{name_of(path)} must be of type {type_spec} and fit in it, found {text}'
    f'{f" of type {kind}" if kind is not None else ""}.'
  )


def name_of(path: Path) -> str:
  """Returns the name of a part of an argument: `clients[2].size`."""
  root, steps = ('argument', path)
  if path and isinstance(path[0], str):
    root, steps = path[0], path[1:]
  text = ''.join(f'.{s}' if isinstance(s, str) else f'[{s}]' for s in steps)
  return f'`{root}{text}`'
