"""The checks of arguments that are local steps, and of those of one."""

import math
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import l2_clip
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


def check_keeping(clipping_norm: float, step: Any) -> None:
  """Raises unless a `KeepingStep` may have these.

  Args:
    clipping_norm: Its clipping norm.
    step: The step that it changes.

  Raises:
    TypeError: If one is of the wrong kind.
    ValueError: If `clipping_norm` is neither positive nor infinite, or clients
      keep something for `step`.
  """
  if clipping_norm != math.inf:
    l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  check_keeps_nothing('step', step)


def check_participation(participation: float) -> None:
  """Raises unless P/N is in (0, 1].

  Args:
    participation: P/N.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is out of range.
  """
  argument_checks.check_positive('participation', participation)
  if participation > 1:
    raise ValueError(
      f'`participation` must be at most 1, found {participation}.'
    )
