"""Tells what runs have spent, from their ledgers.

  tff-clipping-ledger runs/first runs/second

Each argument is a ledger, or the folder of a run, which holds `ledger.jsonl`.
Of several ledgers, the answer is also what all of them have spent together, for
a client that is in the population of each: less than the sum of their epsilons,
at the delta that all of them have, or at --target_delta. Ledgers of different
neighbouring relations cannot be added up. A ledger is only read, also while its
run goes on.

--statement=FILE writes what the run of one ledger promises as a document of a
page, in Markdown: what was trained, what is promised and what is not, caveats
first, versions and digests.

Exit codes: 0 for an answer, 2 for a wrong question or a damaged ledger.
"""

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy.accounting import rounding, slack
from tff_clipping.privacy.calculator import (
  budget_answer,
  command_line,
  statement,
)
from tff_clipping.privacy.ledger import ledger_contents, spending
from tff_clipping.privacy.plans import plan_json, together, words
from tff_clipping.privacy.plans.base_plan import BasePlan


def run(argv: Sequence[str] | None = None) -> int:
  """Reads the ledgers on the command line.

  Args:
    argv: The command line, the program's name first; by default `sys.argv`.

  Returns:
    The exit code: 0, or 2 after a line on stderr about what is wrong.
  """
  parser = command_line.create_parser('tff-clipping-ledger', __doc__ or '')
  parser.add_argument('ledgers', nargs='*', help='Ledgers, or folders of runs.')
  parser.add_argument(
    '--target_delta',
    type=float,
    help='The delta of what all of them have spent together; by default that '
    'of their plans, which must be one.',
  )
  parser.add_argument(
    '--statement',
    metavar='FILE.md',
    help='Writes a statement on the run into this file, which must not exist '
    'yet.',
  )
  return command_line.run(parser, sys.argv if argv is None else argv, _compute)


def _compute(
  values: argparse.Namespace, record: dict[str, Any]
) -> command_line.Result:
  """Returns what the ledgers say."""
  _check(values)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    try:
      ledgers = [ledger_contents.read_ledger(path) for path in values.ledgers]
    except OSError as error:
      raise ValueError(
        f'a ledger must be a file that can be read, found {error.filename!r} '
        f'({error.strerror}).'
      ) from error
    spent = spending.compute_spending(ledgers, target_delta=values.target_delta)
    is_table = values.format == 'table'
    text = (_format_table if is_table else _format_json)(ledgers, spent, record)
    notes: tuple[str, ...] = ()
    if values.statement is not None:
      (ledger,) = ledgers
      command_line.write_new_file(
        values.statement,
        statement.format_statement(ledger, record),
        'statement',
      )
      notes = (f'The statement is in {values.statement}.',)
  if values.output is None and is_table:
    text = '\n\n'.join([text, *notes])
  return command_line.Result(text, notes, budget_answer.read_messages(caught))


def _check(values: argparse.Namespace) -> None:
  """Raises unless the flags go together."""
  if not values.ledgers:
    raise ValueError(
      'a ledger, or the folder of a run, must be given; see --help.'
    )
  if values.statement is None:
    return
  if len(values.ledgers) > 1:
    raise ValueError(
      f'`statement` must be given with one ledger, found {len(values.ledgers)}.'
    )
  if not values.statement.lower().endswith('.md'):
    raise ValueError(
      f'`statement` must end in .md, found {values.statement!r}.'
    )
  command_line.check_new_file(values.statement, 'statement')


def _format_json(
  ledgers: Sequence[ledger_contents.LedgerContents],
  spent: together.Spending,
  record: dict[str, Any],
) -> str:
  """Returns the answer as one JSON object."""
  value: dict[str, Any] = {
    'ledgers': [
      {
        'path': str(ledger.path),
        'num_releases': ledger.num_releases,
        'num_rounds': ledger.plan.num_rounds,
        'epsilon': ledger.epsilon,
        'planned_epsilon': _permitted_epsilon(ledger.plan),
        'target_epsilon': ledger.plan.target_epsilon,
        'clipping_norm_from': [*map(str, spending.find_sources(ledger.path))],
        'caveats': list(ledger.caveats),
        'plan': plan_json.plan_to_json(_plan_as_run(ledger), ledger.caveats),
      }
      for ledger in ledgers
    ],
    'together': {
      **dataclasses.asdict(spent),
      'relation': spent.relation.value,
      'assumed_independent': list(
        map(str, spending.find_assumed_independent(ledgers))
      ),
      'caveats': list(
        dict.fromkeys(each for ledger in ledgers for each in ledger.caveats)
      ),
    },
    **record,
  }
  return json.dumps(value, indent=2, allow_nan=False)


def _format_table(
  ledgers: Sequence[ledger_contents.LedgerContents],
  spent: together.Spending,
  record: dict[str, Any],
) -> str:
  """Returns the answer for a person to read."""
  sections = [_describe_ledger(ledger) for ledger in ledgers]
  is_asked = not all(
    slack.agree(spent.target_delta, each.plan.target_delta) for each in ledgers
  )
  if len(ledgers) > 1 or is_asked:
    sections.append(spending.describe_spending(ledgers, spent))
  sections.append(command_line.format_record(record))
  return '\n\n'.join(sections)


def _describe_ledger(ledger: ledger_contents.LedgerContents) -> str:
  """Returns what one run has spent."""
  plan = ledger.plan
  guarantee = words.state_guarantee(
    ledger.epsilon, plan.target_delta, plan.relation
  )
  limit = plan.epsilon if plan.target_epsilon is None else plan.target_epsilon
  lines = [
    f'{ledger.path}',
    f'  spent so far      {guarantee}',
    f'  releases          {ledger.num_releases} of {plan.num_rounds} planned',
    f'  epsilon           {rounding.format_up(ledger.epsilon)} of {limit:g}',
  ]
  if ledger.num_releases < plan.permitted_rounds:
    lines.append(
      '  if it ends here   promise epsilon '
      f'{rounding.format_up(_permitted_epsilon(plan))}, that of all '
      f'{plan.permitted_rounds} rounds that the plan allows, unless it was '
      f'settled before the run that {ledger.num_releases} are all'
    )
  for source in spending.find_sources(ledger.path):
    lines.append(
      f'  spent too         what {source} has spent, from which the clipping '
      'norm comes: give both'
    )
  if ledger.caveats:
    lines.append(f'  {words.state_caveats(ledger.caveats)}')
  described = words.describe_plan(_plan_as_run(ledger))
  return '\n'.join([*lines, f'  plan              {described}'])


def _permitted_epsilon(plan: BasePlan) -> float:
  """Returns the epsilon of all rounds that a plan allows."""
  return plan.epsilon_after(plan.permitted_rounds)


def _plan_as_run(ledger: ledger_contents.LedgerContents) -> BasePlan:
  """Returns the plan of a run, for as many rounds as it had if they are more.

  A budget may allow more than the rounds that the plan was made for.
  """
  num_rounds = max(ledger.plan.num_rounds, ledger.num_releases)
  return dataclasses.replace(ledger.plan, num_rounds=num_rounds)


if __name__ == '__main__':
  sys.exit(run())
