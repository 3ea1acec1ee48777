"""Settings that are declared once: name, type, default, range and help.

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Config:
    num_rounds: int = setting('T.', check=at_least(1))

    def __post_init__(self):
      check_settings(self)

`flags_of_settings` makes a flag of each field.
"""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

from tff_clipping import argument_checks

Check = Callable[[str, Any], Any]
# Of a finite number.
positive: Check = argument_checks.check_positive

# Of a count: far above any that can be run, and below what TensorFlow takes.
LARGEST = 10**9
# Of a seed: what `RunFolder` draws, at most.
LARGEST_SEED = 2**128 - 1


def setting(
  text: str, default: Any = dataclasses.MISSING, *, check: Check | None = None
) -> Any:
  """Returns a dataclass field.

  Args:
    text: What it is, in a sentence; the help of its flag.
    default: Its default; without one it must be given. A `None` is 'not given'.
    check: Raises TypeError or ValueError for a wrong value.
  """
  return dataclasses.field(
    default=default, metadata={'help': text, 'check': check}
  )


def check_settings(settings: Any) -> None:
  """Raises for the first field of a dataclass whose value its check refuses.

  NumPy's scalars become Python's, as the files of a run have them.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If it is out of range.
  """
  for field in dataclasses.fields(settings):
    value = getattr(settings, field.name)
    if isinstance(value, numbers.Number) and hasattr(value, 'item'):
      value = value.item()
      object.__setattr__(settings, field.name, value)
    check = field.metadata['check']
    if check is None or (value is None and field.default is None):
      continue
    for one in value if isinstance(value, tuple) else (value,):
      check(field.name, one)


def at_least(smallest: int, at_most: int = LARGEST) -> Check:
  """Returns the check of an integer; of a tuple, it is that of each."""

  def check(name: str, value: Any) -> None:
    argument_checks.check_integer(
      name, value, at_least=smallest, at_most=at_most
    )

  return check


def one_of(*choices: str) -> Check:
  """Returns the check of a name."""

  def check(name: str, value: Any) -> None:
    argument_checks.check_choice(name, value, choices)

  return check
