"""Plans of any kind, from the JSON that they were written to."""

from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.plans import base_plan, correlated_plan
from tff_clipping.privacy.plans import plan as plan_lib


def plan_from_json(value: Any) -> base_plan.BasePlan:
  """Returns the plan that some plan's `to_json` wrote.

  Args:
    value: What `json.load` returned.

  Raises:
    TypeError: If it is not a mapping, or an attribute of the wrong kind.
    GoneError: If this version has no such plan any more.
    ValueError: As `BasePlan.from_json` does.
  """
  # The JSON of a `PrivacyPlan` has no `mechanism`.
  if (
    isinstance(value, Mapping) and value.get('mechanism') == 'correlated_noise'
  ):
    return correlated_plan.CorrelatedNoisePlan.from_json(value)
  return plan_lib.PrivacyPlan.from_json(value)
