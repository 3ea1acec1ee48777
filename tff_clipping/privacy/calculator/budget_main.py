r"""Computes the privacy budget of DP-FedAvg.

Give --num_clients, --clients_per_round and --target_delta, and two of
--target_epsilon, --noise_multiplier and --num_rounds. The answer is the third,
with what it promises. Example:

  tff-clipping-budget --num_clients=1920 --clients_per_round=80 \
      --target_delta=1e-5 --num_rounds=100 --target_epsilon=1.5

Or give all three without --num_clients: the answer is the smallest population.
Or give --noise_to_clients_ratio with --target_epsilon and --num_rounds, and the
answer is the fewest clients per round.

--alternatives adds a few other ways to the same promise, each a guarantee.

Several runs on the same clients: --together=FILE,FILE,... adds up the plans in
these files, and that of the other flags if there are any. A file is the
privacy.json of a run, an answer by --format=json, or the flags of a question.

The noise multiplier is the standard deviation of the noise on the sum of the
clipped updates, divided by the clipping norm, for all samplings.

Samplings:
  poisson     each client joins a round independently; add or remove one client
  random_allocation
              each client comes in one secret round of each epoch of
              num_clients / clients_per_round; add or remove one client
  fixed_size  exactly clients_per_round are drawn; replace one client
  none        all clients join every round; add or remove one client
  min_separation
              nothing is drawn: a client comes at most once in any
              min_separation rounds; zero out one client
  grouped_poisson
              min_separation groups take turns, and each client of the group
              joins independently; zero out one client
Mechanisms, for the last two (the others have gaussian noise):
  gaussian    noise that is independent in each round
  banded      banded Toeplitz noise, optimised; for grouped_poisson too
  blt         buffered linear Toeplitz noise, optimised; a few models of memory
Accountants, for all but the last two:
  rdp         Renyi differential privacy, as TensorFlow Privacy
  pld         privacy loss distributions, tighter; the one of random_allocation
  gaussian    exact, for none alone

Exit codes: 0 for an answer, 2 for a wrong or impossible question.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy.accounting import accountants
from tff_clipping.privacy.calculator import (
  budget_answer,
  budget_question,
  command_line,
  planned_runs,
)
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans.base_plan import BasePlan


def run(argv: Sequence[str] | None = None) -> int:
  """Answers one question.

  Args:
    argv: The command line, the program's name first; by default `sys.argv`.

  Returns:
    The exit code: 0, or 2 after a line on stderr about a wrong question.
  """
  argv = sys.argv if argv is None else argv
  return command_line.run(_create_parser(), argv, _compute, _format_answer)


def _create_parser() -> argparse.ArgumentParser:
  """Returns the flags of a question."""
  parser = command_line.create_parser('tff-clipping-budget', __doc__ or '')

  def add(name: str, text: str, kind: Any = float, **options: Any) -> None:
    parser.add_argument(f'--{name}', type=kind, help=text, **options)

  whole = command_line.whole_number
  add('num_clients', 'Clients in all (N); solved for if not given.', whole)
  add(
    'clients_per_round',
    'Clients in a round (P); the expected number for poisson. Solved for if '
    'noise_to_clients_ratio is given.',
    whole,
  )
  add('num_rounds', 'Rounds (T); solved for if not given.', whole)
  add('target_delta', 'Delta, below 1/num_clients.')
  add('target_epsilon', 'The epsilon not to pass; solved for if not given.')
  add(
    'noise_multiplier',
    'Standard deviation of the noise on the sum over the clipping norm; of a '
    'draw, with correlated noise. Solved for if not given.',
  )
  add(
    'noise_to_clients_ratio',
    'noise_multiplier / clients_per_round, the noise on the mean over the '
    'clipping norm: solves for clients_per_round.',
  )
  add(
    'sampling',
    'How the clients of a round are drawn: by default poisson, or '
    'min_separation with a mechanism or a separation.',
    str,
    choices=budget_question.SAMPLINGS,
  )
  add(
    'mechanism',
    'How the noise of a round depends on that of those before.',
    str,
    choices=by_name.MECHANISMS,
    default='gaussian',
  )
  add(
    'min_separation',
    'The least number of rounds from one participation of a client to its next '
    '(b).',
    whole,
  )
  add(
    'accountant',
    'How the rounds are added up: by default rdp, for random_allocation pld.',
    str,
    choices=accountants.ACCOUNTANTS,
  )
  add(
    'false_positive_rate',
    'Adds the largest true-positive rate of attacks with this false-positive '
    'rate, and mu of mu-GDP.',
  )
  parser.add_argument(
    '--alternatives',
    action='store_true',
    help='Adds other samplings and mechanisms. It takes some seconds.',
  )
  add('together', 'Files of plans to add up, separated by commas.', str)
  return parser


def _compute(
  values: argparse.Namespace, record: dict[str, Any]
) -> dict[str, Any]:
  """Answers the question on the command line."""
  del record  # It is in the answer anyway.
  if values.together is None:
    question = _build_question(values)
    return budget_answer.compute_answer(
      question,
      budget_question.solve(question),
      false_positive_rate=values.false_positive_rate,
      alternatives=values.alternatives,
    )
  runs = [
    planned_runs.read_planned_run(path, _solve_flags)
    for path in values.together.split(',')
  ]
  if _has_question(values):
    plan = budget_question.solve(_build_question(values))
    runs.append(planned_runs.PlannedRun('the flags', plan))
  return planned_runs.add_up(
    runs, target_delta=values.target_delta, accountant=values.accountant
  )


def _format_answer(
  values: argparse.Namespace, answer: dict[str, Any]
) -> list[str]:
  """Returns the answer for a person to read."""
  if values.together is not None:
    return planned_runs.format_answer(answer)
  paragraphs = budget_answer.format_answer(answer)
  if values.false_positive_rate is not None:
    paragraphs.append(budget_answer.format_attacks(answer))
  if values.alternatives:
    paragraphs += budget_answer.format_alternatives(answer)
  return paragraphs


def _solve_flags(path: str) -> BasePlan:
  """Returns the plan that answers the flags in a file."""
  values = command_line.parse(_create_parser(), [f'--flagfile={path}'])
  if values.together is not None:
    raise ValueError(
      f'`together` must not be in a file of flags, found it in {path!r}.'
    )
  return budget_question.solve(_build_question(values))


def _has_question(values: argparse.Namespace) -> bool:
  """Returns whether flags beside `together` ask for a plan."""
  without = _create_parser().parse_args([])
  of_the_sum = 'target_delta', 'accountant'
  return any(
    getattr(values, field.name) != getattr(without, field.name)
    for field in dataclasses.fields(budget_question.Question)
    if field.name not in of_the_sum
  )


def _build_question(values: argparse.Namespace) -> budget_question.Question:
  """Returns the question of the flags."""
  given = {
    field.name: getattr(values, field.name)
    for field in dataclasses.fields(budget_question.Question)
  }
  if given['sampling'] is None:
    asks = values.mechanism != 'gaussian' or values.min_separation is not None
    given['sampling'] = 'min_separation' if asks else 'poisson'
  if given['clients_per_round'] is None and given['sampling'] == 'none':
    given['clients_per_round'] = values.num_clients
  if given['target_delta'] is None:
    raise ValueError('`target_delta` must be given, found none.')
  return budget_question.Question(**given)


if __name__ == '__main__':
  sys.exit(run())
