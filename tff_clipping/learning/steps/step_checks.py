"""The checks of an argument that must be a local step."""

from typing import Any

from tff_clipping.learning.steps.keeping_step import KeepingStep
from tff_clipping.learning.steps.local_step import LocalStep


def check_is_step(name: str, value: Any) -> None:
  """Raises TypeError unless the argument called `name` is a `LocalStep`.

  Args:
    name: The argument's name.
    value: What was given.
  """
  if not isinstance(value, LocalStep):
    raise TypeError(
      f'`{name}` must be a `tff_clipping.learning.steps.LocalStep`, such as '
      f'`Sgd()`, found {value!r}.'
    )


def check_keeps_nothing(name: str, value: Any) -> None:
  """Raises unless the argument called `name` keeps nothing between rounds.

  Args:
    name: The argument's name.
    value: What was given.

  Raises:
    TypeError: If it is not a `LocalStep`.
    ValueError: If its clients keep something.
  """
  check_is_step(name, value)
  if isinstance(value, KeepingStep):
    raise ValueError(
      f'`{name}` must keep nothing from round to round here, found {value!r}; '
      'it is for `build_fed_avg`, and takes other steps as its own `step`.'
    )
