r"""Computes the privacy budget of DP-FedAvg.

Give --num_clients, --clients_per_round and --target_delta, and two of
--target_epsilon, --noise_multiplier and --num_rounds. The answer is the third,
with what it promises, and a few other ways to the same promise. Example:

  tff-clipping-budget --num_clients=1920 --clients_per_round=80 \
      --target_delta=1e-5 --num_rounds=100 --target_epsilon=1.5

Or give all three without --num_clients: the answer is the smallest population.
Or give --noise_to_clients_ratio with --target_epsilon and --num_rounds, and the
answer is the fewest clients per round.

In days: --rounds_per_day=24 --num_days=90 gives the rounds, and with
--max_per_day=1 a device comes at most once in any 24 hours.
--max_participations=K limits how often it comes in all.

Several runs on the same clients: --together=FILE,FILE,... adds up the plans in
these files, and that of the other flags if there are any. A file is the
privacy.json of a run, an answer by --format=json, or the flags of a question.

The noise multiplier is the standard deviation of the noise on the sum of the
clipped updates, divided by the clipping norm, for all samplings.

Samplings:
  poisson     each client joins a round independently; add or remove one client
  truncated_poisson
              the same, brought within bounds, for noise in the clients' shares
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
  shuffled_epochs
              each client comes once in an epoch; zero out one client
Mechanisms, for the last three (the others have gaussian noise):
  gaussian    noise that is independent in each round
  tree        tree aggregation
  banded      banded Toeplitz noise, optimised; for grouped_poisson too
  blt         buffered linear Toeplitz noise, optimised; a few models of memory
Accountants, for all but the last three:
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
from tff_clipping.privacy.calculator import schedule as schedule_lib
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans import base_plan

# Of the attack that the words of a promise are about.
_FALSE_POSITIVE_RATE = 0.01

_INTEGERS = {
  'num_clients': 'Clients in the population (N). Solved for if epsilon, noise '
  'and rounds are given.',
  'clients_per_round': 'Clients in a round (P); the expected number for '
  'poisson. Solved for if noise_to_clients_ratio is given.',
  'min_clients_per_round': 'The least cohort of truncated_poisson. Chosen if '
  'not given.',
  'max_clients_per_round': 'Its largest cohort. Chosen if not given.',
  'num_rounds': 'Rounds (T). Solved for if not given.',
  'rounds_per_day': 'Rounds in a day, for --num_days and --max_per_day.',
  'num_days': 'Days, in place of --num_rounds.',
  'max_per_day': 'The most participations of a client in any 24 hours; the '
  'server turns away who comes sooner.',
  'max_participations': 'The most participations of a client in the whole run, '
  'spread evenly.',
  'min_separation': 'The least number of rounds from one participation of a '
  'client to its next (b).',
  'model_size': 'Number of parameters that are trained: adds the noise norm.',
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
  parser = command_line.Parser(
    'tff-clipping-budget', __doc__ or '', formats=('table', 'json', 'csv')
  )
  for name, text in _INTEGERS.items():
    parser.add_flag(name, text, command_line.whole_number)
  for name, text in _NUMBERS.items():
    parser.add_flag(name, text, command_line.number)
  parser.add_flag(
    'clipping_norm',
    'The clipping norm (c), in whose unit noise is shown.',
    command_line.number,
    1.0,
  )
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
  parser.add_switch(
    'full',
    'Compares with all samplings, mechanisms and accountants, also with what '
    'is no guarantee, and shows how large the noise is.',
  )
  parser.add_switch(
    'theorem_2', "Adds the constant of the paper's Theorem 2 for this noise."
  )
  parser.add_flag(
    'plot',
    'Draws epsilon by rounds and the noise by cohort size, or by separation, '
    'into this file (.png, .pdf or .svg), which must not exist yet. Needs '
    'matplotlib.',
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
  asked = _read_schedule(values)
  question = _build_question(values)
  if values.plot is not None:
    # Find out now whether it can be drawn.
    command_line.check_new_file(values.plot, 'plot', _import_plot().FORMATS)
  is_table = values.format == 'table'
  answer = budget_report.compute_answer(
    question,
    is_full=values.full or not is_table,
    false_positive_rate=_FALSE_POSITIVE_RATE if is_table else None,
  )
  schedule = asked.describe(answer.plan.num_rounds, question.min_separation)
  notes = []
  if values.plot is not None:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # They are in the answer already.
      figure = _import_plot().draw_figure(answer, values.plot)
    command_line.write_new_file(values.plot, figure, 'plot')
    notes.append(f'The figure is in {values.plot}.')
  if values.format == 'json':
    text = budget_report.format_json(answer, record, values.plot, schedule)
  elif values.format == 'csv':
    text = budget_report.format_csv(answer, guarantees_only=not values.full)
  else:
    text = budget_text.format_table(
      answer,
      record,
      values.plot,
      schedule,
      shows_theorem_2=values.theorem_2,
    )
  return command_line.Result(text, tuple(notes), answer.warnings)


def _add_up(
  values: argparse.Namespace, record: dict[str, Any]
) -> command_line.Result:
  """Adds up the plans of files, and that of the flags if there is one."""
  if values.plot is not None:
    raise command_line.UsageError('--plot must not be given with --together.')
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
  form = {
    'json': planned_runs.format_json,
    'csv': planned_runs.format_csv,
    'table': planned_runs.format_table,
  }[values.format]
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
  _read_schedule(values)
  return budget_question.solve(_build_question(values))


def _read_schedule(values: argparse.Namespace) -> schedule_lib.Schedule:
  """Returns what is said in days, after it was put into rounds."""
  fields = dataclasses.fields(schedule_lib.Schedule)
  asked = schedule_lib.Schedule(
    **{field.name: getattr(values, field.name) for field in fields}
  )
  values.num_rounds = asked.find_num_rounds(values.num_rounds)
  if not asked.limits_devices:
    return asked
  if values.min_separation is not None:
    raise command_line.UsageError(
      '--min_separation must not be given with --max_per_day or '
      f'--max_participations, which say it in words, found '
      f'{values.min_separation}.'
    )
  if values.sampling not in (None, 'min_separation', 'grouped_poisson'):
    raise command_line.UsageError(
      '--sampling must be min_separation or grouped_poisson where a device has '
      f'a limit, which {values.sampling} does not keep.'
    )
  values.min_separation = asked.find_separation(values.num_rounds)
  return asked


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


def _import_plot() -> Any:
  """Returns the module that draws, or says what it needs."""
  try:
    from tff_clipping.privacy.calculator import budget_plot  # Slow to import.
  except ImportError as error:
    raise command_line.UsageError(
      f"--plot needs matplotlib: pip install '.[plot]' in a checkout ({error})."
    ) from error
  return budget_plot


if __name__ == '__main__':
  sys.exit(run())
