"""Runs one after the other, each in a process of its own, in one folder.

The engine of `tasks.sweep` and `tasks.reproduce`: it skips the runs that have
ended, continues the one that was stopped, goes on after one that fails, hands
on signals, and keeps a table of all.
"""

import contextlib
import dataclasses
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from tasks.running import early_checks, run_request, sweep_table
from tasks.running.run_folder import RunFolder, locked
from tasks.running.run_request import RunRequest
from tasks.settings import command_line

# With a full disk, another run would fail in the same way.
_STORAGE = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class QueuedRun:
  """One run.

  Attributes:
    request: What is asked for, with the folder of the run.
    values: What the table says of it, by column.
    flags: All flags of `tasks.train` but the folder.
  """

  request: RunRequest
  values: Mapping[str, str]
  flags: tuple[str, ...]

  @property
  def folder(self) -> RunFolder:
    """The folder of the run, by whose name it is called."""
    return RunFolder(self.request.folder)

  def read_end(self) -> str | None:
    """How the run ended; `None` if it is not there or not at an end.

    Raises:
      ValueError: If its folder holds something else.
    """
    try:
      config = self.request.config()
    except ValueError:
      # The run that gives its threshold has not ended. `tasks.train` says what
      # else is wrong.
      return None
    result = self.folder.read_result(config)
    return None if result is None else result['reason']


class RunQueue:
  """Runs in an order in which each may need those before it.

  Attributes:
    runs: The runs.
    folder: Where their folders are.
  """

  def __init__(self, runs: Sequence[QueuedRun], folder: pathlib.Path):
    """Initializes the queue.

    Raises:
      ValueError: If a run's folder holds something else. Nothing is started.
    """
    self.runs = tuple(runs)
    self.folder = folder
    self._process = None
    self._signal = None
    # How each has ended, or failed; `None` for those that have not yet.
    self._ended = [run.read_end() for run in self.runs]

  def run(self) -> int:
    """Runs what has not ended yet; returns the exit code.

    Returns:
      0 if all runs ended (finished, diverged or with their budget spent), 1 if
      one failed, 5 if a file cannot be written, 130 or 143 after a signal.

    Raises:
      ValueError: If another program runs runs in the folder, or it cannot be
        made.
      OSError: If the folder cannot be written.
    """
    try:
      self.folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
      raise ValueError(
        '`output_dir` must be a folder that can be written, found '
        f'{str(self.folder)!r}.'
      ) from e
    with locked(self.folder):
      with self._forward_signals():
        code = self._run_all()
      spent = sweep_table.describe_spending([run.folder for run in self.runs])
      print(self._write_tables(below=spent), end='', flush=True)
      return code

  def _run_all(self) -> int:
    worst = 0
    # Of the runs that ended here, from their start to their end.
    seconds: list[float] = []
    for number, run in enumerate(self.runs):
      title = f'[{number + 1}/{len(self.runs)}] {run.folder.path.name}'
      if self._ended[number] is not None:
        print(f'{title}: done before', flush=True)
        continue
      left = estimate_left(seconds, self._ended[number:].count(None))
      print(f'{title}: {left}' if left else title, flush=True)
      started = time.monotonic()
      code = self._train(run)
      if self._signal is not None:
        print(
          f'Stopped by {signal.Signals(self._signal).name}; the same command '
          'continues.',
          flush=True,
        )
        return 128 + self._signal
      self._ended[number] = run.read_end()
      if self._ended[number] is None:
        self._ended[number] = f'failed (exit code {code})'
        worst = 1
        if code == _STORAGE:
          return code
      else:
        seconds.append(time.monotonic() - started)
      self._write_tables()
    return worst

  def _train(self, run: QueuedRun) -> int:
    """Runs `tasks.train`, whose progress is seen; returns its exit code."""
    if self._signal is not None:
      return 0
    command = [sys.executable, '-m', 'tasks.train', *run.flags]
    self._process = subprocess.Popen(
      [*command, f'--output_dir={run.folder.path}'],
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

  def _write_tables(self, *, below: str = '') -> str:
    return sweep_table.write_tables(
      [
        sweep_table.read_row(run.folder, dict(run.values), ended)
        for run, ended in zip(self.runs, self._ended, strict=True)
      ],
      self.folder,
      below=below,
    )


def estimate_left(seconds: Sequence[float], num_runs: int) -> str:
  """Returns how long runs may still take, if they take as long as others did.

  Args:
    seconds: How long runs took that have ended.
    num_runs: How many are to come, one after the other.

  Returns:
    A few words; nothing where no run has ended yet.
  """
  if not seconds:
    return ''
  left = statistics.fmean(seconds) * num_runs
  unit, name = next(
    (unit, name)
    for unit, name in ((3600, 'h'), (60, 'min'), (1, 's'))
    # Below two of a unit, it is too coarse.
    if left >= 2 * unit or unit == 1
  )
  return f'about {left / unit:.0f} {name} left'


def check_run(
  arguments: Sequence[str],
  num_clients: dict[Any, int | None],
  *,
  missing_clipping_norm: float | None = None,
) -> RunRequest:
  """Returns what flags ask for, if it would not be refused in its turn.

  Args:
    arguments: All flags of the run.
    num_clients: The clients of data that were read for runs before; those of
      this run are added.
    missing_clipping_norm: What stands for c where an earlier run is to give it;
      `None` to refuse that.

  Raises:
    absl.flags.Error: If there is no such flag, or it cannot be read.
    ValueError: If a flag is wrong or does not fit the data.
  """
  request = run_request.parse(arguments)
  config = request.config(missing_clipping_norm=missing_clipping_norm)
  data = (
    config.task,
    config.partition_config(),
    config.test_examples,
    config.is_private,
    request.execution.data_dir,
    request.execution.cache_dir,
  )
  if data not in num_clients:
    task = early_checks.read_data(config, request.execution)
    num_clients[data] = None if task is None else task.num_clients
  if num_clients[data] is not None:
    early_checks.check_plan(config, num_clients[data])
  return request


def run_planned(
  plan: Callable[[], tuple[Sequence[QueuedRun], pathlib.Path]],
) -> None:
  """Parses the flags, runs what is planned and exits with its code.

  Args:
    plan: Returns the runs and where their folders go. A ValueError is that of a
      wrong flag.
  """

  def main(argv: Sequence[str]) -> int:
    try:
      command_line.check_flags_only(argv)
      runs, folder = plan()
      if run_request.PRINT_SETTINGS.value:
        for run in runs:
          print(f'{run.folder.path}\n\n{run.request.describe()}')
        return 0
      return RunQueue(runs, folder).run()
    except (ValueError, flags.Error) as e:
      command_line.print_error(e)
      return 2
    except OSError as e:
      command_line.print_error(e)
      return _STORAGE

  command_line.run(main)


def given_flags(*, but: Sequence[str] = ()) -> list[str]:
  """Returns the flags of `tasks.train` on the command line, for all runs.

  Args:
    but: Flags to leave out.
  """
  return [
    flags.FLAGS[name].serialize()
    for name in flags_of_runs()
    if flags.FLAGS[name].present and name not in but
  ]


def typed_flags(argv: Sequence[str]) -> list[str]:
  """Returns the flags of `given_flags` that no flag file has brought.

  Args:
    argv: The command line, the program's name first.
  """
  names = [word.lstrip('-').partition('=')[0] for word in argv[1:]]
  typed = {*names, *(name.removeprefix('no') for name in names)}
  return given_flags(but=[n for n in flags_of_runs() if n not in typed])


def flags_of_runs() -> list[str]:
  """Returns the flags of `tasks.train` that may differ from run to run."""
  return [
    flag.name
    for flag in flags.FLAGS.get_key_flags_for_module(run_request)
    # The queue decides these.
    if flag.name not in ('output_dir', 'resume', 'print_settings')
  ]
