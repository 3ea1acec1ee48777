"""What the commands have in common: flags, errors, files and exit codes."""

import decimal
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from absl import flags

import tff_clipping
from tff_clipping.privacy.calculator import computation_record, output_file

_HELP = ('-h', '--h', '-help', '--help', '--helpshort', '--helpfull')
_VERSION = ('-version', '--version')


class UsageError(Exception):
  """The command line is not a question."""


class Result(NamedTuple):
  """What a command has to say.

  Attributes:
    text: The answer.
    notes: What is to be said if the answer goes into a file.
    warnings: What goes to stderr.
  """

  text: str
  notes: tuple[str, ...] = ()
  warnings: tuple[str, ...] = ()


def run(
  name: str,
  argv: Sequence[str],
  *,
  description: str,
  values: flags.FlagValues,
  compute: Callable[
    [flags.FlagValues, Sequence[str], computation_record.Record], Result
  ],
) -> int:
  """Runs a command.

  Args:
    name: The command's.
    argv: The command line, the program's name first.
    description: For --help, before the flags.
    values: The flags, those of `define_common_flags` among them.
    compute: Returns the answer, from the flags, the arguments that are none,
      and the record of this command. A TypeError or ValueError of it is the
      user's, and so is a `UsageError`.

  Returns:
    The exit code: 0, or 2 after one line on stderr about a wrong question.
  """
  try:
    if any(argument.split('=')[0] in _HELP for argument in argv[1:]):
      print(_describe_usage(description, values))
      return 0
    if any(argument in _VERSION for argument in argv[1:]):
      print(f'{name} {tff_clipping.__version__}')
      return 0
    rest = _parse(values, argv)
    if values.output is not None:
      # Find out now whether it can be written.
      output_file.check(values.output, 'output')
    record = computation_record.build_record([name, *argv[1:]])
    text, notes, warnings = compute(values, rest, record)
    for warning in warnings:
      print(f'{name}: warning: {_name_flags(values, warning)}', file=sys.stderr)
    if values.output is not None:
      output_file.write(values.output, text, 'output')
      text = '\n'.join([f'The answer is in {values.output}.', *notes])
    print(text)
    sys.stdout.flush()
  except (UsageError, TypeError, ValueError) as error:
    print(f'{name}: {_name_flags(values, str(error))}', file=sys.stderr)
    return 2
  except BrokenPipeError:
    # The reader of our output has seen enough; keep Python from complaining.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    return 130
  return 0


def define_common_flags() -> flags.FlagValues:
  """Returns flags of our own: other programs have flags of the same names."""
  values = flags.FlagValues()
  flags.DEFINE_enum(
    'format',
    'table',
    ['table', 'json'],
    'How the answer is printed.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'output',
    None,
    'Writes the answer to this file, which must not exist yet.',
    flag_values=values,
  )
  flags.DEFINE_bool('version', False, 'Prints the version.', flag_values=values)
  return values


def define_integer(name: str, text: str, values: flags.FlagValues) -> None:
  """Defines a flag that takes whole numbers, also as 1e6 or 80.0.

  Args:
    name: The flag's.
    text: What it means.
    values: Where it is added.
  """
  flags.DEFINE(IntegerParser(), name, None, text, flag_values=values)


class IntegerParser(flags.ArgumentParser):
  """Takes whole numbers, also as 1e6 or 80.0."""

  syntactic_help = 'a whole number'

  def parse(self, argument: str | int) -> int:
    """Returns the number; see the base class."""
    try:
      number = decimal.Decimal(argument)
      # A seed has up to 128 bits.
      if number != number.to_integral_value() or abs(number) > 10**40:
        raise ValueError
      return int(number)
    except (ArithmeticError, TypeError, ValueError) as error:
      raise ValueError('it is not a whole number') from error

  def flag_type(self) -> str:
    """Returns the name of the kind; see the base class."""
    return 'int'


def _parse(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
  """Sets the flags and returns the other arguments."""
  try:
    return values(list(argv))[1:]
  except flags.UnrecognizedFlagError as error:
    raise UsageError(suggest_flags(error, values)) from error
  except flags.Error as error:
    message = ' '.join(str(error).split())
    raise UsageError(_explain(values, message)) from error


def suggest_flags(
  error: flags.UnrecognizedFlagError, names: Iterable[str]
) -> str:
  """Returns an error in words, with the flags that may have been meant.

  For a part of a name, such as `epsilon`, these are the names that it is a part
  of; else those that absl finds to be spelled alike.

  Args:
    error: The error.
    names: Those of all flags.
  """
  meant = [name for name in names if error.flagname in name.split('_')]
  if not meant:
    return str(error)
  said = str(error).partition('. Did you mean')[0]
  return f'{said}. Did you mean: {", ".join(meant)} ?'


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


def _name_flags(values: flags.FlagValues, message: str) -> str:
  """Returns a message about arguments as one about flags, on one line."""
  known = '|'.join(values)
  message = re.sub(rf'`({known})`', r'--\1', ' '.join(message.split()))
  return message.replace('`', '')


def _describe_usage(description: str, values: flags.FlagValues) -> str:
  """Returns the text of --help."""
  lines = [description.strip(), '', 'Flags:']
  for name in values.flag_values_dict():
    default = values[name].default
    lines.append(f'  --{name}' + ('' if default is None else f' ({default})'))
    lines.append(f'      {values[name].help}')
  return '\n'.join(lines)
