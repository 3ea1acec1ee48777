r"""Runs many configurations, one after the other, and makes a report of them.

  python -m tasks.sweep --grid=GRID --output_dir=DIR

A grid file has a flag of `tasks.train` on each line, with the values to try:

  --flagfile=tasks/flagfiles/demo/fed_avg.flags
  --client_learning_rate=0.03,0.1,0.3
  --seed=0,1

Flags on the command line, which the grid must not repeat, hold for all runs.
Each run gets a folder in DIR that is named after its values. The same command
skips the runs that have ended and continues the one that was stopped.
DIR/report has the report of all runs in DIR, those of earlier grids too.

Exit codes: 0 all runs ended (finished, diverged or with their budget spent),
1 a run failed, 2 wrong flags of any run, before the first begins, 5 a file
cannot be written, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""

import itertools
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from tasks import command_line
from tasks.checks import check
from tff_clipping.interruption import SIGNALS

with command_line.importing():
  from tasks import algorithms, train
  from tasks.running.folder import RunFolder, locked

# Their values have commas themselves.
_LISTS = ('update_rounds', 'variants', 'metrics')
# With a full disk, another run would fail in the same way.
_STORAGE = 5


def main() -> int:
  """Runs the grid; returns the exit code."""
  output_dir, grid = (flags.FLAGS[n].value for n in ('output_dir', 'grid'))
  for name, value in (('grid', grid), ('output_dir', output_dir)):
    if value is None:
      raise ValueError(f'`{name}` must be given.')
  lines = [
    *map(_read_line, flags.FLAGS.read_flags_from_files([f'--flagfile={grid}']))
  ]
  common = given_flags()
  in_grid = train.parse([line[0] for line in lines])
  twice = [
    f'`{name}`'
    for name in train.RUN_FLAGS
    if flags.FLAGS[name].present and in_grid[name].present
  ]
  must = 'must not have flags that the command line has too'
  check('grid', not twice, must, ', '.join(twice))
  names = [line[0].lstrip('-').partition('=')[0] for line in lines]
  overridden = [
    f'`{name}`'
    for i, (name, line) in enumerate(zip(names, lines, strict=True))
    if len(line) > 1 and name in names[i + 1 :]
  ]
  must = 'must not give a flag again below the values to try'
  check('grid', not overridden, must, ', '.join(overridden))
  runs = {}
  for chosen in itertools.product(*lines):
    varied = [
      flag for flag, line in zip(chosen, lines, strict=True) if len(line) > 1
    ]
    name = '_'.join(map(_in_names, varied)) or 'run'
    is_new = name not in runs
    check('grid', is_new, 'must have different values', f'{name} twice')
    runs[name] = (*common, *chosen)
  return run_all(runs, pathlib.Path(output_dir).expanduser())


def given_flags(without: Sequence[str] = ()) -> list[str]:
  """Returns the flags of a run that were given, but the folder and some."""
  return [
    flags.FLAGS[name].serialize()
    for name in train.RUN_FLAGS
    if flags.FLAGS[name].present and name not in ('output_dir', *without)
  ]


def run_all(planned: Mapping[str, Sequence[str]], folder: pathlib.Path) -> int:
  """Runs each in a process of its own, and makes a report of all.

  Runs that have ended are skipped, the one that was stopped goes on, and a run
  that fails is no reason to stop.

  Args:
    planned: By the names of their folders, the flags of the runs.
    folder: The folder of all.

  Returns:
    The exit code.

  Raises:
    TypeError, ValueError, absl.flags.Error: If a flag of any run is wrong;
      nothing has been run.
  """
  runs = {
    RunFolder(folder / name): [*given, f'--output_dir={folder / name}']
    for name, given in planned.items()
  }
  # What would be refused in its turn is refused before the first run.
  for run, given in runs.items():
    config, _ = train.read_flags(train.parse(given))
    algorithms.check(config)
    if run.path.is_dir():
      run.check(config)
  folder.mkdir(parents=True, exist_ok=True)
  with locked(folder):
    code = _run_each(runs)
    _report(folder)
    return code


def _in_names(flag: str) -> str:
  """A flag as part of the name of a folder; of a path, what comes last."""
  name, _, value = flag.removeprefix('--').partition('=')
  return f'{name}={pathlib.PurePath(value).name}'


def _read_line(line: str) -> list[str]:
  """Returns the flags of a line of a grid file, one for each value."""
  name, equals, values = line.partition('=')
  if not equals or name.lstrip('-') in _LISTS:
    return [line]
  return [f'{name}={each.strip()}' for each in values.split(',')]


def _run_each(runs: Mapping[RunFolder, list[str]]) -> int:
  """Runs what has not ended; returns the exit code."""
  received: list[int] = []
  process: list[subprocess.Popen] = []

  def forward(signum: int, frame: Any) -> None:
    """Hands a signal on to the run, which ends in order."""
    del frame
    received.append(signum)
    for each in process:
      each.send_signal(signum)

  previous = {
    signum: signal.signal(signum, forward)
    for signum in SIGNALS
    # `nohup` has a program ignore that its terminal is closed.
    if signal.getsignal(signum) != signal.SIG_IGN
  }
  failed = set()
  try:
    for number, (run, arguments) in enumerate(runs.items(), start=1):
      title = f'[{number}/{len(runs)}] {run.path.name}'
      if run.result.exists():
        print(f'{title}: done before', flush=True)
        continue
      if failed.intersection(arguments):
        print(f'{title}: skipped, for the run that gives c failed', flush=True)
        continue
      print(title, flush=True)
      command = [sys.executable, '-m', 'tasks.train', *arguments]
      # Or Ctrl-C would reach it twice: from the terminal and from here.
      process[:] = [subprocess.Popen(command, start_new_session=True)]
      if received:
        process[0].send_signal(received[0])
      ended = process[0].wait()
      process.clear()
      if received:
        name = signal.Signals(received[0]).name
        print(f'Stopped by {name}; the same command continues.', flush=True)
        return 128 + received[0]
      if not run.result.exists():
        print(f'{title}: failed (exit code {ended})', flush=True)
        failed.add(f'--clipping_norm_from={run.path}')
        if ended == _STORAGE:
          return ended
  finally:
    for signum, handler in previous.items():
      signal.signal(signum, handler)
  return 1 if failed else 0


def _report(folder: pathlib.Path) -> None:
  """Reports on all runs of the folder, those of other grids included."""
  runs = [
    RunFolder(path.parent) for path in sorted(folder.glob('*/config.json'))
  ]
  begun = [str(run.path) for run in runs if run.metrics.exists()]
  if not begun:
    return
  report = folder / 'report'
  command = [sys.executable, '-m', 'analysis.report', *begun]
  made = subprocess.run(
    [*command, f'--output={report}'], capture_output=True, text=True
  )
  if made.returncode:
    print(f'No report: {made.stderr.strip()}', file=sys.stderr)
  else:
    print(made.stdout.strip(), flush=True)


if __name__ == '__main__':
  train.define_flags()
  flags.DEFINE_string('grid', None, 'The grid file.')
  command_line.run(main)
