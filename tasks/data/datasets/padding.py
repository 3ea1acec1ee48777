"""Whether 0 is padding in rows of labels, or a class like the others.

A row has a label for each position. Where rows differ in length they are filled
up, and what fills them is not to be learned or counted. Whether 0 does that
cannot be read off the labels alone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


def decide(
  parts: Mapping[str, tuple[np.ndarray, np.ndarray]], given: Any = None
) -> bool:
  """Returns whether 0 is padding.

  Args:
    parts: What each `y` is called, with `x` and `y`.
    given: What the user says; `None` for nothing: then it is plain if no label
      is 0, or if labels and examples are 0 together, at the ends of rows alone.

  Raises:
    ValueError: If nothing says it, or `given` is no answer.
  """
  if given is not None:
    if not isinstance(given, (bool, np.bool_)):
      raise ValueError(f'`has_padding` must be True or False, found {given!r}.')
    if given and not parts:
      raise ValueError(
        '`has_padding` must be given for classes alone, found True for numbers.'
      )
    if given and any(y.ndim == 1 for _, y in parts.values()):
      raise ValueError(
        '`has_padding` must be False for labels [examples], found True.'
      )
    return bool(given)
  if not any(y.ndim > 1 and (y == 0).any() for _, y in parts.values()):
    return False
  if all(_is_plain(x, y) for x, y in parts.values()):
    return True
  name, (_, y) = next(iter(parts.items()))
  several = (
    ' If its rows of 0 and 1 say which of several classes an example has, give '
    '`loss` binary_crossentropy.'
    if y.max() == 1
    else ''
  )
  raise ValueError(
    f'`{name}` has rows of labels, with 0 among them: `has_padding` must say '
    'what it is, True where 0 fills up short rows and does not count, False '
    f'where it is a class.{several}'
  )


def _is_plain(x: np.ndarray, y: np.ndarray) -> bool:
  """Whether the ends of rows are 0 in both, and nothing else is.

  Labels may be those of the next position, whose rows end one earlier.
  """
  if x.shape[:2] != y.shape:
    return False
  filled, labels = (x == 0).reshape(*y.shape, -1).all(axis=-1), y == 0
  is_at_ends = all(
    (zeros[:, 1:] >= zeros[:, :-1]).all() for zeros in (filled, labels)
  )
  after = labels[:, :-1] <= filled[:, 1:]
  # Labels that are 0 for another reason have examples that are not.
  is_shown = filled.any() or not labels.any()
  return bool(
    is_shown and is_at_ends and (filled <= labels).all() and after.all()
  )
