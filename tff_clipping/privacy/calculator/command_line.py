"""Shared by the commands: flags, errors, files and exit codes."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

import tff_clipping
from tff_clipping import argument_checks


def create_parser(name: str, description: str) -> argparse.ArgumentParser:
  """Returns a parser with the flags that all commands have."""
  parser = argparse.ArgumentParser(
    prog=name,
    usage=f'{name} [flags]',
    description=description.strip(),
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument(
    '--version', action='version', version=f'{name} {tff_clipping.__version__}'
  )
  parser.add_argument(
    '--format',
    choices=('table', 'json'),
    default='table',
    help='How the answer is printed.',
  )
  parser.add_argument(
    '--output',
    metavar='FILE',
    help='Writes the answer to this file, which must not exist yet.',
  )
  return parser


def whole_number(text: str) -> int:
  """Returns the value of a flag; also 1e6 or 80.0 is a whole number."""
  return argument_checks.parse_integer(text)


def parse(
  parser: argparse.ArgumentParser, line: Sequence[str]
) -> argparse.Namespace:
  """Returns the values of flags, some of which may be in a `--flagfile`.

  Raises:
    ValueError: If there is no such file.
    SystemExit: As argparse does.
  """
  try:
    # absl's flag files, as all our commands take them.
    line = flags.FlagValues().read_flags_from_files([parser.prog, *line])[1:]
  except flags.Error as error:
    raise ValueError(str(error).removeprefix('ERROR:: ')) from error
  return parser.parse_intermixed_args(line)


def run(
  parser: argparse.ArgumentParser,
  argv: Sequence[str],
  compute: Callable[[argparse.Namespace, dict[str, Any]], dict[str, Any]],
  format_answer: Callable[[argparse.Namespace, dict[str, Any]], list[str]],
) -> int:
  """Runs a command.

  Args:
    parser: Its flags.
    argv: The command line, the program's name first.
    compute: Returns the answer for `json.dumps`, from the flags and the record
      of `_build_record`. Its TypeErrors and ValueErrors are the user's. Its
      warnings are added to the answer.
    format_answer: Returns the answer in paragraphs for a person to read.

  Returns:
    The exit code: 0, or 2 after a line on stderr about a wrong question.
  """
  name, line = parser.prog, argv[1:]
  try:
    values = parse(parser, line)
    record = _build_record([name, *line])
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter('always')
      answer = compute(values, record)
    told = dict.fromkeys(
      str(w.message) for w in caught if issubclass(w.category, UserWarning)
    )
    answer = {**answer, 'warnings': [*told], **record}
    if values.format == 'json':
      text = json.dumps(answer, indent=2, allow_nan=False)
    else:
      paragraphs = [
        *format_answer(values, answer),
        *(f'Warning: {each}' for each in told),
        _format_record(record),
      ]
      text = '\n\n'.join(paragraphs)
    for warning in told:
      print(f'{name}: warning: {_name_flags(parser, warning)}', file=sys.stderr)
    if values.output is not None:
      write_new_file(values.output, f'{text}\n', 'output')
      text = f'The answer is in {values.output}.'
    print(text)
    sys.stdout.flush()
  except (TypeError, ValueError) as error:
    print(f'{name}: {_name_flags(parser, str(error))}', file=sys.stderr)
    return 2
  except SystemExit as stop:  # Of argparse: --help, or a flag that is wrong.
    return int(stop.code or 0)
  except BrokenPipeError:
    # The reader of our output has seen enough; Python must not complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    return 130
  return 0


def write_new_file(path: str, text: str, name: str) -> None:
  """Writes a file that must not exist yet; `name` is the argument for errors.

  Raises:
    ValueError: If the file exists, or cannot be written.
  """
  try:
    with open(path, 'x', encoding='utf-8') as file:
      file.write(text)
  except FileExistsError as error:
    raise ValueError(
      f'`{name}` must be a new file, found {path!r}, which exists already.'
    ) from error
  except OSError as error:
    raise ValueError(
      f'`{name}` must be a file that can be written, found {path!r} '
      f'({error.strerror or error}).'
    ) from error


def _build_record(argv: Sequence[str]) -> dict[str, Any]:
  """Returns the date, the versions and the command of an answer."""
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


def _format_record(record: dict[str, Any]) -> str:
  """Returns a record for a person to read."""
  versions = ', '.join(f'{k} {v}' for k, v in record['versions'].items())
  return (
    f'Computed on {record["date"]} with {versions} by\n  {record["command"]}'
  )


def _name_flags(parser: argparse.ArgumentParser, message: str) -> str:
  """Returns a message about arguments as one about flags, on one line."""
  known = '|'.join(vars(parser.parse_args([])))
  message = re.sub(rf'`({known})`', r'--\1', ' '.join(message.split()))
  return message.replace('`', '')
