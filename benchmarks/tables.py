"""The Markdown that the benchmarks print, made from what they measured.

Apart from the programs, whose flags cannot be imported together.
"""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re
from collections.abc import Iterable, Sequence

from benchmarks.alternate import Comparison

# What makes one kind of processor for TensorFlow: the widest of these
# instructions.
_INSTRUCTIONS = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16', 'bf16')


def describe_machine() -> str:
  """Returns a line on the machine and the versions, to keep with figures."""
  cpuinfo = pathlib.Path('/proc/cpuinfo').read_text()
  processor = re.search(r'^model name\s*: (.*)$', cpuinfo, re.MULTILINE)
  found = [each for each in _INSTRUCTIONS if each in cpuinfo.split()]
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30
  versions = [
    f'{name} {importlib.metadata.version(name)}'
    for name in ('tensorflow', 'tensorflow-federated')
  ]
  return (
    f'{datetime.date.today()}: '
    f'{processor[1] if processor else platform.machine()} '
    f'({", ".join(found) or "none"}), {len(os.sched_getaffinity(0))} cores, '
    f'{memory:.1f} GiB, Python {platform.python_version()}, '
    f'{", ".join(versions)}, load {os.getloadavg()[0]:.1f} at the start'
  )


def heading(*columns: str) -> str:
  """Returns the first two lines of a table."""
  return f'{row(*columns)}\n{"|---" * len(columns)}|'


def row(*cells: str) -> str:
  """Returns a line of a table."""
  return f'| {" | ".join(cells)} |'


def time_heading(what: str, of: Iterable[str]) -> str:
  """Returns the first two lines of the table that `time_rows` fills."""
  return heading(what, 'side', 's a round', *(f'of {each}' for each in of))


def time_rows(
  name: str, sides: Iterable[str], of: Sequence[str], found: Comparison
) -> str:
  """Returns a row for each side; a ratio has the middle half of its pairs.

  Args:
    name: What was measured.
    sides: The sides in their order.
    of: The sides with which each is compared.
    found: What was measured of the sides.
  """
  return '\n'.join(
    row(
      name,
      side,
      found.describe_seconds(side),
      *(found.describe_ratio(side, each) for each in of),
    )
    for side in sides
  )
