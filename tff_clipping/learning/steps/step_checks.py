"""The check of an argument that must be a local step."""

from typing import Any

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
