"""Numbers as float32, with a warning of whole numbers that it does not hold.

Above 2²⁴ they are no longer all apart: what tells two examples from each other
may be lost, for example where a feature is an id or a time in seconds.
"""

import warnings
from collections.abc import Callable

import numpy as np

from tasks.data.datasets import data_files

_ALL_APART = 2**24
# From here on a number of float64 is whole by its size.
_ALL_WHOLE = 2**53
_NAMED = 5


def convert(
  array: np.ndarray, name_of: Callable[[tuple[int, ...]], str]
) -> np.ndarray:
  """Returns numbers as float32, infinite where they are too large.

  Args:
    array: [examples, ...] integers or floating-point numbers.
    name_of: Returns what the numbers at a place of each example are called.
  """
  with np.errstate(over='ignore', invalid='ignore'):
    converted = array.astype(np.float32, copy=False)
    is_large = (array > _ALL_APART) | (array < -_ALL_APART)
    if is_large.any():
      _warn_of_rounded(array, converted, is_large, name_of)
  return converted


def _warn_of_rounded(array, converted, is_large, name_of) -> None:
  if array.dtype.kind == 'f':
    is_large &= (abs(array) < _ALL_WHOLE) & (array == np.floor(array))
  _, *columns = np.nonzero(is_large)
  given, found = array[is_large], converted[is_large]
  # Wide enough for every integer.
  is_rounded = given.astype(np.longdouble) != found.astype(np.longdouble)
  if not is_rounded.any():
    return
  places = dict.fromkeys(
    zip(*(c[is_rounded].tolist() for c in columns), strict=True)
    if columns
    else [()]
  )
  names = [name_of(place) for place in list(places)[:_NAMED]]
  more = f' and {len(places) - _NAMED} more' if len(places) > _NAMED else ''
  first = is_rounded.argmax()
  warnings.warn(
    f'{", ".join(names)}{more} should be whole numbers up to 2**24, as float32 '
    f'has them: {int(given[first])} becomes {int(found[first])}. Of ids, leave '
    'the column out or make categories of it; of large numbers, subtract one '
    'that they have in common.',
    data_files.DataWarning,
    stacklevel=5,
  )
