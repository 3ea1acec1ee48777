"""Rounding that never makes a cost smaller or a bound stronger."""

import decimal
import math


def round_up(value: float, *, digits: int) -> float:
  """Returns the least number of so many significant digits, not below `value`.

  Args:
    value: A finite number.
    digits: How many significant digits, at least 1.
  """
  return _round(value, digits, decimal.ROUND_CEILING)


def format_up(value: float, *, digits: int = 4) -> str:
  """Returns a cost, such as an epsilon, in text that is not below it.

  Args:
    value: A number; one that is not finite is written as it is.
    digits: How many significant digits, at least 1.
  """
  return _format(value, digits, decimal.ROUND_CEILING)


def format_down(value: float, *, digits: int = 4) -> str:
  """Returns a lower bound in text that is not above it; see `format_up`."""
  return _format(value, digits, decimal.ROUND_FLOOR)


def _format(value: float, digits: int, rounding: str) -> str:
  rounded = _round(value, digits, rounding) if math.isfinite(value) else value
  return f'{rounded:.{digits}g}'


def _round(value: float, digits: int, rounding: str) -> float:
  context = decimal.Context(prec=digits, rounding=rounding)
  # The digits as written: 1.1, and not the double 1.100...09.
  return float(context.create_decimal(repr(float(value))))
