r"""Runs many configurations, one after the other, and makes a table of them.

  python -m tasks.sweep --grid=GRID --output_dir=DIR

A grid file has a flag of `tasks.train` on each line, with the values to try:

  --flagfile=tasks/flagfiles/demo/fed_avg.flags
  --client_learning_rate=0.03,0.1,0.3
  --seed=0,1

Flags on the command line are common to all runs. Each run gets a folder in DIR
that is named after its values. The same command skips the runs that have ended
and continues the one that was stopped. DIR/sweep.csv and DIR/sweep.md hold the
table.

Exit codes: 0 all runs ended (finished, diverged or with their budget spent),
1 a run failed, 2 wrong flags, 5 a file cannot be written, 130 Ctrl-C,
143 SIGTERM.
"""

import contextlib
import fcntl
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from absl import app, flags

from tasks import grid, sweep_table, train
from tasks.run_folder import RunFolder

_GRID = flags.DEFINE_string('grid', None, 'The grid file.')

# With a full disk, another run would fail in the same way.
_STORAGE = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Sweep:
  """Runs of a grid, each in a process of its own.

  Attributes:
    runs: The runs.
    folder: Where their folders are.
  """

  def __init__(self, runs: Sequence[grid.GridRun], folder: pathlib.Path):
    """Initializes the sweep.

    Raises:
      ValueError: If a run's folder holds something else. Nothing is started.
    """
    self.runs = tuple(runs)
    self.folder = folder
    self._process = None
    self._signal = None
    self._failures = {}
    for run in self.runs:
      self._folder(run).read_result(run.config)

  def run(self) -> int:
    """Runs what has not ended yet; returns the exit code."""
    with self._forward_signals():
      code = self._run_all()
    print(self._write_tables(), end='', flush=True)
    return code

  def _run_all(self) -> int:
    worst = 0
    for number, run in enumerate(self.runs, start=1):
      title = f'[{number}/{len(self.runs)}] {run.name}'
      if self._folder(run).read_result(run.config) is not None:
        print(f'{title}: done before', flush=True)
        continue
      print(title, flush=True)
      code = self._train(run)
      if self._signal is not None:
        print(
          f'Stopped by {signal.Signals(self._signal).name}; the same command '
          'continues.',
          flush=True,
        )
        return 128 + self._signal
      if self._folder(run).read_result(run.config) is None:
        self._failures[run.name] = f'failed (exit code {code})'
        worst = 1
        if code == _STORAGE:
          return code
      self._write_tables()
    return worst

  def _train(self, run: grid.GridRun) -> int:
    """Runs `tasks.train`, whose progress is seen; returns its exit code."""
    if self._signal is not None:
      return 0
    command = [sys.executable, '-m', 'tasks.train', *run.flags]
    self._process = subprocess.Popen(
      [*command, f'--output_dir={self._folder(run).path}'],
      # Or Ctrl-C would reach it twice: from the terminal and from here.
      start_new_session=True,
    )
    if self._signal is not None:
      self._process.send_signal(self._signal)
    try:
      return self._process.wait()
    finally:
      self._process = None

  @contextlib.contextmanager
  def _forward_signals(self) -> Iterator[None]:
    """Hands signals on to the run, which ends in order, and remembers them."""

    def forward(signum, frame):
      del frame
      # A closed terminal is no other reason to stop than SIGTERM.
      self._signal = signal.SIGTERM if signum == signal.SIGHUP else signum
      process = self._process
      if process is not None:
        process.send_signal(self._signal)

    previous = {s: signal.signal(s, forward) for s in _SIGNALS}
    try:
      yield
    finally:
      for signum, handler in previous.items():
        signal.signal(signum, handler)

  def _write_tables(self) -> str:
    return sweep_table.write_tables(
      [
        sweep_table.read_row(self._folder(run), run.values, self._status(run))
        for run in self.runs
      ],
      self.folder,
    )

  def _status(self, run: grid.GridRun) -> str:
    folder = self._folder(run)
    result = folder.read_result(run.config)
    if result is not None:
      return result['reason']
    if run.name in self._failures:
      return self._failures[run.name]
    if folder.metrics.exists():
      return sweep_table.NOT_FINISHED
    return sweep_table.NOT_STARTED

  def _folder(self, run: grid.GridRun) -> RunFolder:
    return RunFolder(self.folder / run.name)


def main(argv: Sequence[str]) -> int:
  """Runs the sweep that the flags describe; returns the exit code."""
  try:
    if len(argv) > 1:
      raise ValueError(f'Only flags are taken, found {argv[1]!r}.')
    output_dir = flags.FLAGS['output_dir'].value
    for name, value in (('grid', _GRID.value), ('output_dir', output_dir)):
      if value is None:
        raise ValueError(f'`{name}` must be given.')
    common = [
      flags.FLAGS[name].serialize()
      for name in grid.train_flags()
      if flags.FLAGS[name].present
    ]
    runs = grid.read_grid(_GRID.value, common_flags=common)
    folder = pathlib.Path(output_dir)
    # Also finds runs of other settings, before the folder is touched.
    sweep = Sweep(runs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
      return sweep.run()
  except ValueError as e:
    train.print_error(e)
    return 2
  except OSError as e:
    train.print_error(e)
    return _STORAGE
  except KeyboardInterrupt:
    print('Interrupted.', file=sys.stderr)
    return 130


def run() -> None:
  """Parses the flags, runs `main` and exits with its code."""
  app.define_help_flags()
  try:
    argv = flags.FLAGS(sys.argv)
  except flags.Error as e:
    train.print_error(e)
    sys.exit(2)
  sys.exit(main(argv))


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
  with open(folder / '.lock', 'w') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      raise ValueError(
        '`output_dir` must be used by one sweep at a time, found that another '
        f'one is running in {folder}.'
      ) from e
    yield


if __name__ == '__main__':
  run()
