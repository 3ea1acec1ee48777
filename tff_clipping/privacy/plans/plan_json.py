"""Privacy plans as JSON, and back."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tff_clipping import gone
from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans import words
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan
from tff_clipping.privacy.plans.plan import PrivacyPlan

_FORMAT = 1
_CORRELATED = 'correlated_noise'
# By how much versions of the accountant may differ in an epsilon, relative.
_VERSIONS = 1e-3
# Fields that a run adds, and one that version 0.2 wrote.
_OF_A_RUN = (
  *('aggregation', 'tightest_epsilon', 'paper_epsilon', 'with_clipping_norm'),
  'actual_epsilon',
)


def plan_to_json(plan: BasePlan, caveats: Sequence[str] = ()) -> dict[str, Any]:
  """Returns a plan for `json.dump`: its attributes, and figures for readers.

  Args:
    plan: The plan.
    caveats: Why a run of the plan does not have its guarantee; see
      `describe_plan`.
  """
  attributes = {
    field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)
  }
  derived: dict[str, Any]
  if isinstance(plan, CorrelatedNoisePlan):
    derived = {
      'strategy': plan.strategy.to_json(),
      'mechanism': _CORRELATED,
      'max_participations': plan.max_participations,
      'sensitivity': plan.sensitivity,
      'accountant': plan.accountant,
    }
  else:
    derived = {'sampling_prob': plan.clients_per_round / plan.num_clients}
  return {
    'format': _FORMAT,
    **attributes,
    **derived,
    'relation': plan.relation.value,
    'epsilon': plan.epsilon,
    'dp_event': repr(plan.dp_event),
    'caveats': [*dict.fromkeys((*plan.caveats, *caveats))],
    'description': words.describe_plan(plan, caveats),
  }


def plan_from_json(value: Mapping[str, Any]) -> BasePlan:
  """Returns the plan that `plan_to_json` wrote.

  The accountant of this version may find an epsilon just above the target of a
  plan that another version wrote. The plan then permits fewer rounds.

  Args:
    value: What `json.load` returned.

  Raises:
    TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
    GoneError: If the plan is of a kind that this version does not have.
    ValueError: If attributes are missing, unknown or out of range, or the
      epsilon in `value` is not the epsilon of the attributes.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  if value.get('format') != _FORMAT:
    raise ValueError(
      f'`value` must be of format {_FORMAT}, found {value.get("format")!r}.'
    )
  value = gone.read(value)
  if value.get('sampling') == 'paper':
    raise gone.GoneError(
      "`sampling` 'paper' of a plan (fixed cohorts, charged as Poisson "
      'samples) went in 0.3.0: commit 44967cd3 reads it, and CHANGELOG.md says '
      'what takes its place.'
    )
  is_correlated = value.get('mechanism') == _CORRELATED
  plan_type: Any = CorrelatedNoisePlan if is_correlated else PrivacyPlan
  names = [field.name for field in dataclasses.fields(plan_type)]
  missing = [name for name in names if name not in value]
  if missing:
    raise ValueError(f'`value` must hold {names}, found none of {missing}.')
  attributes: dict[str, Any] = {name: value[name] for name in names}
  if is_correlated:
    attributes['strategy'] = by_name.strategy_from_json(attributes['strategy'])
  target, found = attributes['target_epsilon'], value.get('epsilon')
  if target is not None and found is not None:
    target = ranges.check('target_epsilon', target)
    plan = plan_type(**attributes | {'target_epsilon': None})
    if plan.epsilon > target * (1 + _VERSIONS):
      raise ValueError(
        f'`target_epsilon` must be at least the {plan.epsilon:.6g} that the '
        f'plan costs, found {target:g}.'
      )
    # Past the check of the plan itself, which has no such tolerance.
    object.__setattr__(plan, 'target_epsilon', target)
  else:
    plan = plan_type(**attributes)
  unknown = sorted({*value} - {*plan_to_json(plan), *_OF_A_RUN})
  if unknown:
    raise ValueError(f'`value` must hold only {names}, found {unknown}.')
  if found is not None and not math.isclose(
    found, plan.epsilon, rel_tol=_VERSIONS
  ):
    raise ValueError(
      f'`epsilon` must be the {plan.epsilon:.6g} that the plan costs, found '
      f'{found!r}.'
    )
  return plan
