"""Plans from what `to_json` wrote."""

from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.plans import base_plan, correlated_plan
from tff_clipping.privacy.plans import plan as plan_lib


def plan_from_json(value: Mapping[str, Any]) -> base_plan.BasePlan:
  """Returns the plan that `BasePlan.to_json` wrote, of its own class.

  Args:
    value: What `json.load` returned.

  Raises:
    TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
    ValueError: If attributes are missing, unknown or out of range, or a figure
      in it is not that of the attributes.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  if value.get('mechanism') == 'correlated_noise':
    return correlated_plan.CorrelatedNoisePlan.from_json(value)
  return plan_lib.PrivacyPlan.from_json(value)
