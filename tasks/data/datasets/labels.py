"""What the labels of an output are, and which arrays are such labels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tasks.data.datasets import float32

CLASSES = 'classes'
"""int32 [n], from 0; or [n, length], one for each position."""

NUMBERS = 'numbers'
"""float32 [n, ...], of a row of one at least: what is measured."""

AS_GIVEN = 'as_given'
"""Integers are classes, and others are numbers."""

_INT32 = np.iinfo(np.int32)


def check(name: str, array: Any, kind: str) -> np.ndarray:
  """Returns labels in the type that they have in a task.

  Args:
    name: What they are called, for errors.
    array: [n, ...].
    kind: One of the three above.

  Raises:
    ValueError: If they are not of this kind.
  """
  array = np.asarray(array)
  if kind == AS_GIVEN:
    kind = CLASSES if array.dtype.kind in 'iu' else NUMBERS
  return (
    _check_classes(name, array)
    if kind == CLASSES
    else _check_numbers(name, array)
  )


def to_int32(name: str, array: np.ndarray) -> np.ndarray:
  """Returns integers as int32.

  Raises:
    ValueError: If one does not fit.
  """
  if array.min() < _INT32.min or array.max() > _INT32.max:
    raise ValueError(
      f'`{name}` must fit into int32, found {array.min()} to {array.max()}.'
    )
  return array.astype(np.int32, copy=False)


def to_finite_float32(
  name: str, array: np.ndarray, name_of: Callable[[tuple[int, ...]], str]
) -> np.ndarray:
  """Returns numbers as float32.

  Args:
    name: What the array is called.
    array: [n, ...].
    name_of: Returns what the numbers at a place of each example are called.

  Raises:
    ValueError: If one is not finite.
  """
  converted = float32.convert(array, name_of)
  if not np.isfinite(converted).all():
    place = np.argwhere(~np.isfinite(converted))[0]
    raise ValueError(
      f'`{name}` must be finite in float32, found {array[tuple(place)]} at '
      f'`{name}{place.tolist()}`.'
    )
  return converted


def _check_numbers(name: str, array: np.ndarray) -> np.ndarray:
  if array.ndim < 1 or not array.size or array.dtype.kind not in 'biuf':
    raise ValueError(
      f'`{name}` must be numbers [examples] or [examples, ...], found '
      f'{array.dtype}{list(array.shape)}.'
    )
  # As the models give them: a loss of a user's own broadcasts nothing.
  array = array[:, None] if array.ndim == 1 else array
  return to_finite_float32(name, array, lambda _: f'`{name}`')


def _check_classes(name: str, array: np.ndarray) -> np.ndarray:
  if array.ndim not in (1, 2) or not array.size:
    raise ValueError(
      f'`{name}` must be labels [examples] or [examples, length], '
      f'found the shape {list(array.shape)}.'
    )
  if array.ndim == 2 and array.shape[1] > 1 and _is_one_hot(array):
    raise ValueError(
      f'`{name}` must be labels [examples], found a row of 0 with one 1 for '
      'each example: `.argmax(axis=1)` makes labels of it.'
    )
  if array.dtype.kind not in 'iu':
    raise ValueError(
      f'`{name}` must be integers, the classes from 0, found {array.dtype}, '
      f'for example {_not_whole(array)!r}. Names of classes: `numpy.unique(y, '
      'return_inverse=True)[1]`; whole numbers of another type: '
      '`.astype(int)`. Numbers are learned with a `loss` for them, such as '
      'mean_squared_error.'
    )
  if array.ndim == 2 and array.shape[1] == 1:
    raise ValueError(
      f'`{name}` must be labels [examples], found the shape '
      f'{list(array.shape)}: `.ravel()` makes it so.'
    )
  if array.min() < 0:
    raise ValueError(f'`{name}` must be classes from 0, found {array.min()}.')
  return to_int32(name, array)


def _is_one_hot(array: np.ndarray) -> bool:
  return array.dtype.kind in 'biuf' and bool(
    np.isin(array, (0, 1)).all() and np.all(array.sum(axis=1) == 1)
  )


def _not_whole(array: np.ndarray) -> Any:
  """Returns the first number that is not whole, or the first of all."""
  if array.dtype.kind == 'f':
    found = array[array != np.floor(array)]
    if found.size:
      return found.flat[0]
  return array.flat[0]
