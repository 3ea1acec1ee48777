"""The check of a setting or of data: the argument, the rule, what was found."""

from typing import Any


def check(argument: str, holds: Any, must: str, found: Any) -> None:
  """Raises a ValueError unless a rule holds.

  `must` is the rule, such as 'must be at least 1', and `found` ends the
  sentence, without its dot.
  """
  if not holds:
    raise ValueError(f'`{argument}` {must}, found {found}.')
