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


def plan() -> tuple[dict[str, tuple[str, ...]], pathlib.Path]:
  """Returns the flags of each run of the grid, and the folder of all."""
  output_dir = flags.FLAGS['output_dir'].value
  for name, value in (('grid', _GRID.value), ('output_dir', output_dir)):
    if value is None:
      raise ValueError(f'`{name}` must be given.')
  lines = _read_lines(_GRID.value)
  common = many_runs.given_flags()
  runs = {}
  for chosen in itertools.product(*lines):
    varied = [
      flag for flag, line in zip(chosen, lines, strict=True) if len(line) > 1
    ]
    name = '_'.join(map(_in_names, varied)) or 'run'
    if name in runs:
      raise ValueError(
        f'`grid` must have different values, found {name} twice.'
      )
    runs[name] = (*common, *chosen)
  return runs, pathlib.Path(output_dir)


def _in_names(flag: str) -> str:
  """A flag as part of the name of a folder; of a path, what comes last."""
  name, _, value = flag.removeprefix('--').partition('=')
  return f'{name}={pathlib.PurePath(value).name}'


def _read_lines(path: str) -> list[list[str]]:
  """Returns the flags of each line of a grid file, one for each value.

  Raises:
    absl.flags.Error: If the file cannot be read.
    ValueError: If a line is no flag.
  """
  lines = []
  for line in flags.FLAGS.read_flags_from_files([f'--flagfile={path}']):
    if not line.startswith('--'):
      raise ValueError(
        f'`grid` must have a --flag=value,value on each line, found {line!r}.'
      )
    name, equals, values = line.partition('=')
    if not equals or name.removeprefix('--') in _LISTS:
      lines.append([line])
    else:
      lines.append([f'{name}={each.strip()}' for each in values.split(',')])
  return lines


if __name__ == '__main__':
  many_runs.run_planned(plan)
