"""Several planned runs on the same clients, added up."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_clipping.privacy.accounting import accountants, rounding
from tff_clipping.privacy.calculator import command_line
from tff_clipping.privacy.plans import (
  base_plan,
  plan_json,
  together,
  words,
)


@dataclasses.dataclass(frozen=True)
class PlannedRun:
  """A run that is planned.

  Attributes:
    source: Where its plan comes from, for the answer.
    plan: The plan.
    caveats: Why the plan does not hold for a run, if it says so.
  """

  source: str
  plan: base_plan.BasePlan
  caveats: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Total:
  """What some planned runs cost together.

  Attributes:
    runs: The runs.
    cost: What they cost together.
    by_pld: Their epsilon by 'pld', where that is proved and less; else None.
  """

  runs: tuple[PlannedRun, ...]
  cost: together.TogetherCost
  by_pld: float | None


def read_planned_run(
  path: str, solve_flags: Callable[[str], base_plan.BasePlan]
) -> PlannedRun:
  """Returns the plan of a file.

  Args:
    path: The privacy.json of a run, an answer of the calculator in JSON, or
      flags of the calculator.
    solve_flags: Returns the plan that answers the flags in a file.

  Raises:
    ValueError: If it cannot be read, or is none of them.
  """
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
  except (OSError, UnicodeError) as error:
    raise ValueError(
      f'`together` must be files that can be read, found {path!r} ({error}).'
    ) from error
  if not text.lstrip().startswith('{'):
    return PlannedRun(path, solve_flags(path))
  try:
    value = json.loads(text)
    # An answer of the calculator has its plan among other things.
    value = value['plan'] if 'format' not in value else value
    plan = plan_json.plan_from_json(value)
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'`together` must be plans, found another file, {path!r}: {error}'
    ) from error
  return PlannedRun(path, plan, tuple(value.get('caveats', ())))


def add_up(
  runs: Sequence[PlannedRun],
  *,
  target_delta: float | None = None,
  accountant: str | None = None,
) -> Total:
  """Returns what planned runs cost together.

  Args:
    runs: The runs, at least one.
    target_delta: As in `together.compose_together`.
    accountant: As there.

  Raises:
    TypeError: As there.
    ValueError: As there.
  """
  rounds = [(run.plan, run.plan.num_rounds) for run in runs]
  cost = together.compose_together(rounds, target_delta, accountant=accountant)
  by_pld = None
  if cost.accountant == 'rdp':
    try:
      tighter = together.compose_together(
        rounds, cost.target_delta, accountant='pld'
      ).epsilon
    except accountants.NoEpsilonError:
      tighter = math.inf
    by_pld = tighter if tighter < cost.epsilon else None
  return Total(tuple(runs), cost, by_pld)


def format_table(total: Total, record: Mapping[str, Any]) -> str:
  """Returns the answer for a person to read.

  Args:
    total: The answer.
    record: When and how it was computed.
  """
  cost = total.cost
  width = max(len(run.source) for run in total.runs)
  lines = ['Planned on the same clients:']
  for run in total.runs:
    plan = run.plan
    lines.append(
      f'  {run.source:<{width}}  epsilon '
      f'{rounding.format_up(plan.actual_epsilon)} for '
      f'{words.count_rounds(plan.num_rounds)}, {plan.sampling}, noise '
      f'multiplier {plan.noise_multiplier:g}'
    )
  guarantee = words.state_guarantee(
    cost.epsilon, cost.target_delta, cost.relation
  )
  lines_of_all = [
    f'Together they satisfy client-level {guarantee}, by '
    f'{words.name_accountant(cost.accountant)}.'
  ]
  if total.by_pld is not None:
    lines_of_all.append(
      f'It is epsilon {rounding.format_up(total.by_pld)} by '
      f'{words.state_pld([run.plan for run in total.runs])}'
    )
  lines_of_all.append(
    words.state_promise(cost.epsilon, cost.target_delta, cost.relation)
  )
  conditions = (
    'It holds for each client that is in the populations of all of '
    'them, if all runs, their noise and their numbers of rounds are settled '
    'before the first begins, and each draws its cohorts by a seed of its own.'
  )
  sections = [
    *_caveats(total),
    '\n'.join(lines),
    '\n'.join(lines_of_all),
    conditions,
    command_line.format_record(record),
  ]
  return '\n\n'.join(sections)


def format_json(total: Total, record: Mapping[str, Any]) -> str:
  """Returns the answer as one JSON object; see `format_table`."""
  value = {
    'plans': [
      {
        'source': run.source,
        'plan': plan_json.plan_to_json(run.plan, run.caveats),
      }
      for run in total.runs
    ],
    'together': {
      **dataclasses.asdict(total.cost),
      'relation': total.cost.relation.value,
      'epsilon_by_pld': total.by_pld,
    },
    **record,
  }
  return json.dumps(value, indent=2, allow_nan=False)


def _caveats(total: Total) -> list[str]:
  """Returns what takes the guarantee away, in a sentence if at all."""
  caveats = dict.fromkeys(
    caveat for run in total.runs for caveat in run.caveats
  )
  return [words.state_caveats(list(caveats))] if caveats else []
