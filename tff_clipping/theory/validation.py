"""Checks of arguments: one line that names the argument, rule and value."""

import math
import numbers
from typing import Any


def check_positive(name: str, value: Any, *, allow_inf: bool = False) -> None:
  """Refuses what is not a positive number.

  Args:
    name: The argument's name.
    value: Its value.
    allow_inf: Whether infinity is a value.

  Raises:
    TypeError: `value` is no number.
    ValueError: `value` is NaN, zero or negative, or infinite where it must not.
  """
  _check_number(name, value)
  if not value > 0 or (math.isinf(value) and not allow_inf):
    rule = 'positive' if allow_inf else 'positive and finite'
    raise ValueError(f'`{name}` must be {rule}, found {value}.')


def check_non_negative(name: str, value: Any) -> None:
  """Refuses what is not a finite number of at least 0; raises as above."""
  _check_number(name, value)
  if not (value >= 0 and math.isfinite(value)):
    raise ValueError(f'`{name}` must be finite and at least 0, found {value}.')


def check_count(name: str, value: Any, *, allow_inf: bool = False) -> None:
  """Refuses what is not a whole number of at least 1; raises as above."""
  if allow_inf and isinstance(value, float) and value == math.inf:
    return
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if value < 1:
    raise ValueError(f'`{name}` must be at least 1, found {value}.')


def check_probability(name: str, value: Any) -> None:
  """Refuses what is not a number strictly between 0 and 1; raises as above."""
  _check_number(name, value)
  if not 0 < value < 1:
    raise ValueError(f'`{name}` must be between 0 and 1, found {value}.')


def _check_number(name: str, value: Any) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
