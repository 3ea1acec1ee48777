"""Runs a measurement in a process of its own, and takes its memory.

Memory is the sum of the resident sizes of the process and of all that it
starts, sampled 20 times a second. Pages that two of them share count twice.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

_SECONDS_BETWEEN_SAMPLES = 0.05


def run_python(
  arguments: Sequence[str],
  *,
  python: str | os.PathLike = sys.executable,
  environment: Mapping[str, str] | None = None,
  timeout_seconds: float | None = None,
) -> Any:
  """Runs Python and returns the JSON that its last line of output holds.

  Args:
    arguments: The command line after the interpreter.
    python: The interpreter.
    environment: Variables to add to those of this process.
    timeout_seconds: When to end it, with all that it has started.

  Raises:
    RuntimeError: If it fails; the message is the end of what it printed.
  """
  result, _ = _run(
    arguments, python, environment, timeout_seconds, sample=False
  )
  return result


def run_python_for_memory(arguments: Sequence[str]) -> tuple[Any, int]:
  """Does the same, and returns the peak of its memory in bytes as well.

  Sampling takes some per cent of a core: not for measurements of time.
  """
  return _run(arguments, sys.executable, None, None, sample=True)


def tree_memory(pid: int) -> int:
  """Returns the bytes in memory of a process and all that it has started."""
  page_size = os.sysconf('SC_PAGE_SIZE')
  pages, children = {}, {}
  for folder in pathlib.Path('/proc').iterdir():
    if not folder.name.isdigit():
      continue
    try:
      parent, resident = parse_stat((folder / 'stat').read_text())
    except OSError:
      continue
    pages[int(folder.name)] = resident
    children.setdefault(parent, []).append(int(folder.name))
  total, waiting = 0, [pid]
  while waiting:
    found = waiting.pop()
    total += pages.get(found, 0)
    waiting.extend(children.get(found, []))
  return total * page_size


def parse_stat(text: str) -> tuple[int, int]:
  """Returns the parent and the resident pages in the text of /proc/PID/stat."""
  # The name of the command comes before and may hold spaces and brackets.
  fields = text.rsplit(')', 1)[1].split()
  return int(fields[1]), int(fields[21])


def _run(
  arguments: Sequence[str],
  python: str | os.PathLike,
  environment: Mapping[str, str] | None,
  timeout_seconds: float | None,
  *,
  sample: bool,
) -> tuple[Any, int]:
  peak = 0
  # To a file: the worker of TFF's native context keeps its output open.
  with tempfile.TemporaryFile('w+') as output:
    process = subprocess.Popen(
      [os.fspath(python), *arguments],
      stdout=output,
      stderr=subprocess.STDOUT,
      env={**os.environ, **(environment or {})},
      # A group of its own, so that all of it can be ended.
      start_new_session=True,
    )
    try:
      while sample and process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(_SECONDS_BETWEEN_SAMPLES)
      code = process.wait(timeout_seconds)
    except subprocess.TimeoutExpired as e:
      raise RuntimeError(
        f'{" ".join(arguments)} took more than {timeout_seconds:.0f} s.'
      ) from e
    finally:
      # Some leave processes behind even when they end in order.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    output.seek(0)
    text = output.read()
  if code:
    raise RuntimeError(
      f'{" ".join(arguments)} failed ({code}):\n{text[-2000:]}'
    )
  return json.loads(last_json_line(text)), peak


def last_json_line(text: str) -> str:
  """Returns the last line of `text` that is a JSON object or list.

  Libraries print at exit, after the result.
  """
  for line in reversed(text.splitlines()):
    if line.startswith(('{', '[')):
      return line
  raise RuntimeError(f'No result in:\n{text[-2000:]}')
