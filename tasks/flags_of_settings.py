"""Flags of the fields of a dataclass, and their values."""

import dataclasses
import typing
from typing import Any

from absl import flags

# The flags belong to the binary that asks for them.
flags.disclaim_key_flags()

_DEFINE = {
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  bool: flags.DEFINE_bool,
}


def define_flags(settings: type) -> None:
  """Defines a flag for each field of a dataclass of `settings.setting`s.

  A field of integers, a tuple, is a list with commas.
  """
  for field in dataclasses.fields(settings):
    required = field.default is dataclasses.MISSING
    default = None if required else field.default
    text = field.metadata['help']
    if typing.get_origin(field.type) is tuple:
      flags.DEFINE_list(field.name, list(map(str, default)), text)
    else:
      _DEFINE[_kind(field.type)](field.name, default, text)


def read_flags(settings: type, *, given_only: bool = False) -> dict[str, Any]:
  """Returns the values of the flags of a dataclass's fields.

  Args:
    settings: The dataclass.
    given_only: Whether to leave out flags that were not given.

  Raises:
    ValueError: If a flag of integers holds something else.
  """
  values = {}
  for field in dataclasses.fields(settings):
    flag = flags.FLAGS[field.name]
    if given_only and not flag.present:
      continue
    value = flag.value
    if typing.get_origin(field.type) is tuple:
      value = tuple(_integer(field.name, text) for text in value)
    values[field.name] = value
  return values


def _integer(name: str, text: str) -> int:
  try:
    return int(text)
  except ValueError:
    raise ValueError(
      f'`{name}` must be integers with commas, found {text!r}.'
    ) from None


def _kind(annotation: Any) -> type:
  """The type of a field, without the `None` of one that need not be given."""
  (kind,) = {*(typing.get_args(annotation) or (annotation,))} - {type(None)}
  return kind
