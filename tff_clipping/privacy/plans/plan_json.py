"""A privacy plan as JSON: its attributes, and what follows from them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

_FORMAT = 1


def write(attributes: Mapping[str, Any], **derived: Any) -> dict[str, Any]:
  """Returns a plan for `json.dump`.

  Args:
    attributes: What `read_attributes` is to give back. A value with a `to_json`
      is written by that.
    **derived: What follows from them, for whoever reads the file.
  """
  written = {
    name: each.to_json() if hasattr(each, 'to_json') else each
    for name, each in attributes.items()
  }
  return {'format': _FORMAT, **written, **derived}


def read_attributes(
  value: Any,
  names: Sequence[str],
  *,
  derived: Sequence[str],
  optional: Sequence[str] = (),
) -> dict[str, Any]:
  """Returns the attributes in what `write` returned.

  Args:
    value: What `json.load` returned.
    names: The attributes.
    derived: What else may be in it.
    optional: Those of them that may be missing.

  Raises:
    TypeError: If `value` is not a mapping.
    ValueError: If it is of another format, attributes are missing, or there is
      something else in it.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  if value.get('format') != _FORMAT:
    raise ValueError(
      f'`value` must be of format {_FORMAT}, found {value.get("format")!r}.'
    )
  missing = [name for name in names if name not in (*value, *optional)]
  if missing:
    raise ValueError(f'`value` must hold {names}, found none of {missing}.')
  unknown = sorted({*value} - {*names, *derived, 'format'})
  if unknown:
    raise ValueError(f'`value` must hold only {names}, found {unknown}.')
  return {name: value[name] for name in names if name in value}


def check_figures(value: Mapping[str, Any], **expected: float) -> None:
  """Raises ValueError if a figure is not what its plan costs.

  Args:
    value: As for `read_attributes`.
    **expected: The figures by their names.
  """
  for name, figure in expected.items():
    # Versions of the accountant may differ in the last digits.
    found = value.get(name)
    if found is not None and not math.isclose(found, figure, rel_tol=1e-3):
      raise ValueError(
        f'`{name}` must be the {figure:.6g} that the plan costs, found '
        f'{found!r}.'
      )
