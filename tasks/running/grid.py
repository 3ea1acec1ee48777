"""Grid files: flags with several values each, and the runs that they make."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Sequence

from absl import flags

from tasks.running import run_queue, run_request
from tasks.running.run_queue import QueuedRun

_LINE = re.compile(r'--(?P<name>\w+)(=(?P<values>.*))?')
# Their values have commas themselves.
_LISTS = ('update_rounds', 'variants')


class GridError(ValueError):
  """A grid file cannot be used; the message names its line."""


@dataclasses.dataclass(frozen=True)
class _Line:
  """A line of a grid file: a flag and its values, None for a bare flag."""

  number: int
  name: str
  values: tuple[str | None, ...]

  def flag(self, value: str | None) -> str:
    return f'--{self.name}' if value is None else f'--{self.name}={value}'


def read_grid(
  path: str,
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
    common_flags: Flags that come before those of the file in all runs.
    typed_flags: Those of them that stand on the command line itself, and not in
      a flag file there.

  Raises:
    GridError: If a line cannot be used, with its number, a combination is none
      that can be run, or a typed flag has another value in all runs.
  """
  lines = _read_lines(path)
  swept = [line for line in lines if len(line.values) > 1]
  runs = []
  seen = {}
  # Flags that no run has kept so far.
  lost = list(typed_flags)
  for combination in itertools.product(*(line.values for line in lines)):
    chosen = dict(zip(lines, combination, strict=True))
    values = {line.name: _short(line.name, chosen[line]) for line in swept}
    name = '_'.join(f'{k}={v}' for k, v in values.items()) or 'run'
    arguments = (
      *common_flags,
      *(line.flag(value) for line, value in chosen.items()),
    )
    try:
      command = run_queue.check_run([*arguments, '--output_dir=.'], seen)
    except (
      ValueError,
      TypeError,
      OSError,
      ModuleNotFoundError,
      flags.Error,
    ) as e:
      raise GridError(f'{path}{_where(lines, str(e))}: {e}') from e
    lost = [flag for flag in lost if not _keeps(command, arguments, flag)]
    runs.append(QueuedRun(name, values, arguments))
  if lost:
    raise GridError(
      f'{lost[0]} would have no effect: {path} sets it in every run, or its '
      'flag files do. Change it there, or leave it out there.'
    )
  return runs


def _keeps(
  command: run_request.Command, arguments: Sequence[str], flag: str
) -> bool:
  """Returns whether a flag would change nothing if it came last."""
  try:
    return run_request.parse([*arguments, flag, '--output_dir=.']) == command
  except (ValueError, TypeError, flags.Error):
    return False


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
    except (ValueError, flags.Error) as e:
      raise GridError(f'{path}, line {number}: {e}') from e
    lines.append(line)
  if not lines:
    raise GridError(f'`grid` must hold flags, found none in {path!r}.')
  return lines


def _where(lines: Sequence[_Line], error: str) -> str:
  """Returns the lines that an error is about: of its flags, or all swept."""
  named = [line for line in lines if f'`{line.name}`' in error]
  about = named or [line for line in lines if len(line.values) > 1]
  numbers = ', '.join(str(line.number) for line in about)
  return f', line {numbers}' if about else ''


def _read_line(number: int, content: str) -> _Line:
  match = _LINE.fullmatch(content)
  if match is None:
    raise ValueError(f'must be --flag=value,value,..., found {content!r}.')
  name, values = match['name'], match['values']
  if values is None:
    positive = name.removeprefix('no')
    if not any(
      n in run_queue.flags_of_runs() and flags.FLAGS[n].boolean
      for n in (name, positive)
    ):
      raise ValueError(f'--{name} must be a switch or have a value.')
    return _Line(number, name, (None,))
  split = [values] if name in _LISTS else values.split(',')
  split = [value.strip() for value in split]
  for value in split:
    _check_value(name, value)
  shorts = [_short(name, value) for value in split]
  for value in shorts:
    if shorts.count(value) > 1:
      raise ValueError(
        f'--{name} must have different values, found {value} twice.'
      )
  return _Line(number, name, tuple(split))


def _check_value(name: str, value: str) -> None:
  """Raises unless `tasks.train` has the flag and can read the value."""
  if name == 'flagfile':
    if not pathlib.Path(value).is_file():
      raise ValueError(f'--flagfile must be a file, found {value!r}.')
    return
  if name not in run_queue.flags_of_runs():
    raise ValueError(f'--{name} must be a flag of tasks.train that may vary.')
  if not value and name not in _LISTS:
    raise ValueError(f'--{name} must have a value.')
  try:
    flags.FLAGS[name].parser.parse(value)
  except (ValueError, TypeError) as e:
    raise ValueError(f'--{name} cannot be {value!r}: {e}') from e


def _short(name: str, value: str) -> str:
  """Returns a value as a part of a folder's name."""
  if name == 'flagfile':
    return pathlib.Path(value).stem
  return value.replace('/', '-')
