"""When two figures of one thing are the same, on whatever processor.

Another processor, or another version of a library, gives other last digits of
an epsilon, or of a root. So figures are held together with slack where a plan
is read, or asked what it allows. Where noise is calibrated there is none.
"""

import math
import numbers
from typing import Any, Final

# Relative. Far above what rounding does, and far below what anybody reports.
SLACK: Final = 1e-9


def agree(first: Any, second: Any) -> bool:
  """Returns whether two values of one thing are the same.

  Args:
    first: Any value. Numbers, unless both are integers, have slack.
    second: The other one.
  """
  values = first, second
  if not all(isinstance(each, numbers.Real) for each in values) or all(
    isinstance(each, numbers.Integral) for each in values
  ):
    return first == second
  return math.isclose(first, second, rel_tol=SLACK)


def is_within(figure: float, limit: float) -> bool:
  """Returns whether a figure that was computed is at most a limit.

  Args:
    figure: Such as an epsilon.
    limit: Positive. The figure may be above it by the slack.
  """
  return figure <= limit * (1 + SLACK)
