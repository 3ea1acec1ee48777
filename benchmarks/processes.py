"""Runs a measurement in a process of its own, and takes its memory.

Memory is the sum of the resident sizes of the process and of all that it
starts, sampled 20 times a second. Pages that two of them share count twice.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

_SECONDS_BETWEEN_SAMPLES = 0.05


class Program:
  """A Python program that runs, and prints its result as JSON at the end.

  A context, at whose end the program is killed with all that it has started.
  """

  def __init__(
    self,
    arguments: Sequence[str],
    *,
    python: str | os.PathLike = sys.executable,
    environment: Mapping[str, str] | None = None,
  ):
    """Starts the program.

    Args:
      arguments: The command line after the interpreter.
      python: The interpreter.
      environment: Variables to add to those of this process.
    """
    self._name = ' '.join(arguments)
    # A file: the worker of TFF's native context keeps its output open.
    self._output = tempfile.TemporaryFile('w+')
    self._process = subprocess.Popen(
      [os.fspath(python), *arguments],
      stdout=self._output,
      stderr=subprocess.STDOUT,
      env={**os.environ, **(environment or {})},
      # A group of its own, so that all of it can be ended.
      start_new_session=True,
    )

  def __enter__(self) -> 'Program':
    return self

  def __exit__(self, *_) -> None:
    # Some leave processes behind even when they end in order.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()
    self._output.close()

  @property
  def is_running(self) -> bool:
    """Whether it has not ended."""
    return self._process.poll() is None

  def memory(self) -> int:
    """Returns the bytes in memory of all its processes now."""
    total = 0
    with contextlib.suppress(psutil.Error):
      process = psutil.Process(self._process.pid)
      for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
          total += each.memory_info().rss
    return total

  def result(self, timeout_seconds: float | None = None) -> Any:
    """Waits for the end; returns what the last line of JSON holds.

    Args:
      timeout_seconds: How long to wait; `None` for as long as it takes.

    Raises:
      RuntimeError: It fails or takes longer; the message has the end of what
        it printed.
    """
    try:
      code = self._process.wait(timeout_seconds)
    except subprocess.TimeoutExpired as e:
      raise RuntimeError(
        f'{self._name} took more than {timeout_seconds:.0f} s.'
      ) from e
    self._output.seek(0)
    text = self._output.read()
    if code:
      raise RuntimeError(f'{self._name} failed ({code}):\n{text[-2000:]}')
    return json.loads(last_json_line(text))


def run_python_for_memory(arguments: Sequence[str]) -> tuple[Any, int]:
  """Returns what a program prints, and the peak of its memory in bytes.

  Sampling takes some per cent of a core: not for measurements of time.

  Args:
    arguments: The command line after the interpreter.

  Raises:
    RuntimeError: The program fails; the message has the end of its output.
  """
  peak = 0
  with Program(arguments) as program:
    while program.is_running:
      peak = max(peak, program.memory())
      time.sleep(_SECONDS_BETWEEN_SAMPLES)
    return program.result(), peak


def last_json_line(text: str) -> str:
  """Returns the last line of `text` that is a JSON object or list.

  Libraries print at exit, after the result.
  """
  for line in reversed(text.splitlines()):
    if line.startswith(('{', '[')):
      return line
  raise RuntimeError(f'No result in:\n{text[-2000:]}')
