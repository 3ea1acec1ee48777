r"""Runs many configurations, one after the other, and makes a report of them.

  python -m tasks.sweep --grid=GRID --output_dir=DIR

A grid file has a flag of `tasks.train` on each line, with the values to try:

  --flagfile=tasks/flagfiles/demo/fed_avg.flags
  --client_learning_rate=0.03,0.1,0.3
  --seed=0,1

Flags on the command line are common to all runs. Each run gets a folder in DIR
that is named after its values. The same command skips the runs that have ended
and continues the one that was stopped. DIR/report has the report of all.

Exit codes: 0 all runs ended (finished, diverged or with their budget spent),
1 a run failed, 2 wrong flags, 5 a file cannot be written, 130 Ctrl-C,
143 SIGTERM, 129 SIGHUP.
"""

import itertools
import pathlib

from absl import flags

from tasks import command_line

with command_line.importing():
  from tasks import many_runs

# Their values have commas themselves.
_LISTS = ('update_rounds', 'variants', 'metrics')

_GRID = flags.DEFINE_string('grid', None, 'The grid file.')


def plan() -> tuple[list[many_runs.PlannedRun], pathlib.Path]:
  """Returns the runs of the grid, and the folder of all."""
  output_dir = flags.FLAGS['output_dir'].value
  for name, value in (('grid', _GRID.value), ('output_dir', output_dir)):
    if value is None:
      raise ValueError(f'`{name}` must be given.')
  lines = _read_lines(pathlib.Path(_GRID.value))
  common = many_runs.given_flags()
  runs = []
  for values in itertools.product(*(values for _, values in lines)):
    varied = [
      f'{name}={pathlib.PurePath(value).name}'
      for (name, all_values), value in zip(lines, values, strict=True)
      if len(all_values) > 1
    ]
    runs.append(
      many_runs.PlannedRun(
        '_'.join(varied) or 'run',
        (
          *common,
          *(
            f'--{name}' if value is None else f'--{name}={value}'
            for (name, _), value in zip(lines, values, strict=True)
          ),
        ),
      )
    )
  folders = [run.name for run in runs]
  if len(set(folders)) < len(folders):
    raise ValueError(
      f'`grid` must have different values, found {_GRID.value!r} with two runs '
      'of one name.'
    )
  return runs, pathlib.Path(output_dir)


def _read_lines(path: pathlib.Path) -> list[tuple[str, list[str | None]]]:
  """Returns the flags of a grid file with their values.

  Raises:
    ValueError: If it has none, or a line is no flag.
  """
  try:
    text = path.read_text(encoding='utf-8')
  except OSError as e:
    raise ValueError(
      f'`grid` must be a file that can be read, found {str(path)!r}: {e}'
    ) from e
  lines: list[tuple[str, list[str | None]]] = []
  for line in map(str.strip, text.splitlines()):
    if not line or line.startswith('#'):
      continue
    if not line.startswith('--'):
      raise ValueError(
        f'`grid` must have a --flag=value,value on each line, found {line!r}.'
      )
    name, equals, values = line.removeprefix('--').partition('=')
    if name == 'print_settings':
      raise ValueError('`grid` must hold settings, found --print_settings.')
    if not equals:
      lines.append((name, [None]))
    elif name in _LISTS:
      lines.append((name, [values]))
    else:
      lines.append((name, [value.strip() for value in values.split(',')]))
  if not lines:
    raise ValueError(f'`grid` must hold flags, found none in {str(path)!r}.')
  return lines


if __name__ == '__main__':
  many_runs.run_planned(plan)
