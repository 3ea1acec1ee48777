"""Grid files: flags with several values each, and the runs that they make."""

import itertools
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from tasks.running import run_queue, run_request
from tasks.running.run_queue import QueuedRun

_LINE = re.compile(r'--(?P<name>\w+)(=(?P<values>.*))?')
# Their values have commas themselves.
_LISTS = ('update_rounds', 'variants', 'metrics')
_REFUSED = (ValueError, TypeError, OSError, ModuleNotFoundError, flags.Error)


class GridError(ValueError):
  """A grid file cannot be used; the message names its line."""


class _Line(NamedTuple):
  """A line of a grid file: a flag and its values, None for a bare flag."""

  number: int
  name: str
  values: tuple[str | None, ...]


def read_grid(
  path: str,
  folder: pathlib.Path,
  *,
  common_flags: Sequence[str] = (),
  typed_flags: Sequence[str] = (),
) -> list[QueuedRun]:
  """Returns the runs of a grid file, the last line's values changing fastest.

  Each line is a flag of `tasks.train`, with one value or several with commas
  between them: a run is made for every combination. Flag files are values as
  well. Empty lines, and those that begin with #, are skipped.

  Args:
    path: The grid file.
    folder: Where the folders of the runs go.
    common_flags: Flags that come before those of the file in all runs.
    typed_flags: Those of them that stand on the command line itself, and not in
      a flag file there.

  Raises:
    GridError: If a line cannot be used, with its number, a combination is none
      that can be run, or a typed flag has another value in all runs.
  """
  lines = _read_lines(path)
  runs = []
  seen = {}
  # Flags that no run has kept so far.
  lost = list(typed_flags)
  for combination in itertools.product(*(line.values for line in lines)):
    values = {
      line.name: _short(line.name, value)
      for line, value in zip(lines, combination, strict=True)
      if len(line.values) > 1
    }
    name = '_'.join(f'{k}={v}' for k, v in values.items()) or 'run'
    arguments = (
      *common_flags,
      *(
        f'--{line.name}' if value is None else f'--{line.name}={value}'
        for line, value in zip(lines, combination, strict=True)
      ),
    )
    output_dir = f'--output_dir={folder / name}'
    try:
      request = run_queue.check_run([*arguments, output_dir], seen)
    except _REFUSED as e:
      raise GridError(f'{path}{_where(lines, str(e))}: {e}') from e
    # That a flag would change nothing if it came last.
    lost = [
      flag
      for flag in lost
      if _parse_or_none([*arguments, flag, output_dir]) != request
    ]
    runs.append(QueuedRun(request, values, arguments))
  if lost:
    raise GridError(
      f'{lost[0]} would have no effect: {path} sets it in every run, or its '
      'flag files do. Change it there, or leave it out there.'
    )
  return runs


def _parse_or_none(
  arguments: Sequence[str],
) -> run_request.RunRequest | None:
  try:
    return run_request.parse(arguments)
  except _REFUSED:
    return None


def _read_lines(path: str) -> list[_Line]:
  try:
    text = pathlib.Path(path).read_text()
  except (OSError, UnicodeDecodeError) as e:
    raise GridError(
      f'`grid` must be a file that can be read, found {path!r}: {e}'
    ) from e
  lines = []
  for number, content in enumerate(text.splitlines(), start=1):
    content = content.strip()
    if not content or content.startswith('#'):
      continue
    try:
      line = _read_line(number, content)
      for other in lines:
        if other.name == line.name and (
          line.name != 'flagfile' or len(line.values) > 1
        ):
          raise ValueError(
            f'--{line.name} must be on one line, found it on line '
            f'{other.number} too.'
          )
    except ValueError as e:
      raise GridError(f'{path}, line {number}: {e}') from e
    lines.append(line)
  if not lines:
    raise GridError(f'`grid` must hold flags, found none in {path!r}.')
  return lines


def _where(lines: Sequence[_Line], error: str) -> str:
  """Returns the lines that an error is about: of its flags, or all swept."""
  named = [line for line in lines if re.search(rf'(`|--){line.name}\b', error)]
  about = named or [line for line in lines if len(line.values) > 1]
  numbers = ', '.join(str(line.number) for line in about)
  return f', line {numbers}' if about else ''


def _read_line(number: int, content: str) -> _Line:
  """Returns what a line says; its values are checked with those of a run."""
  match = _LINE.fullmatch(content)
  if match is None:
    raise ValueError(f'must be --flag=value,value,..., found {content!r}.')
  name, values = match['name'], match['values']
  known = run_queue.flags_of_runs()
  if values is None:
    if not any(
      n in known and flags.FLAGS[n].boolean
      for n in (name, name.removeprefix('no'))
    ):
      raise ValueError(f'--{name} must be a switch or have a value.')
    return _Line(number, name, (None,))
  if name not in ('flagfile', *known):
    raise ValueError(f'--{name} must be a flag of tasks.train that may vary.')
  split = [values] if name in _LISTS else values.split(',')
  split = [value.strip() for value in split]
  shorts = [_short(name, value) for value in split]
  for value, short in zip(split, shorts, strict=True):
    if name == 'flagfile' and not pathlib.Path(value).is_file():
      raise ValueError(f'--flagfile must be a file, found {value!r}.')
    if not value and name not in _LISTS:
      raise ValueError(f'--{name} must have a value.')
    if shorts.count(short) > 1:
      raise ValueError(
        f'--{name} must have different values, found {short} twice.'
      )
  return _Line(number, name, tuple(split))


def _short(name: str, value: str) -> str:
  """Returns a value as a part of a folder's name."""
  if name == 'flagfile':
    return pathlib.Path(value).stem
  return value.replace('/', '-')
