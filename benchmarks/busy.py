"""How busy other programs keep the machine while something is measured."""

import contextlib
import os
from typing import NamedTuple

import psutil

from benchmarks import processes

# More than a quiet machine does beside a measurement.
_QUIET = 0.05


class CpuTime(NamedTuple):
  """What the CPUs have done since they were started, in seconds.

  Attributes:
    total: Of all CPUs that this process may use, idle or not.
    used: What of it was used by any program, or taken by other machines on the
      same processor.
    own: What of it this process and all that it has started have used.
  """

  total: float
  used: float
  own: float


def read_cpu_time() -> CpuTime | None:
  """Returns the times until now; `None` where the system does not tell."""
  try:
    every = psutil.cpu_times(percpu=True)
    cpus = [every[cpu] for cpu in os.sched_getaffinity(0)]
  except (OSError, IndexError, psutil.Error):
    return None
  # A guest's time is a part of `user` and `nice`.
  fields = ('user', 'nice', 'system', 'irq', 'softirq', 'steal')
  used = sum(getattr(cpu, field, 0.0) for cpu in cpus for field in fields)
  idle = sum(cpu.idle + getattr(cpu, 'iowait', 0.0) for cpu in cpus)
  own = 0.0
  for process in processes.tree(os.getpid()):
    with contextlib.suppress(psutil.Error):
      # With that of its children which have ended.
      own += sum(process.cpu_times()[:4])
  return CpuTime(used + idle, used, own)


def share_of_others(
  before: CpuTime | None, after: CpuTime | None
) -> float | None:
  """Returns the share of the CPUs' time that other programs took.

  Args:
    before: The times when something began.
    after: The times when it ended.

  Returns:
    A number from 0 to 1; `None` where nobody knows it.
  """
  if before is None or after is None or after.total <= before.total:
    return None
  others = (after.used - before.used) - (after.own - before.own)
  # The kernel counts in ticks, not all of them at the same time.
  return min(max(others / (after.total - before.total), 0.0), 1.0)


def sentence(share: float | None) -> str:
  """Returns what a reader of figures is told of a share."""
  if share is None:
    return 'how busy other programs kept the CPUs is not known here'
  text = f"other programs took {share:.1%} of the CPUs' time"
  if share <= _QUIET:
    return text
  return f'{text}: NOT QUIET, do not rely on the seconds'
