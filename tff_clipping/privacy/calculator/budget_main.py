r"""Computes the privacy budget of DP-FedAvg.

Give --num_clients, --clients_per_round and --target_delta, and two of
--target_epsilon, --noise_multiplier and --num_rounds. The answer is the third,
with what it promises, and a few other ways to the same promise. Example:

  tff-clipping-budget --num_clients=1920 --clients_per_round=80 \
      --target_delta=1e-5 --num_rounds=100 --target_epsilon=1.5

Or give all three without --num_clients: the answer is the smallest population.
Or give --noise_to_clients_ratio with --target_epsilon and --num_rounds, and the
answer is the fewest clients per round.

Several runs on the same clients: --together=FILE,FILE,... adds up the plans in
these files, and that of the other flags if there are any. A file is the
privacy.json of a run, an answer by --format=json, or the flags of a question.

The noise multiplier is the standard deviation of the noise on the sum of the
clipped updates, divided by the clipping norm, for all samplings.

Samplings:
  poisson     each client joins a round independently; add or remove one client
  fixed_size  exactly clients_per_round are drawn; replace one client
  none        all clients join every round; add or remove one client
  paper       draws like fixed_size and charges like poisson, as the paper does;
              the epsilon that its cohorts really give is always shown beside it
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
  pld         privacy loss distributions, tighter

Exit codes: 0 for an answer, 2 for a wrong or impossible question.
"""

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tff_clipping.privacy.accounting import accountants
from tff_clipping.privacy.calculator import (
  budget_question,
  budget_report,
  budget_text,
  command_line,
  planned_runs,
)
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans import base_plan

# Of the attack that the words of a promise are about.
_FALSE_POSITIVE_RATE = 0.01

_INTEGERS = {
  'num_clients': 'Clients in the population (N). Solved for if epsilon, noise '
  'and rounds are given.',
  'clients_per_round': 'Clients in a round (P); the expected number for '
  'poisson. Solved for if noise_to_clients_ratio is given.',
  'num_rounds': 'Rounds (T). Solved for if not given.',
  'min_separation': 'The least number of rounds from one participation of a '
  'client to its next (b).',
}
_NUMBERS = {
  'target_delta': 'Delta, below 1/num_clients.',
  'target_epsilon': 'The epsilon not to pass. Solved for if not given.',
  'noise_multiplier': 'Standard deviation of the noise on the sum over the '
  'clipping norm; of a draw, with correlated noise. Solved for if not given.',
  'noise_to_clients_ratio': 'noise_multiplier / clients_per_round, the noise '
  'on the mean over the clipping norm: solves for clients_per_round.',
  'false_positive_rate': 'Adds the largest true-positive rate of attacks with '
  'this false-positive rate, and mu of mu-GDP.',
}


def run(argv: Sequence[str] | None = None) -> int:
  """Answers one question.

  Args:
    argv: The command line, the program's name first; by default `sys.argv`.

  Returns:
    The exit code: 0, or 2 after one line on stderr about a wrong question.
  """
  return command_line.run(
    _build_parser(), sys.argv if argv is None else argv, _compute
  )


def _build_parser() -> command_line.Parser:
  """Returns the flags of a question."""
  parser = command_line.Parser('tff-clipping-budget', __doc__ or '')
  for name, text in _INTEGERS.items():
    parser.add_flag(name, text, command_line.whole_number)
  for name, text in _NUMBERS.items():
    parser.add_flag(name, text, command_line.number)
  parser.add_flag(
    'sampling',
    'How the clients of a round are drawn: poisson, or min_separation with a '
    'mechanism or a separation.',
    command_line.one_of(*budget_question.SAMPLINGS),
  )
  parser.add_flag(
    'mechanism',
    'How the noise of a round depends on that of those before.',
    command_line.one_of(*by_name.MECHANISMS),
    'gaussian',
  )
  parser.add_flag(
    'accountant',
    'How the rounds are added up: rdp if not given, for random_allocation pld.',
    command_line.one_of(*accountants.ACCOUNTANTS),
  )
  parser.add_flag(
    'together',
    'Files of plans to add up, separated by commas; see above.',
  )
  return parser


def _compute(
  values: argparse.Namespace, record: dict[str, Any]
) -> command_line.Result:
  """Answers the question on the command line."""
  if values.arguments:
    raise command_line.UsageError(
      f'every argument must be a --flag, found {values.arguments[0]!r}.'
    )
  if values.together is not None:
    return _add_up(values, record)
  is_table = values.format == 'table'
  answer = budget_report.compute_answer(
    _build_question(values),
    false_positive_rate=_FALSE_POSITIVE_RATE if is_table else None,
  )
  form = budget_text.format_table if is_table else budget_report.format_json
  return command_line.Result(form(answer, record), warnings=answer.warnings)


def _add_up(
  values: argparse.Namespace, record: dict[str, Any]
) -> command_line.Result:
  """Adds up the plans of files, and that of the flags if there is one."""
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    runs = [
      planned_runs.read_planned_run(path, _solve_flags)
      for path in values.together.split(',')
    ]
    if values.clients_per_round is not None:
      runs.append(planned_runs.PlannedRun('the flags', _solve_values(values)))
    found = planned_runs.add_up(
      runs, target_delta=values.target_delta, accountant=values.accountant
    )
  is_table = values.format == 'table'
  form = planned_runs.format_table if is_table else planned_runs.format_json
  messages = dict.fromkeys(
    str(each.message)
    for each in caught
    if issubclass(each.category, UserWarning)
  )
  return command_line.Result(form(found, record), warnings=tuple(messages))


def _solve_flags(path: str) -> base_plan.BasePlan:
  """Returns the plan that answers the flags in a file."""
  parser = _build_parser()
  return _solve_values(parser.parse_line([f'--flagfile={path}']))


def _solve_values(values: argparse.Namespace) -> base_plan.BasePlan:
  """Returns the plan that answers a question."""
  return budget_question.solve(_build_question(values))


def _build_question(values: argparse.Namespace) -> budget_question.Question:
  """Returns the question of the flags."""
  if values.sampling is None:
    asks = values.mechanism != 'gaussian' or values.min_separation is not None
    values.sampling = 'min_separation' if asks else 'poisson'
  if values.clients_per_round is None and values.sampling == 'none':
    values.clients_per_round = values.num_clients
  needed = ['num_clients', 'clients_per_round', 'target_delta']
  if values.noise_to_clients_ratio is not None:
    needed.remove('clients_per_round')
  elif all(
    getattr(values, name) is not None for name in budget_question.SOLVABLE
  ):
    # It is solved for, or one too many is given.
    needed.remove('num_clients')
  for name in needed:
    if getattr(values, name) is None:
      raise command_line.UsageError(f'--{name} must be given; see --help.')
  fields = dataclasses.fields(budget_question.Question)
  return budget_question.Question(
    **{field.name: getattr(values, field.name) for field in fields}
  )


if __name__ == '__main__':
  sys.exit(run())
