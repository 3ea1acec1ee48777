"""Shows how long rounds take to recover from what befalls a cluster's hosts.

  python -m benchmarks.hosts

Three hosts with addresses of their own are network namespaces of this machine,
joined by a bridge in a fourth one; all are made here and removed at the end.
It takes `ip` and the right to make namespaces, mostly root's; without them it
says so and measures nothing. Rounds run while hosts are cut off, killed and
stopped; each result is compared, bit for bit, with that of one process.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from absl import app, flags

from benchmarks import host_network, machine

_SCENARIOS = flags.DEFINE_list('scenarios', [], 'Those to run; else all.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where to save the figures.')

_PORT = 6379
_HEAD = f'{host_network.address(0)}:{_PORT}'
# More than Ray's own limits, on a machine that does much else.
_MAX_SECONDS = 400.0
_ENVIRONMENT = dict(
  TF_CPP_MIN_LOG_LEVEL='3',
  OMP_NUM_THREADS='1',
  RAY_USAGE_STATS_ENABLED='0',
  RAY_agent_register_timeout_ms='300000',
  RAY_worker_register_timeout_seconds='300',
)


class _Ended(RuntimeError):
  """The program has ended, or says nothing."""


def main(argv: Sequence[str]) -> None:
  """Measures, prints and saves."""
  del argv
  names = _SCENARIOS.value or list(_ALL)
  unknown = [name for name in names if name not in _ALL]
  if unknown:
    raise app.UsageError(
      f'`--scenarios` must be of {", ".join(_ALL)}, got {", ".join(unknown)}.'
    )
  # What was made is removed at any end but a kill -9.
  signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
  reason = host_network.why_not()
  if reason is not None:
    print(f'Skipped: {reason}.')
    return
  description = machine.describe()
  print(machine.headline(description), flush=True)
  found = {}
  for name in names:
    scenario = _ALL[name]
    with _cluster(scenario) as cluster:
      found[name] = scenario.measure(cluster)
    print(f'{name:16} {found[name]}', flush=True)
  if _OUTPUT.value:
    pathlib.Path(_OUTPUT.value).write_text(
      json.dumps(dict(machine=description, found=found), indent=2)
    )


class _Cluster:
  """The hosts; number 0 is the head, and where the program runs."""

  def __init__(self, folder: pathlib.Path, num_cpus: int):
    self._folder = folder
    self._num_cpus = num_cpus

  def command(self, host: int, *command: str) -> list[str]:
    """Returns a command as it is run on a host, which has a /tmp of its own."""
    folder = self._folder / str(host)
    folder.mkdir(exist_ok=True)
    return host_network.command(
      host,
      *('sh', '-c', 'mount --bind "$0" /tmp && exec "$@"', str(folder)),
      *command,
    )

  def start(self, host: int) -> None:
    """Starts Ray on a host."""
    where = (
      ['--head', f'--port={_PORT}', '--include-dashboard=false']
      if host == 0
      else [f'--address={_HEAD}']
    )
    host_network.run(
      *self.command(
        host,
        *(sys.executable, '-m', 'ray.scripts.scripts', 'start', *where),
        f'--node-ip-address={host_network.address(host)}',
        # The head runs no clients, so that the others matter.
        f'--num-cpus={0 if host == 0 else self._num_cpus}',
        *('--object-store-memory=100000000', '--disable-usage-stats'),
      ),
      environment=os.environ | _ENVIRONMENT,
    )

  def program(self, host: int = 0, *num_workers: str) -> '_Program':
    """Starts rounds that do not end, on all workers or on so many."""
    return _Program(
      self.command(
        host,
        *(sys.executable, '-m', 'benchmarks.hosts_program'),
        _HEAD,
        *num_workers,
      )
    )


class _Program:
  """A program that runs rounds on the cluster and prints each."""

  def __init__(self, command: Sequence[str]):
    self.process = subprocess.Popen(
      command,
      stdout=subprocess.PIPE,
      env=os.environ | _ENVIRONMENT,
    )
    os.set_blocking(self.process.stdout.fileno(), False)
    self._rest = b''

  def rounds(self, count: int) -> list[float]:
    """Returns the seconds of the next rounds, all with the right bits."""
    seconds = []
    for _ in range(count):
      line = json.loads(self._line())
      if not line['is_equal']:
        raise AssertionError('A round gave other bits than one process.')
      seconds.append(line['seconds'])
    return seconds

  def exit_code(self) -> int:
    """Waits for its end."""
    return self.process.wait(timeout=_MAX_SECONDS)

  def _line(self) -> bytes:
    deadline = time.monotonic() + _MAX_SECONDS
    while b'\n' not in self._rest:
      self._rest += self.process.stdout.read() or b''
      if self.process.poll() is not None and b'\n' not in self._rest:
        raise _Ended(f'exit code {self.process.returncode}')
      if time.monotonic() > deadline:
        raise _Ended(f'nothing for {_MAX_SECONDS:.0f} s')
      time.sleep(0.02)
    line, self._rest = self._rest.split(b'\n', 1)
    return line


def _rounds(cluster: _Cluster) -> str:
  return _median(cluster.program().rounds(10))


def _host_cut_off(cluster: _Cluster) -> str:
  return _disturbed(cluster, lambda: host_network.cut(2))


def _cut_off_for_6_s(cluster: _Cluster) -> str:
  def cut() -> None:
    host_network.cut(2)
    time.sleep(6)
    host_network.cut(2, down=False)

  return _disturbed(cluster, cut)


def _host_killed(cluster: _Cluster) -> str:
  return _disturbed(
    cluster, lambda: host_network.send_signal(2, signal.SIGKILL)
  )


def _raylet_stopped(cluster: _Cluster) -> str:
  return _disturbed(
    cluster, lambda: host_network.send_signal(2, signal.SIGSTOP, 'raylet')
  )


def _host_joins(cluster: _Cluster) -> str:
  program = cluster.program()
  program.rounds(3)
  host_network.send_signal(2, signal.SIGKILL)
  alone = statistics.median(program.rounds(10)[-5:])
  cluster.start(2)
  start = time.monotonic()
  while statistics.median(program.rounds(3)) > 0.75 * alone:
    if time.monotonic() - start > _MAX_SECONDS:
      return 'does not help'
  return f'helps {time.monotonic() - start:.1f} s after it has joined'


def _two_runs(cluster: _Cluster) -> str:
  programs = [cluster.program(0, '2') for _ in range(2)]
  return ' and '.join(_median(program.rounds(10)) for program in programs)


def _all_cut_off(cluster: _Cluster) -> str:
  program = cluster.program()
  program.rounds(3)
  start = time.monotonic()
  host_network.cut(1)
  host_network.cut(2)
  return f'exit code {program.exit_code()} after {_since(start)}'


def _head_lost(cluster: _Cluster) -> str:
  program = cluster.program(host=1)
  program.rounds(3)
  start = time.monotonic()
  host_network.send_signal(0, signal.SIGKILL)
  return f'exit code {program.exit_code()} after {_since(start)}'


class _Scenario(NamedTuple):
  measure: Callable[[_Cluster], str]
  # A worker waits for its own host: each must have room for all runs.
  num_cpus: int = 1


_ALL = dict(
  undisturbed=_Scenario(_rounds),
  host_cut_off=_Scenario(_host_cut_off),
  cut_off_for_6_s=_Scenario(_cut_off_for_6_s),
  host_killed=_Scenario(_host_killed),
  raylet_stopped=_Scenario(_raylet_stopped),
  host_joins=_Scenario(_host_joins),
  two_runs=_Scenario(_two_runs, num_cpus=2),
  all_cut_off=_Scenario(_all_cut_off),
  head_lost=_Scenario(_head_lost),
)


def _disturbed(cluster: _Cluster, disturb: Callable[[], None]) -> str:
  """Returns the longest of the rounds after a disturbance."""
  program = cluster.program()
  before = program.rounds(5)
  disturb()
  after = program.rounds(12)
  return (
    f'{max(after):.1f} s for the longest round, others {_median(before)} '
    f'before and {_median(after[-5:])} after'
  )


def _median(seconds: Sequence[float]) -> str:
  return f'{statistics.median(seconds):.2f} s'


def _since(start: float) -> str:
  return f'{time.monotonic() - start:.1f} s'


@contextlib.contextmanager
def _cluster(scenario: _Scenario) -> Iterator[_Cluster]:
  """Makes the hosts, starts Ray on them, and removes all of it."""
  folder = tempfile.mkdtemp(prefix='hosts-')
  try:
    with host_network.network():
      cluster = _Cluster(pathlib.Path(folder), scenario.num_cpus)
      try:
        for host in range(host_network.NUM_HOSTS):
          cluster.start(host)
        yield cluster
      finally:
        for host in range(host_network.NUM_HOSTS):
          host_network.send_signal(host, signal.SIGKILL)
  finally:
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
  app.run(main)
