"""A privacy plan as JSON, and back."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tff_clipping import gone

if TYPE_CHECKING:
  from tff_clipping.privacy.plans.base_plan import BasePlan

_FORMAT = 1
# What a run adds: what its aggregator makes of the plan, and what its rounds
# cost by the tightest accountant.
_OF_A_RUN = ('aggregation', 'tightest_epsilon')

_Plan = TypeVar('_Plan', bound='BasePlan')


def write(
  plan: 'BasePlan', derived: Mapping[str, Any], caveats: Sequence[str]
) -> dict[str, Any]:
  """Returns a plan for `json.dump`; see `BasePlan.to_json`.

  Args:
    plan: The plan.
    derived: What this kind of plan adds for readers of the file.
    caveats: Why a run of the plan does not have its guarantee.
  """
  attributes = {
    field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)
  }
  return {
    'format': _FORMAT,
    **{
      name: each.to_json() if hasattr(each, 'to_json') else each
      for name, each in attributes.items()
    },
    **derived,
    'relation': plan.relation.value,
    'epsilon': plan.epsilon,
    'actual_epsilon': plan.actual_epsilon,
    'dp_event': repr(plan.dp_event),
    'caveats': list(caveats),
    'description': plan.describe(caveats),
  }


def read(
  plan_type: type[_Plan],
  value: Any,
  *,
  read_attributes: Callable[[dict[str, Any]], dict[str, Any]],
) -> _Plan:
  """Returns the plan that `write` wrote; see `BasePlan.from_json`.

  Args:
    plan_type: The kind of plan.
    value: What `json.load` returned.
    read_attributes: Returns the attributes from their JSON values.

  Raises:
    TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
    GoneError: If this version has no such plan any more.
    ValueError: If attributes are missing, unknown or out of range, or the
      epsilon in it is not that of the attributes.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  if value.get('format') != _FORMAT:
    raise ValueError(
      f'`value` must be of format {_FORMAT}, found {value.get("format")!r}.'
    )
  value = gone.read(value)
  names = [field.name for field in dataclasses.fields(plan_type)]
  missing = [name for name in names if name not in value]
  if missing:
    raise ValueError(f'`value` must hold {names}, found none of {missing}.')
  attributes = {name: value[name] for name in names}
  plan = plan_type(**read_attributes(attributes))
  unknown = sorted({*value} - {*plan.to_json(), *_OF_A_RUN})
  if unknown:
    raise ValueError(f'`value` must hold only {names}, found {unknown}.')
  for name in ('epsilon', 'actual_epsilon'):
    found, figure = value.get(name), getattr(plan, name)
    # Versions of the accountant may differ in the last digits.
    if found is not None and not math.isclose(found, figure, rel_tol=1e-3):
      raise ValueError(
        f'`{name}` must be the {figure:.6g} that the plan costs, found '
        f'{found!r}.'
      )
  return plan
