"""Several planned runs on the same clients, added up."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from tff_clipping.privacy.accounting import accountants, rounding
from tff_clipping.privacy.plans import plan_json, together, words
from tff_clipping.privacy.plans.base_plan import BasePlan


@dataclasses.dataclass(frozen=True)
class PlannedRun:
  """A run that is planned.

  Attributes:
    source: The file of its plan, for the answer.
    plan: The plan.
    caveats: Why the run does not have the plan's guarantee.
    spent_too: The cost of the runs that gave it its clipping norm, in words.
  """

  source: str
  plan: BasePlan
  caveats: tuple[str, ...] = ()
  spent_too: str = ''


def read_planned_run(
  path: str, solve_flags: Callable[[str], BasePlan]
) -> PlannedRun:
  """Returns the plan of a file.

  The file is the privacy.json of a run, an answer of the calculator in JSON, or
  flags, from which `solve_flags` makes a plan.

  Raises:
    ValueError: If the file cannot be read, or has no plan.
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
  return PlannedRun(
    path,
    plan,
    tuple(value.get('caveats', ())),
    value.get('with_clipping_norm', ''),
  )


def add_up(
  runs: Sequence[PlannedRun],
  *,
  target_delta: float | None = None,
  accountant: str | None = None,
) -> dict[str, Any]:
  """Returns the cost of planned runs together, for `json.dumps`.

  The cost of each run alone is by the same accountant and at the same delta, so
  that it is at most the cost of all. Other arguments and errors are those of
  `compose_together`.
  """
  rounds = [(run.plan, run.plan.num_rounds) for run in runs]
  cost = together.compose_together(rounds, target_delta, accountant=accountant)

  def compose(pairs: Sequence[tuple[BasePlan, int]], name: str) -> float:
    return together.compose_together(
      pairs, cost.target_delta, accountant=name
    ).epsilon

  by_pld = None
  if cost.accountant == 'rdp':
    with contextlib.suppress(accountants.NoEpsilonError):
      tighter = compose(rounds, 'pld')
      by_pld = tighter if tighter < cost.epsilon else None
  of_runs = [each for run in runs for each in run.caveats]
  caveats = [*dict.fromkeys((*of_runs, *cost.caveats))]
  return {
    'plans': [
      {
        'source': run.source,
        'epsilon': compose([pair], cost.accountant),
        'plan': plan_json.plan_to_json(run.plan, run.caveats),
      }
      for run, pair in zip(runs, rounds, strict=True)
    ],
    'together': {
      **dataclasses.asdict(cost),
      'relation': cost.relation.value,
      'epsilon_by_pld': by_pld,
      'pld': words.state_pld([run.plan for run in runs]),
      'caveats': caveats,
      'description': together.describe_together(
        cost,
        len(runs),
        caveats,
        ' It also needs that each draws its cohorts by a seed of its own.',
      ),
      'promise': words.state_promise(
        cost.epsilon, cost.target_delta, cost.relation
      ),
      'not_counted': [
        f'{run.source}: {run.spent_too}' for run in runs if run.spent_too
      ],
    },
  }


def format_answer(answer: dict[str, Any]) -> list[str]:
  """Returns an answer of `add_up` in paragraphs for a person."""
  cost = answer['together']
  width = max(len(run['source']) for run in answer['plans'])
  promise = [cost['description'], cost['promise']]
  if cost['epsilon_by_pld'] is not None:
    tighter = rounding.format_up(cost['epsilon_by_pld'])
    promise.insert(1, f'It is epsilon {tighter} by {cost["pld"]}')
  lines = [
    'Planned on the same clients, each alone by the accountant of all:',
    *(
      f'  {run["source"]:<{width}}  epsilon '
      f'{rounding.format_up(run["epsilon"])} for '
      f'{words.count_rounds(run["plan"]["num_rounds"])}, '
      f'{run["plan"]["sampling"]}, noise multiplier '
      f'{run["plan"]["noise_multiplier"]:g}'
      for run in answer['plans']
    ),
  ]
  return [
    '\n'.join(promise),
    '\n'.join(lines),
    *(f'Not counted here, of {text}' for text in cost['not_counted']),
  ]
