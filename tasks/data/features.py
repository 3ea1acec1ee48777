"""The names of features: one input and one output, or several of each.

Data are kept flat, as a client store has them: `x`, or `x_NAME` for each of
several inputs, and `y`, or `y_NAME` for each of several outputs. A model takes
them nested: `x` and `y`, each an array or a mapping by NAME.
"""

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any

INPUT, OUTPUT = 'x', 'y'
_OF_TEST_SET = '_test'


def names_of(prefix: str, features: Iterable[str]) -> tuple[str | None, ...]:
  """Returns what the inputs or the outputs are called, in their order.

  Args:
    prefix: `INPUT` or `OUTPUT`.
    features: The names of all features.

  Returns:
    (`None`,) if there is one, which has no name.
  """
  return tuple(
    None if feature == prefix else feature.removeprefix(f'{prefix}_')
    for feature in features
    if feature == prefix or feature.startswith(f'{prefix}_')
  )


def feature_of(prefix: str, name: str | None) -> str:
  """Returns the feature of an input or an output."""
  return prefix if name is None else f'{prefix}_{name}'


def by_name(
  prefix: str, features: Iterable[str], value_of: Callable[[str], Any]
) -> Any:
  """Returns something of each input or output, by its name.

  Args:
    prefix: `INPUT` or `OUTPUT`.
    features: The names of all features.
    value_of: Returns it for a feature.

  Returns:
    What the only one has, or a dictionary by name of several.
  """
  names = names_of(prefix, features)
  if names == (None,):
    return value_of(prefix)
  return collections.OrderedDict(
    (name, value_of(feature_of(prefix, name))) for name in names
  )


def flatten(prefix: str, given: Any) -> collections.OrderedDict[str, Any]:
  """Returns features by their flat names.

  Args:
    prefix: `INPUT` or `OUTPUT`.
    given: An array, or a mapping of several by name.

  Raises:
    ValueError: If a name is none.
  """
  if not isinstance(given, Mapping):
    return collections.OrderedDict([(prefix, given)])
  for name in given:
    if not (
      isinstance(name, str)
      and name.isidentifier()
      and not name.endswith(_OF_TEST_SET)
    ):
      raise ValueError(
        f'`{prefix}` must have names of letters, digits and _, which do not '
        f'end in {_OF_TEST_SET}, found {name!r}.'
      )
  if not given:
    raise ValueError(f'`{prefix}` must have an array, found none.')
  return collections.OrderedDict(
    (feature_of(prefix, name), array) for name, array in given.items()
  )


def nest(examples: Mapping[str, Any]) -> collections.OrderedDict[str, Any]:
  """Returns features, or something of each, as a model takes them."""
  return collections.OrderedDict(
    (prefix, by_name(prefix, examples, examples.__getitem__))
    for prefix in (INPUT, OUTPUT)
  )
