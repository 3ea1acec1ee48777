"""Rounding that never makes a cost smaller than it is."""

import decimal


def round_up(value: float, *, digits: int) -> float:
  """Returns the least number of so many significant digits, not below `value`.

  Args:
    value: A finite number.
    digits: How many significant digits, at least 1.
  """
  context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
  return float(context.create_decimal(value))
