"""Checks of arguments, for all of `tff_clipping`.

Each check takes the name of an argument and its value. It returns a plain
Python value, so that an `int` and a NumPy scalar are stored, hashed and written
to JSON alike. Each error is one line that names the argument, the rule and the
value: a TypeError for the type, a ValueError for the range. A bool is not a
number; a NumPy scalar is.
"""

import decimal
import math
import numbers
from collections.abc import Sequence
from typing import Any


def check_integer(
  name: str,
  value: Any,
  *,
  at_least: int | None = None,
  at_most: int | None = None,
) -> int:
  """Returns `value` as an int in [at_least, at_most].

  Args:
    name: The argument's name.
    value: What was given.
    at_least: The smallest value allowed, if there is one.
    at_most: The largest value allowed, if there is one.

  Raises:
    TypeError: If `value` is not an integer.
    ValueError: If it is out of range.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if at_least is not None and value < at_least:
    raise ValueError(f'`{name}` must be at least {at_least}, found {value}.')
  if at_most is not None and value > at_most:
    raise ValueError(f'`{name}` must be at most {at_most}, found {value}.')
  return int(value)


def check_number(name: str, value: Any) -> float:
  """Returns `value` as a finite float.

  Args:
    name: The argument's name.
    value: What was given. An int is a good float.

  Raises:
    TypeError: If `value` is not a real number.
    ValueError: If it is NaN or infinite.
  """
  number = _to_float(name, value)
  if not math.isfinite(number):
    raise ValueError(f'`{name}` must be finite, found {number}.')
  return number


def check_positive(name: str, value: Any, *, allow_inf: bool = False) -> float:
  """Returns `value` as a float above 0, finite if it must be."""
  number = _to_float(name, value)
  if not number > 0 or (math.isinf(number) and not allow_inf):
    rule = 'positive' if allow_inf else 'positive and finite'
    raise ValueError(f'`{name}` must be {rule}, found {value}.')
  return number


def check_between(name: str, value: Any, least: float, most: float) -> float:
  """Returns `value` as a positive float from `least` to `most`."""
  number = check_positive(name, value)
  if not least <= number <= most:
    raise ValueError(f'`{name}` must be from {least} to {most}, found {value}.')
  return number


def check_non_negative(name: str, value: Any) -> float:
  """Returns `value` as a finite float of at least 0; see `check_number`."""
  number = _to_float(name, value)
  if not (number >= 0 and math.isfinite(number)):
    raise ValueError(f'`{name}` must be finite and at least 0, found {value}.')
  return number


def check_probability(name: str, value: Any) -> float:
  """Returns `value` as a float strictly between 0 and 1; see `check_number`."""
  number = _to_float(name, value)
  if not 0 < number < 1:
    raise ValueError(f'`{name}` must be between 0 and 1, found {value}.')
  return number


def check_seed(name: str, value: Any) -> int:
  """Returns the seed of a run as an int from 0 to 2**62 - 1."""
  return check_integer(name, value, at_least=0, at_most=2**62 - 1)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
  """Returns `value` if it is one of `choices`.

  Args:
    name: The argument's name.
    value: What was given.
    choices: The strings allowed.

  Raises:
    TypeError: If `value` is not a string.
    ValueError: If it is none of `choices`.
  """
  if not isinstance(value, str):
    raise TypeError(f'`{name}` must be a string, found {value!r}.')
  if value not in choices:
    listed = ', '.join(repr(choice) for choice in choices)
    raise ValueError(f'`{name}` must be one of {listed}, found {value!r}.')
  return value


def parse_integer(text: str) -> int:
  """Returns the whole number that a text spells, such as 1e6 or 80.0.

  Args:
    text: What was given, of at most 40 digits.

  Raises:
    ValueError: If it is not a whole number.
  """
  try:
    number = decimal.Decimal(text)
    # A seed has up to 128 bits.
    if number != number.to_integral_value() or abs(number) > 10**40:
      raise ValueError
    return int(number)
  except (ArithmeticError, TypeError, ValueError) as error:
    raise ValueError(f'{text!r} is not a whole number') from error


def _to_float(name: str, value: Any) -> float:
  """Returns a number as a float, infinite if it is too large for one."""
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  try:
    return float(value)
  except OverflowError:
    return math.inf if value > 0 else -math.inf
