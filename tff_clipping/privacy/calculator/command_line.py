"""What the commands have in common: flags, errors, files and exit codes."""

import argparse
import datetime
import difflib
import importlib.metadata
import os
import pathlib
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from absl import flags

import tff_clipping
from tff_clipping import argument_checks


class UsageError(ValueError):
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


class Parser(argparse.ArgumentParser):
  """The flags of a command, those that all commands have among them.

  What is not a flag is in `arguments`. Flags may come from files, by
  `--flagfile`.
  """

  def __init__(self, name: str, description: str):
    """Defines the flags that all commands have.

    Args:
      name: The command's.
      description: For --help, before the flags.
    """
    super().__init__(
      prog=name,
      usage=f'{name} [flags]',
      description=description.strip(),
      formatter_class=argparse.RawDescriptionHelpFormatter,
      add_help=False,
      allow_abbrev=False,
    )
    self.add_argument('arguments', nargs='*', help=argparse.SUPPRESS)
    self.add_argument(
      *('-h', '--help', '--helpshort', '--helpfull'),
      action='help',
      help='Prints this.',
    )
    self.add_argument(
      '--version',
      action='version',
      version=f'{name} {tff_clipping.__version__}',
      help='Prints the version.',
    )
    self.add_flag(
      'format',
      'How the answer is printed: table or json.',
      one_of('table', 'json'),
      'table',
    )
    self.add_flag(
      'output', 'Writes the answer to this file, which must not exist yet.'
    )

  def add_flag(
    self,
    name: str,
    text: str,
    kind: Callable[[str], Any] = str,
    default: Any = None,
  ) -> None:
    """Defines a flag.

    Args:
      name: The flag's.
      text: What it means.
      kind: Returns the value of what is given, such as `whole_number`.
      default: The value where nothing is given.
    """
    if default is not None:
      text += f' Default: {default}.'
    self.add_argument(
      f'--{name}', metavar='', type=kind, default=default, help=text
    )

  def parse_line(self, line: Sequence[str]) -> argparse.Namespace:
    """Returns the values of the flags, and the other arguments.

    Args:
      line: The command line without the program's name.

    Raises:
      UsageError: If there is no such flag or file, or a value is wrong.
    """
    try:
      # absl's flag files, as all our commands take them.
      line = flags.FlagValues().read_flags_from_files([self.prog, *line])[1:]
    except flags.Error as error:
      raise UsageError(str(error).removeprefix('ERROR:: ')) from error
    values, unknown = self.parse_known_intermixed_args(line)
    for argument in unknown:
      raise UsageError(self._suggest_flags(argument))
    return values

  def error(self, message: str) -> NoReturn:
    """Raises what argparse found wrong; see the base class."""
    raise UsageError(re.sub(r'^argument (--\w+): ', r'\1 ', message))

  def name_flags(self, message: str) -> str:
    """Returns a message about arguments as one about flags, on one line."""
    known = '|'.join(vars(self.parse_args([])))
    message = re.sub(rf'`({known})`', r'--\1', ' '.join(message.split()))
    return message.replace('`', '')

  def _suggest_flags(self, argument: str) -> str:
    """Returns that a flag is not known, and which may have been meant."""
    found = argument.lstrip('-').partition('=')[0]
    names = [*vars(self.parse_args([]))]
    meant = [name for name in names if found in name.split('_')]
    meant = meant or difflib.get_close_matches(found, names)
    text = f'Unknown command line flag {found!r}.'
    return f'{text} Did you mean: {", ".join(meant)} ?' if meant else text


def kind(rule: str, convert: Callable[[str], Any]) -> Callable[[str], Any]:
  """Returns what takes the text of a flag's value.

  Args:
    rule: What it must be, for the message.
    convert: Returns the value; it raises ValueError if it is none.
  """

  def check(text: str) -> Any:
    try:
      return convert(text)
    except ValueError as error:
      raise argparse.ArgumentTypeError(
        f'must be {rule}, found {text!r}.'
      ) from error

  return check


def one_of(*choices: str) -> Callable[[str], str]:
  """Returns what takes one of these for a flag's value."""
  return kind(
    f'one of {", ".join(choices)}', lambda text: choices[choices.index(text)]
  )


# Also 1e6 or 80.0 is one.
whole_number = kind('a whole number', argument_checks.parse_integer)
number = kind('a number', float)


def run(
  parser: Parser,
  argv: Sequence[str],
  compute: Callable[[argparse.Namespace, dict[str, Any]], Result],
) -> int:
  """Runs a command.

  Args:
    parser: Its flags.
    argv: The command line, the program's name first.
    compute: Returns the answer, from the flags and what `build_record` says of
      this command. A TypeError or ValueError of it is the user's.

  Returns:
    The exit code: 0, or 2 after one line on stderr about a wrong question.
  """
  name, line = parser.prog, argv[1:]
  try:
    values = parser.parse_line(line)
    if values.output is not None:
      # Find out now whether it can be written.
      check_new_file(values.output, 'output')
    record = build_record([name, *line])
    text, notes, warnings = compute(values, record)
    for warning in warnings:
      print(f'{name}: warning: {parser.name_flags(warning)}', file=sys.stderr)
    if values.output is not None:
      write_new_file(values.output, f'{text}\n'.encode(), 'output')
      text = '\n'.join([f'The answer is in {values.output}.', *notes])
    print(text)
    sys.stdout.flush()
  except (TypeError, ValueError) as error:
    print(f'{name}: {parser.name_flags(str(error))}', file=sys.stderr)
    return 2
  except SystemExit:  # After --help or --version.
    return 0
  except BrokenPipeError:
    # The reader of our output has seen enough; keep Python from complaining.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    return 130
  return 0


def check_new_file(path: str, name: str) -> None:
  """Raises ValueError if a new file cannot be written to `path`.

  Nothing is left there.

  Args:
    path: The file.
    name: The argument that gave it, for the message.
  """
  if os.path.lexists(path):
    raise ValueError(
      f'`{name}` must be a new file, found {path!r}, which exists already.'
    )
  folder = pathlib.Path(path).parent
  if not path or not folder.is_dir() or not os.access(folder, os.W_OK):
    raise ValueError(
      f'`{name}` must be a file that can be written, found {path!r}.'
    )


def write_new_file(path: str, content: bytes, name: str) -> None:
  """Writes a new file; arguments and errors as of `check_new_file`."""
  check_new_file(path, name)
  try:
    with open(path, 'xb') as file:
      file.write(content)
  except OSError as error:
    raise ValueError(
      f'`{name}` must be a file that can be written, found {path!r} '
      f'({error.strerror or error}).'
    ) from error


def build_record(argv: Sequence[str]) -> dict[str, Any]:
  """Returns when, with what and by which command something is computed.

  Args:
    argv: The command line, the program's name first.

  Returns:
    The day in UTC, as `date`; the `versions` of each program and library, by
    name; and the `command`.
  """
  libraries = 'dp-accounting', 'numpy', 'scipy'
  return {
    'date': datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    'versions': {
      'tff-clipping': tff_clipping.__version__,
      **{name: importlib.metadata.version(name) for name in libraries},
      'python': platform.python_version(),
    },
    'command': shlex.join(argv),
  }


def format_record(record: Mapping[str, Any]) -> str:
  """Returns a record for a person to read."""
  versions = ', '.join(f'{k} {v}' for k, v in record['versions'].items())
  return (
    f'Computed on {record["date"]} with {versions} by\n  {record["command"]}'
  )
