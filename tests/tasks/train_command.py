"""The commands as a user starts them: processes, in which runs take seconds."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests import processes

ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 500.0


class Ended(NamedTuple):
  """How a process ended: its exit code, and what it printed."""

  code: int
  output: str
  errors: str


def run(*command: str) -> Ended:
  """Runs Python with these arguments, and returns how it ended."""
  ended = subprocess.run(
    [sys.executable, *command], cwd=ROOT, capture_output=True, text=True
  )
  return Ended(ended.returncode, ended.stdout, ended.stderr)


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


def start(
  flags: Mapping[str, Any], module: str = 'tasks.train', **settings: Any
) -> subprocess.Popen:
  """Starts a command; `settings` are those of `subprocess.Popen`."""
  pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  given = dict(cwd=ROOT, **pipes) | settings
  return subprocess.Popen(command(flags, module), **given)


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
