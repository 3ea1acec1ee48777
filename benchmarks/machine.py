"""The machine and the versions that a figure was measured with."""

import datetime
import importlib.metadata
import os
import pathlib
import platform


def describe() -> dict[str, str | int | float]:
  """Returns what to save beside every figure."""
  return dict(
    cpu=_processor(pathlib.Path('/proc/cpuinfo').read_text()),
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
    '{date}: {cpu}, {cores} cores, {memory_gib} GiB, Python {python}, '
    'TensorFlow {tensorflow}, TFF {tensorflow_federated}'
  ).format(**description)


def _processor(cpuinfo: str) -> str:
  """Returns the name of the processor in the text of /proc/cpuinfo."""
  for line in cpuinfo.splitlines():
    if line.startswith('model name'):
      return line.split(':', 1)[1].strip()
  return platform.machine()
