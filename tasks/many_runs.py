"""Runs one after the other, each in a process of its own, in one folder.

Of `tasks.sweep` and `tasks.reproduce`: runs that have ended are skipped, the
one that was stopped goes on, a run that fails is no reason to stop.
"""

import itertools
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from tasks import algorithms, command_line, run_flags
from tasks.running.folder import RunFolder, locked
from tff_clipping.privacy.ledger import spending

# With a full disk, another run would fail in the same way.
_STORAGE = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_planned(
  plan: Callable[[], tuple[Mapping[str, Sequence[str]], pathlib.Path]],
) -> None:
  """Parses the flags, runs what is planned and exits with its code.

  The code is 0 if all runs ended (finished, diverged or with their budget
  spent), 1 if one failed, 2 for a wrong flag of any of them, before the first
  begins, 5 if a file cannot be written, and 130, 143 or 129 after a signal.

  Args:
    plan: Returns the runs, by the names of their folders the flags of
      `tasks.train` but the folder, and the folder of all. A ValueError is that
      of a wrong flag.
  """

  def main(argv: Sequence[str]) -> int:
    del argv
    planned, folder = plan()
    runs = {
      RunFolder(folder / name): [*given, f'--output_dir={folder / name}']
      for name, given in planned.items()
    }
    # What would be refused in its turn is refused before the first run.
    for run, given in runs.items():
      config, _ = run_flags.parse(given)
      algorithms.check(config)
      if run.path.is_dir():
        run.check(config)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
      code = _run_all(runs)
      _report(runs, folder)
      return code

  run_flags.define()
  command_line.run(main)


def given_flags(without: Sequence[str] = ()) -> list[str]:
  """Returns the flags of `tasks.train` that were given, but for some."""
  return [
    flags.FLAGS[name].serialize()
    for name in run_flags.names()
    if flags.FLAGS[name].present and name not in ('output_dir', *without)
  ]


def _run_all(runs: Mapping[RunFolder, list[str]]) -> int:
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
    for number, (run, arguments) in enumerate(runs.items(), start=1):
      title = f'[{number}/{len(runs)}] {run.path.name}'
      if run.result.exists():
        print(f'{title}: done before', flush=True)
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
        code = 1
        if ended == _STORAGE:
          return ended
  finally:
    for signum, handler in previous.items():
      signal.signal(signum, handler)
  return code


def _report(runs: Mapping[RunFolder, Any], folder: pathlib.Path) -> None:
  """Prints the table of the report of all runs, and what they cost together."""
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
    lines = (report / 'report.md').read_text(encoding='utf-8').splitlines()
    from_table = itertools.dropwhile(lambda x: not x.startswith('|'), lines)
    for line in itertools.takewhile(lambda x: x.startswith('|'), from_table):
      print(line)
    print(report / 'report.html')
  told = spending.describe_ledgers(
    [run.ledger for run in runs if run.ledger.exists()]
  )
  if told:
    print(told, flush=True)
