r"""Computes the privacy budget of DP-FedAvg.

Give --num_clients, --clients_per_round and --target_delta, and two of
--target_epsilon, --noise_multiplier and --num_rounds. The answer is the third,
with the other accountants, samplings and mechanisms beside it. Example:

  tff-clipping-budget --num_clients=1920 --clients_per_round=80 \
      --target_delta=1e-5 --num_rounds=100 --target_epsilon=1.5

Or give --noise_to_clients_ratio with --target_epsilon and --num_rounds, and the
answer is the fewest clients per round.

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

import dataclasses
import decimal
import os
import re
import sys
import warnings
from collections.abc import Sequence

from absl import flags

import tff_clipping
from tff_clipping.privacy import (
  accountants,
  budget_question,
  budget_report,
  mechanisms,
  output_file,
)

_NAME = 'tff-clipping-budget'
_HELP = ('-h', '--h', '-help', '--help', '--helpshort', '--helpfull')
_VERSION = ('-version', '--version')


def run(argv: Sequence[str] | None = None) -> int:
  """Answers one question.

  Args:
    argv: The command line, the program's name first; by default `sys.argv`.

  Returns:
    The exit code: 0, or 2 after one line on stderr about a wrong question.
  """
  argv = list(sys.argv if argv is None else argv)
  values = _define_flags()
  try:
    if any(argument.split('=')[0] in _HELP for argument in argv[1:]):
      print(_describe_usage(values))
      return 0
    if any(argument in _VERSION for argument in argv[1:]):
      print(f'{_NAME} {tff_clipping.__version__}')
      return 0
    question = _parse(values, argv)
    # Find out now whether they can be written.
    if values.output is not None:
      output_file.check(values.output, 'output')
    if values.plot is not None:
      _import_plot().check_path(values.plot)
    answer = budget_report.compute_answer(question)
    if values.plot is not None:
      _plot(answer, values.plot)
    for warning in answer.warnings:
      print(f'{_NAME}: warning: {_name_flags(warning)}', file=sys.stderr)
    form = {
      'json': budget_report.format_json,
      'table': budget_report.format_table,
    }[values.format]
    record = budget_report.build_record([_NAME, *argv[1:]])
    text = form(answer, record, values.plot)
    if values.output is not None:
      output_file.write(values.output, text, 'output')
      text = f'The answer is in {values.output}.'
      if values.plot is not None:
        text += f'\nThe figure is in {values.plot}.'
    print(text)
    sys.stdout.flush()
  except (_UsageError, TypeError, ValueError) as error:
    print(f'{_NAME}: {_name_flags(str(error))}', file=sys.stderr)
    return 2
  except BrokenPipeError:
    # The reader of our output has seen enough; keep Python from complaining.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    return 130
  return 0


class _UsageError(Exception):
  """The command line is not a question."""


class _IntegerParser(flags.ArgumentParser):
  """Takes whole numbers, also as 1e6 or 80.0."""

  syntactic_help = 'a whole number'

  def parse(self, argument: str | int) -> int:
    """Returns the number; see the base class."""
    try:
      number = decimal.Decimal(argument)
      if number != number.to_integral_value() or abs(number) > 10**30:
        raise ValueError
      return int(number)
    except (ArithmeticError, TypeError, ValueError) as error:
      raise ValueError('it is not a whole number') from error

  def flag_type(self) -> str:
    """Returns the name of the kind; see the base class."""
    return 'int'


def _define_flags() -> flags.FlagValues:
  """Returns flags of our own: other programs have flags of the same names."""
  values = flags.FlagValues()
  integers = {
    'num_clients': 'Clients in the population (N).',
    'clients_per_round': 'Clients in a round (P); the expected number for '
    'poisson. Solved for if noise_to_clients_ratio is given.',
    'min_clients_per_round': 'The least cohort of truncated_poisson. Chosen if '
    'not given.',
    'max_clients_per_round': 'Its largest cohort. Chosen if not given.',
    'num_rounds': 'Rounds (T). Solved for if not given.',
    'min_separation': 'The least number of rounds from one participation of a '
    'client to its next (b).',
    'model_size': "Number of the model's parameters: adds the noise norm.",
  }
  floats = {
    'target_delta': 'Delta, below 1/num_clients.',
    'target_epsilon': 'The epsilon not to pass. Solved for if not given.',
    'noise_multiplier': 'Standard deviation of the noise on the sum over the '
    'clipping norm; of a draw, with correlated noise. Solved for if not given.',
    'noise_to_clients_ratio': 'noise_multiplier / clients_per_round, the noise '
    'on the mean over the clipping norm: solves for clients_per_round.',
    'clipping_norm': 'The clipping norm (c), in whose unit noise is shown.',
    'false_positive_rate': 'Adds the largest true-positive rate of attacks '
    'with this false-positive rate, and mu of mu-GDP.',
  }
  choices = {
    'sampling': (
      None,
      budget_question.SAMPLINGS,
      'How the clients of a round are drawn: poisson, or min_separation with '
      'a mechanism or a separation.',
    ),
    'mechanism': (
      'gaussian',
      mechanisms.MECHANISMS,
      'How the noise of a round depends on that of those before.',
    ),
    'accountant': (
      None,
      accountants.ACCOUNTANTS,
      'How the rounds are added up: rdp if not given.',
    ),
    'format': ('table', ('table', 'json'), 'How the answer is printed.'),
  }
  for name, text in integers.items():
    flags.DEFINE(_IntegerParser(), name, None, text, flag_values=values)
  for name, text in floats.items():
    flags.DEFINE_float(
      name, 1.0 if name == 'clipping_norm' else None, text, flag_values=values
    )
  for name, (default, listed, text) in choices.items():
    flags.DEFINE_enum(name, default, [*listed], text, flag_values=values)
  flags.DEFINE_string(
    'output',
    None,
    'Writes the answer to this file, which must not exist yet.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'plot',
    None,
    'Draws epsilon by rounds and the noise by cohort size, or by separation, '
    'into this file (.png, .pdf or .svg), which must not exist yet. Needs '
    'matplotlib.',
    flag_values=values,
  )
  flags.DEFINE_bool('version', False, 'Prints the version.', flag_values=values)
  return values


def _parse(
  values: flags.FlagValues, argv: Sequence[str]
) -> budget_question.Question:
  """Returns the question on the command line."""
  try:
    rest = values(argv)[1:]
  except flags.Error as error:
    raise _UsageError(_explain(values, ' '.join(str(error).split()))) from error
  if rest:
    raise _UsageError(f'every argument must be a --flag, found {rest[0]!r}.')
  if values.sampling is None:
    asks = values.mechanism != 'gaussian' or values.min_separation is not None
    values.sampling = 'min_separation' if asks else 'poisson'
  if values.clients_per_round is None and values.sampling == 'none':
    values.clients_per_round = values.num_clients
  needed = ['num_clients', 'clients_per_round', 'target_delta']
  if values.noise_to_clients_ratio is not None:
    needed.remove('clients_per_round')
  for name in needed:
    if values[name].value is None:
      raise _UsageError(f'--{name} must be given; see --help.')
  names = [field.name for field in dataclasses.fields(budget_question.Question)]
  return budget_question.Question(
    **{name: values[name].value for name in names}
  )


def _explain(values: flags.FlagValues, message: str) -> str:
  """Returns absl's message about a flag's value as flag, rule, value."""
  found = re.match(r'flag --(\w+)=(.*?): ', message)
  if not found or found[1] not in values:
    return message
  flag = values[found[1]]
  kind = flag.flag_type()
  rules = {'int': 'a whole number', 'float': 'a number'}
  rule = rules.get(kind)
  if rule is None:
    rule = 'one of ' + ', '.join(getattr(flag.parser, 'enum_values', [kind]))
  return f'--{found[1]} must be {rule}, found {found[2]!r}.'


def _name_flags(message: str) -> str:
  """Returns a message about arguments as one about flags, on one line."""
  known = '|'.join(_define_flags())
  message = re.sub(rf'`({known})`', r'--\1', ' '.join(message.split()))
  return message.replace('`', '')


def _describe_usage(values: flags.FlagValues) -> str:
  """Returns the text of --help."""
  lines = [__doc__.strip(), '', 'Flags:']
  for name, flag in values.flag_values_dict().items():
    del flag
    default = values[name].default
    lines.append(f'  --{name}' + ('' if default is None else f' ({default})'))
    lines.append(f'      {values[name].help}')
  return '\n'.join(lines)


def _import_plot():
  """Returns the module that draws, or says what it needs."""
  try:
    from tff_clipping.privacy import budget_plot  # Slow to import.
  except ImportError as error:
    raise _UsageError(
      f"--plot needs matplotlib: pip install 'tff-clipping[plot]' ({error})."
    ) from error
  return budget_plot


def _plot(answer: budget_report.Answer, path: str) -> None:
  """Draws the figure."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # They are in the answer already.
    _import_plot().save_figure(answer, path)


if __name__ == '__main__':
  sys.exit(run())
