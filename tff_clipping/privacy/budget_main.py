r"""Computes the privacy budget of DP-FedAvg.

Give --num_clients, --clients_per_round and --target_delta, and two of
--target_epsilon, --noise_multiplier and --num_rounds. The answer is the third,
with the other accountants and samplings beside it. Example:

  tff-clipping-budget --num_clients=1920 --clients_per_round=80 \
      --target_delta=1e-5 --num_rounds=100 --target_epsilon=1.5

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
Accountants:
  rdp         Renyi differential privacy, as TensorFlow Privacy
  pld         privacy loss distributions, tighter

Exit codes: 0 for an answer, 2 for a wrong or impossible question.
"""

import os
import re
import sys
import warnings
from collections.abc import Sequence

from absl import flags

from tff_clipping.privacy import accountants, budget_report

_NAME = 'tff-clipping-budget'
_HELP = ('-h', '--h', '-help', '--help', '--helpshort', '--helpfull')


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
    question = _parse(values, argv)
    if values.plot is not None:
      _plot(None, values.plot)  # Find out now whether that can be done.
    answer = budget_report.compute_answer(question)
    if values.plot is not None:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # They are in the answer already.
        _plot(answer, values.plot)
    for warning in answer.warnings:
      print(f'{_NAME}: warning: {_name_flags(warning)}', file=sys.stderr)
    if values.format == 'json':
      print(budget_report.format_json(answer))
    else:
      print(budget_report.format_table(answer))
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


def _define_flags() -> flags.FlagValues:
  """Returns flags of our own: other programs have flags of the same names."""
  values = flags.FlagValues()
  integers = {
    'num_clients': 'Clients in the population (N).',
    'clients_per_round': 'Clients in a round (P); the expected number for '
    'poisson.',
    'min_clients_per_round': 'The least cohort of truncated_poisson. Chosen if '
    'not given.',
    'max_clients_per_round': 'Its largest cohort. Chosen if not given.',
    'num_rounds': 'Rounds (T). Solved for if not given.',
    'model_size': "Number of the model's parameters: adds the noise norm.",
  }
  floats = {
    'target_delta': 'Delta, below 1/num_clients.',
    'target_epsilon': 'The epsilon not to pass. Solved for if not given.',
    'noise_multiplier': 'Standard deviation of the noise on the sum over the '
    'clipping norm. Solved for if not given.',
    'clipping_norm': 'The clipping norm (c), in whose unit noise is shown.',
  }
  for name, text in integers.items():
    flags.DEFINE_integer(name, None, text, flag_values=values)
  for name, text in floats.items():
    flags.DEFINE_float(
      name, 1.0 if name == 'clipping_norm' else None, text, flag_values=values
    )
  flags.DEFINE_enum(
    'sampling',
    'poisson',
    ['poisson', 'truncated_poisson', 'fixed_size', 'paper', 'none'],
    'How the clients of a round are drawn.',
    flag_values=values,
  )
  flags.DEFINE_enum(
    'accountant',
    'rdp',
    [*accountants.ACCOUNTANTS],
    'How the rounds are added up.',
    flag_values=values,
  )
  flags.DEFINE_enum(
    'format',
    'table',
    ['table', 'json'],
    'How the answer is printed.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'plot',
    None,
    'Draws epsilon by rounds and the noise multiplier by cohort size into this '
    'file (.png, .pdf or .svg). Needs matplotlib.',
    flag_values=values,
  )
  return values


def _parse(
  values: flags.FlagValues, argv: Sequence[str]
) -> budget_report.Question:
  """Returns the question on the command line."""
  try:
    rest = values(argv)[1:]
  except flags.Error as error:
    raise _UsageError(_explain(values, ' '.join(str(error).split()))) from error
  if rest:
    raise _UsageError(f'every argument must be a --flag, found {rest[0]!r}.')
  if values.clients_per_round is None and values.sampling == 'none':
    values.clients_per_round = values.num_clients
  for name in ('num_clients', 'clients_per_round', 'target_delta'):
    if values[name].value is None:
      raise _UsageError(f'--{name} must be given; see --help.')
  return budget_report.Question(
    num_clients=values.num_clients,
    clients_per_round=values.clients_per_round,
    target_delta=values.target_delta,
    target_epsilon=values.target_epsilon,
    noise_multiplier=values.noise_multiplier,
    num_rounds=values.num_rounds,
    sampling=values.sampling,
    accountant=values.accountant,
    clipping_norm=values.clipping_norm,
    model_size=values.model_size,
    min_clients_per_round=values.min_clients_per_round,
    max_clients_per_round=values.max_clients_per_round,
  )


def _explain(values: flags.FlagValues, message: str) -> str:
  """Returns absl's message about a flag's value as flag, rule, value."""
  found = re.match(r'flag --(\w+)=(.*?): ', message)
  if not found or found[1] not in values:
    return message
  flag = values[found[1]]
  kind = flag.flag_type()
  rules = {'int': 'an integer', 'float': 'a number'}
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


def _plot(answer: budget_report.Answer | None, path: str) -> None:
  """Draws the figure, or only checks the path, or says why it cannot."""
  try:
    from tff_clipping.privacy import budget_plot  # Slow to import.
  except ImportError as error:
    raise _UsageError(
      f"--plot needs matplotlib: pip install 'tff-clipping[plot]' ({error})."
    ) from error
  try:
    if answer is None:
      budget_plot.check_path(path)
    else:
      budget_plot.save_figure(answer, path)
  except OSError as error:
    raise _UsageError(
      f'--plot must be a file that can be written, found {path!r} '
      f'({error.strerror or error}).'
    ) from error


if __name__ == '__main__':
  sys.exit(run())
