"""Runs one after the other, each in a process of its own, in one folder.

Of `tasks.sweep` and `tasks.reproduce`: runs that have ended are skipped, the
one that was stopped goes on, a run that fails is no reason to stop.
"""

import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from tasks import algorithms, command_line, run_flags
from tasks.running.folder import RunFolder, locked
from tff_clipping.privacy.ledger import spending

# With a full disk, another run would fail in the same way.
_STORAGE = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class PlannedRun:
  """One run.

  Attributes:
    name: The name of its folder.
    flags: All flags of `tasks.train` but the folder.
  """

  name: str
  flags: tuple[str, ...]


def run_planned(
  plan: Callable[[], tuple[Sequence[PlannedRun], pathlib.Path]],
) -> None:
  """Parses the flags, runs what is planned and exits with its code.

  The code is 0 if all runs ended (finished, diverged or with their budget
  spent), 1 if one failed, 2 for a wrong flag of any of them, before the first
  begins, 5 if a file cannot be written, and 130, 143 or 129 after a signal.

  Args:
    plan: Returns the runs and the folder of all. A ValueError is that of a
      wrong flag.
  """
  print_settings = flags.DEFINE_bool(
    'print_settings', False, 'Print the settings of all runs; do not train.'
  )

  def main(argv: Sequence[str]) -> int:
    del argv
    try:
      runs, folder = plan()
      configs = [_check(run, folder) for run in runs]
      if print_settings.value:
        for config in configs:
          print(json.dumps(dataclasses.asdict(config), indent=2))
        return 0
      folder.mkdir(parents=True, exist_ok=True)
      with locked(folder):
        return _run_all(runs, folder)
    except (ValueError, TypeError, flags.Error) as e:
      command_line.print_error(e)
      return 2
    except OSError as e:
      command_line.print_error(e)
      return _STORAGE

  run_flags.define()
  command_line.run(main)


def given_flags(without: Sequence[str] = ()) -> list[str]:
  """Returns the flags of `tasks.train` that were given, for all runs.

  Args:
    without: Flags to leave out.
  """
  return [
    flags.FLAGS[name].serialize()
    for name in run_flags.names()
    if flags.FLAGS[name].present and name not in ('output_dir', *without)
  ]


def _check(run: PlannedRun, folder: pathlib.Path) -> Any:
  """Returns the settings of a run, if it would not be refused in its turn.

  Raises:
    ValueError: If the settings do not go together, or its folder holds another
      run.
  """
  config, _ = run_flags.parse(_arguments(run, folder))
  algorithms.check(config)
  RunFolder(config.output_dir).read_result(config)
  return config


def _arguments(run: PlannedRun, folder: pathlib.Path) -> list[str]:
  return [*run.flags, f'--output_dir={folder / run.name}']


def _run_all(runs: Sequence[PlannedRun], folder: pathlib.Path) -> int:
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
    for signum in _SIGNALS
    # `nohup` has a program ignore that its terminal is closed.
    if signal.getsignal(signum) != signal.SIG_IGN
  }
  code = 0
  try:
    for number, run in enumerate(runs, start=1):
      title = f'[{number}/{len(runs)}] {run.name}'
      if _has_ended(folder / run.name):
        print(f'{title}: done before', flush=True)
        continue
      print(title, flush=True)
      command = [sys.executable, '-m', 'tasks.train', *_arguments(run, folder)]
      # Or Ctrl-C would reach it twice: from the terminal and from here.
      process[:] = [subprocess.Popen(command, start_new_session=True)]
      if received:
        process[0].send_signal(received[0])
      ended = process[0].wait()
      process.clear()
      if received:
        name = signal.Signals(received[0]).name
        print(f'Stopped by {name}; the same command continues.', flush=True)
        code = 128 + received[0]
        break
      if not _has_ended(folder / run.name):
        print(f'{title}: failed (exit code {ended})', flush=True)
        code = 1
        if ended == _STORAGE:
          code = ended
          break
  finally:
    for signum, handler in previous.items():
      signal.signal(signum, handler)
  _report(runs, folder)
  return code


def _has_ended(folder: pathlib.Path) -> bool:
  return RunFolder(folder).result.exists()


def _report(runs: Sequence[PlannedRun], folder: pathlib.Path) -> None:
  """Prints the table of the report of all runs, and what they cost together."""
  folders = [RunFolder(folder / run.name) for run in runs]
  begun = [str(each.path) for each in folders if each.metrics.exists()]
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
    lines = (report / 'report.md').read_text(encoding='utf-8').splitlines()
    first = next(
      (i for i, line in enumerate(lines) if line.startswith('|')), len(lines)
    )
    for line in lines[first:]:
      if not line.startswith('|'):
        break
      print(line)
    print(f'{report / "report.html"}')
  told = spending.describe_ledgers(
    [each.ledger for each in folders if each.ledger.exists()]
  )
  if told:
    print(told, flush=True)
