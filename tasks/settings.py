"""Settings that are declared once: name, type, default, range and help.

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Config:
    num_rounds: int = setting('T.', check=at_least(1))

    def __post_init__(self):
      check_settings(self)

`flags_of_settings` makes a flag of each field.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

Check = Callable[[str, Any], None]


def setting(
  text: str, default: Any = dataclasses.MISSING, *, check: Check | None = None
) -> Any:
  """Returns a dataclass field.

  Args:
    text: What it is, in a sentence; the help of its flag.
    default: Its default; without one it must be given. A `None` is 'not given'.
    check: Raises TypeError or ValueError for a value that is none.
  """
  return dataclasses.field(
    default=default, metadata={'help': text, 'check': check}
  )


def check_settings(settings: Any) -> None:
  """Raises for the first field of a dataclass whose value is none of its own.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If it is out of range.
  """
  for field in dataclasses.fields(settings):
    value = getattr(settings, field.name)
    check = field.metadata['check']
    if check is None or (value is None and field.default is None):
      continue
    for one in value if isinstance(value, tuple) else (value,):
      check(field.name, one)


def at_least(smallest: int) -> Check:
  """Returns the check of an integer; of a tuple, it is that of each."""

  def check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
      raise TypeError(f'`{name}` must be an integer, found {value!r}.')
    if value < smallest:
      raise ValueError(f'`{name}` must be at least {smallest}, found {value}.')

  return check


def positive(name: str, value: Any) -> None:
  """The check of a positive, finite number."""
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  if not (value > 0 and math.isfinite(value)):
    raise ValueError(f'`{name}` must be positive and finite, found {value}.')


def one_of(*choices: str) -> Check:
  """Returns the check of a name."""

  def check(name: str, value: Any) -> None:
    if value not in choices:
      raise ValueError(
        f'`{name}` must be one of {", ".join(choices)}, found {value!r}.'
      )

  return check
