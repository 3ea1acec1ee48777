"""Comparison of figures that another processor may have computed.

Processors and versions of libraries differ in the last digits of an epsilon or
a root. So the comparisons of a plan that is read, and of the releases that it
allows, have slack. The calibration of noise has none.
"""

import math
import numbers
from typing import Any, Final

# Relative: far above rounding errors, and far below what anybody reports.
SLACK: Final = 1e-9


def agree(first: Any, second: Any) -> bool:
  """Returns whether two values are the same, but for the slack of numbers.

  Args:
    first: Any value. Two integers have no slack.
    second: The other value.
  """
  values = first, second
  if not all(isinstance(each, numbers.Real) for each in values) or all(
    isinstance(each, numbers.Integral) for each in values
  ):
    return first == second
  return math.isclose(first, second, rel_tol=SLACK)


def is_within(figure: float, limit: float) -> bool:
  """Returns whether a figure is at most a limit, but for the slack.

  Args:
    figure: Such as an epsilon.
    limit: Positive.
  """
  return figure <= limit * (1 + SLACK)
