"""The machine and the versions that a figure was measured with."""

import datetime
import importlib.metadata
import os
import pathlib
import platform

# What makes one kind of processor for TensorFlow: the widest of these
# instructions.
_INSTRUCTIONS = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16', 'bf16')


def describe() -> dict[str, str | int | float]:
  """Returns what to save beside every figure."""
  cpuinfo = pathlib.Path('/proc/cpuinfo').read_text()
  return dict(
    cpu=processor(cpuinfo),
    instructions=instructions(cpuinfo),
    cores=len(os.sched_getaffinity(0)),
    memory_gib=round(
      os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1
    ),
    load_at_start=os.getloadavg()[0],
    system=platform.platform(),
    python=platform.python_version(),
    tensorflow=importlib.metadata.version('tensorflow'),
    tensorflow_federated=importlib.metadata.version('tensorflow-federated'),
    date=datetime.date.today().isoformat(),
  )


def headline(description: dict[str, str | int | float]) -> str:
  """Returns one line on a machine that `describe` has described."""
  return (
    '{date}: {cpu} ({instructions}), {cores} cores, {memory_gib} GiB, Python '
    '{python}, TensorFlow {tensorflow}, TFF {tensorflow_federated}, load '
    '{load_at_start:.1f} at the start'
  ).format(**description)


def processor(cpuinfo: str) -> str:
  """Returns the name of the processor in the text of /proc/cpuinfo."""
  for line in cpuinfo.splitlines():
    if line.startswith('model name'):
      return line.split(':', 1)[1].strip()
  return platform.machine()


def instructions(cpuinfo: str) -> str:
  """Returns which wide instructions /proc/cpuinfo names, with commas."""
  found = set(cpuinfo.split())
  return ', '.join(each for each in _INSTRUCTIONS if each in found) or 'none'
