"""What tests of whole programs share: runs, waits, ends, and small disks."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Far more than anything takes, on a machine that does much else.
_SECONDS = 300.0


class Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is done on the way out."""


def kill(*args, **kwargs):
  """Takes the place of a function in which the program is killed."""
  raise Killed


class Ended(NamedTuple):
  """How a process ended: its exit code, and what it printed."""

  code: int
  output: str
  errors: str


def run_python(*arguments: str, **environment: str) -> Ended:
  """Runs Python in the checkout as a user does, and returns how it ended.

  What the tests set for TensorFlow's messages is not set there.
  """
  inherited = {k: v for k, v in os.environ.items() if 'TF_CPP' not in k}
  ended = subprocess.run(
    [sys.executable, *arguments],
    cwd=ROOT,
    env=inherited | environment,
    capture_output=True,
    text=True,
    timeout=_SECONDS,
  )
  return Ended(ended.returncode, ended.stdout, ended.stderr)


class Process(NamedTuple):
  """A process; its number alone is given to another one some day.

  Attributes:
    pid: Its number.
    start: When it started, in ticks of the kernel.
  """

  pid: int
  start: int


def descendants(pid: int) -> list[Process]:
  """Returns the processes that one has started, and those of them."""
  found = {}
  for folder in pathlib.Path('/proc').glob('[0-9]*'):
    stat = _stat(int(folder.name))
    if stat is not None:
      found[int(folder.name)] = stat
  pids = [pid]
  for one in pids:
    pids.extend(child for child, stat in found.items() if stat[1] == one)
  return [Process(child, found[child][2]) for child in pids[1:]]


def command(pid: int) -> str:
  """Returns the command line of a process; empty where it has ended."""
  with contextlib.suppress(OSError):
    return pathlib.Path(f'/proc/{pid}/cmdline').read_text()
  return ''


def is_running(process: Process) -> bool:
  """Returns whether it has not ended."""
  stat = _stat(process.pid)
  return stat is not None and stat[2] == process.start


def wait_until_ended(processes: Sequence[Process]) -> None:
  """Waits until none of them is left."""
  wait_for(lambda: not any(map(is_running, processes)))


def wait_for(
  condition: Callable[[], object], program: subprocess.Popen | None = None
) -> None:
  """Waits until something is true.

  Args:
    condition: Says whether it is.
    program: What makes it true; its end before that is an error.

  Raises:
    AssertionError: If the program has ended, or it takes too long.
  """
  deadline = time.monotonic() + _SECONDS
  while not condition():
    if program is not None and program.poll() is not None:
      raise AssertionError(program.communicate())
    if time.monotonic() > deadline:
      raise AssertionError(f'It takes more than {_SECONDS:.0f} seconds.')
    time.sleep(0.02)


def num_lines(path: pathlib.Path) -> int:
  """Returns the number of whole lines of a file that may not be there yet."""
  with contextlib.suppress(FileNotFoundError):
    return path.read_bytes().count(b'\n')
  return 0


@contextlib.contextmanager
def handled_by(signum: int, handler: Any) -> Iterator[None]:
  """Has a signal handled so in a body."""
  before = signal.signal(signum, handler)
  try:
    yield
  finally:
    signal.signal(signum, before)


@contextlib.contextmanager
def ended_at_last(program: subprocess.Popen) -> Iterator[subprocess.Popen]:
  """Kills a program, and what it has started, where a test has failed."""
  try:
    yield program
  finally:
    if program.poll() is None:
      kill_with_descendants(program.pid)
      program.wait()


def kill_with_descendants(pid: int) -> None:
  """Kills a process, and what it has started, at once."""
  for one in [pid, *(process.pid for process in descendants(pid))]:
    with contextlib.suppress(ProcessLookupError):
      os.kill(one, signal.SIGKILL)


@contextlib.contextmanager
def mounted(path: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
  """Mounts a disk of memory, or skips the test.

  Args:
    path: Where; a folder that is not there yet.
    options: Of the mount, such as `size=1m`.
  """
  path.mkdir()
  mount = shutil.which('mount')
  done = mount and subprocess.run(
    [mount, '-t', 'tmpfs', '-o', options, 'tmpfs', str(path)],
    capture_output=True,
  )
  if not done or done.returncode:
    pytest.skip('A disk cannot be mounted here: it takes root.')
  try:
    yield path
  finally:
    subprocess.run(['umount', str(path)], check=True)


def _stat(pid: int) -> tuple[str, int, int] | None:
  """Returns the state, the parent and the start; None where it has ended."""
  with contextlib.suppress(OSError):
    text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    fields = text.rsplit(')', 1)[1].split()
    if fields[0] != 'Z':
      return fields[0], int(fields[1]), int(fields[19])
  return None
