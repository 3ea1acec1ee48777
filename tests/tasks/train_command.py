"""The commands as processes, in which runs take seconds."""

import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from tests import processes
from tests.processes import ROOT, Ended

_SECONDS = 500.0

# TensorFlow is imported once, in the process of which commands are forks.
_FORKS = multiprocessing.get_context('forkserver')
_FORKS.set_forkserver_preload(['tasks.running.run'])


def run_in(folder: pathlib.Path, *command: str) -> Ended:
  """Runs a command of an example in its folder, as it is pasted."""
  path = f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
  quiet = 'TF_CPP_MIN_LOG_LEVEL'
  ended = subprocess.run(
    command,
    cwd=folder,
    env={
      **{k: v for k, v in os.environ.items() if k != quiet},
      'PYTHONPATH': str(ROOT),
      'PATH': path,
      'XDG_CACHE_HOME': str(folder / 'cache'),
    },
    capture_output=True,
    text=True,
    timeout=3 * _SECONDS,
  )
  assert ended.returncode == 0, ended.stderr
  return Ended(ended.returncode, ended.stdout, ended.stderr)


def command(flags: Mapping[str, Any], module: str) -> list[str]:
  """Returns the command line; flags that are `None` are not given."""
  return [
    *(sys.executable, '-m', module),
    *(f'--{name}={x}' for name, x in flags.items() if x is not None),
  ]


def environment() -> dict[str, str]:
  """Returns the variables with which a command is found from any folder."""
  return {**os.environ, 'PYTHONPATH': str(ROOT)}


def start(flags: Mapping[str, Any]) -> subprocess.Popen:
  """Starts `tasks.train` with these flags."""
  return subprocess.Popen(
    command(flags, 'tasks.train'),
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def finish(process: subprocess.Popen) -> Ended:
  """Waits until a command has ended, and returns how."""
  output, errors = process.communicate(timeout=_SECONDS)
  return Ended(process.returncode, output, errors)


def wait_for_round(
  process: subprocess.Popen, folder: pathlib.Path, round_num: int
) -> None:
  """Waits until a round, from 1, of a run is in the metrics of its folder."""
  # Before it are the names of the columns, and round 0.
  processes.wait_for(
    lambda: processes.num_lines(folder / 'metrics.csv') >= round_num + 2,
    process,
  )


class Fork:
  """A command in a process that starts with its imports done.

  It has the methods of `subprocess.Popen` that tests need. `output` is the file
  of what it prints; its errors may go to a terminal.
  """

  def __init__(
    self,
    flags: Mapping[str, Any],
    module: str = 'tasks.train',
    *,
    folder: pathlib.Path = ROOT,
    terminal: str | None = None,
  ):
    self._folder = tempfile.TemporaryDirectory()
    printed = pathlib.Path(self._folder.name)
    self.output = printed / 'output'
    self._errors = pathlib.Path(terminal or printed / 'errors')
    self._process = _FORKS.Process(
      target=_run_module,
      args=(module, command(flags, module)[3:], folder),
      kwargs=dict(output=self.output, errors=self._errors),
      daemon=True,  # It ends with the tests.
    )
    self._process.start()
    self.pid = self._process.pid

  def poll(self) -> int | None:
    """Returns the exit code; `None` while it runs."""
    return self._process.exitcode

  def wait(self) -> int:
    """Waits until it has ended, and returns the exit code."""
    self._process.join(_SECONDS)
    return self._process.exitcode

  def send_signal(self, signum: int) -> None:
    """Sends a signal."""
    os.kill(self.pid, signum)

  def communicate(self) -> Ended:
    """Waits until it has ended, and returns how."""
    code = self.wait()
    return Ended(code, self.output.read_text(), self._errors.read_text())


def _run_module(module, arguments, folder, *, output, errors):
  for number, path in ((2, errors), (1, output)):
    with open(path, 'w') as stream:
      os.dup2(stream.fileno(), number)
  sys.stdout, sys.stderr = (open(n, 'w', closefd=False) for n in (1, 2))
  os.chdir(folder)
  sys.argv = [module, *arguments]
  runpy.run_module(module, run_name='__main__', alter_sys=True)
