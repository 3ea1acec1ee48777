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
import sys
from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy.accounting import rounding, sampled_gaussian
from tff_clipping.privacy.calculator import command_line, statement
from tff_clipping.privacy.ledger import ledger_contents, spending
from tff_clipping.privacy.plans import plan_json, words


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
  argv = sys.argv if argv is None else argv
  return command_line.run(parser, argv, _compute, _format_answer)


def _compute(
  values: argparse.Namespace, record: dict[str, Any]
) -> dict[str, Any]:
  """Returns the cost of each run, and of all runs together."""
  if not values.ledgers:
    raise ValueError(
      'a ledger, or the folder of a run, must be given; see --help.'
    )
  if values.statement is not None:
    if len(values.ledgers) > 1:
      raise ValueError(
        '`statement` must be given with one ledger, found '
        f'{len(values.ledgers)}.'
      )
    if not values.statement.lower().endswith('.md'):
      raise ValueError(
        f'`statement` must end in .md, found {values.statement!r}.'
      )
  text = ''
  try:
    ledgers = [ledger_contents.read_ledger(path) for path in values.ledgers]
    if values.statement is not None:
      text = statement.format_statement(ledgers[0], record)
  except OSError as error:
    raise ValueError(
      'a ledger, and what a statement has a digest of, must be a file that can '
      f'be read, found {error.filename!r} ({error.strerror}).'
    ) from error
  spent = spending.compute_spending(ledgers, target_delta=values.target_delta)
  answer = {
    'ledgers': [_describe_ledger(ledger) for ledger in ledgers],
    'together': {
      **dataclasses.asdict(spent),
      'relation': spent.relation.value,
      'assumed_independent': [
        *map(str, spending.find_assumed_independent(ledgers))
      ],
      'caveats': spending.list_caveats(ledgers, spent),
      'description': spending.describe_spending(ledgers, spent),
    },
    'statement': values.statement,
  }
  if values.statement is not None:
    command_line.write_new_file(values.statement, text, 'statement')
  return answer


def _describe_ledger(ledger: ledger_contents.LedgerContents) -> dict[str, Any]:
  """Returns the cost of one run."""
  plan = ledger.plan
  # A budget may allow more rounds than the plan was made for.
  num_rounds = max(plan.num_rounds, ledger.num_releases)
  as_run = dataclasses.replace(plan, num_rounds=num_rounds, target_epsilon=None)
  described = plan_json.plan_to_json(as_run, ledger.caveats)
  return {
    'path': str(ledger.path),
    'num_releases': ledger.num_releases,
    'num_rounds': plan.num_rounds,
    'permitted_rounds': plan.permitted_rounds,
    'epsilon': ledger.epsilon,
    'planned_epsilon': plan.epsilon_after(plan.permitted_rounds),
    'target_epsilon': plan.target_epsilon,
    'clipping_norm_from': [*map(str, spending.find_sources(ledger.path))],
    'caveats': described['caveats'],
    'plan': described,
  }


def _format_answer(
  values: argparse.Namespace, answer: dict[str, Any]
) -> list[str]:
  """Returns the answer for a person to read."""
  paragraphs = [_format_ledger(ledger) for ledger in answer['ledgers']]
  if len(paragraphs) > 1 or values.target_delta is not None:
    paragraphs.append(answer['together']['description'])
  if values.statement is not None:
    paragraphs.append(f'The statement is in {values.statement}.')
  return paragraphs


def _format_ledger(ledger: dict[str, Any]) -> str:
  """Returns the cost of one run for a person to read."""
  plan, released = ledger['plan'], ledger['num_releases']
  guarantee = words.state_guarantee(
    ledger['epsilon'],
    plan['target_delta'],
    sampled_gaussian.Relation(plan['relation']),
  )
  spent = rounding.format_up(ledger['epsilon'])
  planned, target = ledger['planned_epsilon'], ledger['target_epsilon']
  limit = planned if target is None else target
  lines = [ledger['path']]
  if ledger['caveats']:
    lines.append(f'  {words.state_caveats(ledger["caveats"])}')
  lines += [
    f'  spent so far      {guarantee}',
    f'  releases          {released} of {ledger["num_rounds"]} planned',
    f'  epsilon           {spent} of {rounding.format_up(limit, digits=6)}',
  ]
  if released < ledger['permitted_rounds']:
    lines.append(
      f'  if it ends here   promise epsilon {rounding.format_up(planned)}, '
      f'that of all {ledger["permitted_rounds"]} rounds that the plan allows, '
      f'unless it was fixed before the run that {released} are all'
    )
  for source in ledger['clipping_norm_from']:
    lines.append(
      f'  spent too         what {source} has spent, from which the clipping '
      'norm comes: give both'
    )
  return '\n'.join([*lines, f'  plan              {plan["description"]}'])


if __name__ == '__main__':
  sys.exit(run())
