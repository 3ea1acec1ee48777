"""Flags of the fields of a dataclass, and their values."""

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from absl import flags

from tff_clipping import argument_checks

# The flags belong to the binary that asks for them.
flags.disclaim_key_flags()


class _IntegerParser(flags.ArgumentParser):
  """Takes whole numbers for a flag, also as 1e6 or 80.0."""

  syntactic_help = 'a whole number'

  def parse(self, argument: str | int) -> int:
    """Returns the number; see the base class."""
    return argument_checks.parse_integer(str(argument))

  def flag_type(self) -> str:
    """Returns the name of the kind; see the base class."""
    return 'int'


def _define_integer(name: str, default: int | None, text: str) -> None:
  flags.DEFINE(
    *(_IntegerParser(), name, default, text),
    serializer=flags.ArgumentSerializer(),
  )


_DEFINE = {
  int: _define_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  bool: flags.DEFINE_bool,
}


def define_flags(
  settings: type, *, required: str = 'Required.', but: type | None = None
) -> None:
  """Defines a flag for each field of a dataclass of `settings.setting`s.

  A field that is a tuple, of integers or of strings, is a list with commas. One
  that is no `setting` has no flag.

  Args:
    settings: The dataclass.
    required: What the help of a field without a default ends with.
    but: A dataclass among its bases whose flags are defined elsewhere.
  """
  elsewhere = _settings_of(but) if but else ()
  for field in _settings_of(settings):
    if field in elsewhere:
      continue
    text, default = field.metadata['help'], field.default
    if default is dataclasses.MISSING:
      text, default = f'{text} {required}', None
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
  for field in _settings_of(settings):
    flag = flags.FLAGS[field.name]
    if given_only and not flag.present:
      continue
    value = flag.value
    if typing.get_origin(field.type) is tuple:
      is_of_integers = typing.get_args(field.type)[0] is int
      value = integers(field.name, value) if is_of_integers else tuple(value)
    values[field.name] = value
  return values


def integers(name: str, texts: Iterable[str]) -> tuple[int, ...]:
  """Returns what the parts of a flag of integers with commas say.

  Args:
    name: The flag's.
    texts: What stands between the commas.

  Raises:
    ValueError: If one is no integer.
  """
  numbers = []
  for text in texts:
    try:
      numbers.append(int(text))
    except ValueError:
      raise ValueError(
        f'`{name}` must be integers with commas, found {text!r}.'
      ) from None
  return tuple(numbers)


def _settings_of(settings: type) -> list[dataclasses.Field]:
  return [f for f in dataclasses.fields(settings) if 'help' in f.metadata]


def _kind(annotation: Any) -> type:
  """The type of a field, without the `None` of one that need not be given."""
  (kind,) = {*(typing.get_args(annotation) or (annotation,))} - {type(None)}
  return kind
