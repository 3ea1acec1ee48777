"""Shows how long rounds take to recover from what befalls a cluster's hosts.

  python -m benchmarks.hosts

Three hosts with addresses of their own are network namespaces of this machine,
joined by a bridge in a fourth one; all are made here and removed at the end.
It takes `ip`, `tc` and the right to make namespaces, mostly root's; without
them it says so and measures nothing. Rounds run while hosts are cut off, killed
and stopped; each result is compared, bit for bit, with that of one process.
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

from absl import app, flags

from benchmarks import machine

_SCENARIOS = flags.DEFINE_list('scenarios', [], 'Those to run; else all.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where to save the figures.')

_NUM_HOSTS = 3
_PORT = 6379
_NAME = f'tffc{os.getpid()}'
_SWITCH = f'{_NAME}s'
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
  # What was made is removed at any end but a kill -9.
  signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
  reason = _why_not()
  if reason is not None:
    print(f'Skipped: {reason}.')
    return
  print(machine.headline(machine.describe()), flush=True)
  print(f'load at the start: {machine.describe()["load_at_start"]:.1f}')
  found = {}
  for scenario in _ALL:
    name = scenario.__name__.removeprefix('_')
    if _SCENARIOS.value and name not in _SCENARIOS.value:
      continue
    # A worker waits for its own host: each must have room for both runs.
    with _cluster(num_cpus=2 if scenario is _two_runs else 1) as cluster:
      found[name] = scenario(cluster)
    print(f'{name:16} {found[name]}', flush=True)
  if _OUTPUT.value:
    pathlib.Path(_OUTPUT.value).write_text(
      json.dumps(dict(machine=machine.describe(), found=found), indent=2)
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
    return [
      *('ip', 'netns', 'exec', _namespace(host)),
      *('sh', '-c', 'mount --bind "$0" /tmp && exec "$@"', str(folder)),
      *command,
    ]

  def start(self, host: int) -> None:
    """Starts Ray on a host."""
    where = (
      ['--head', f'--port={_PORT}', '--include-dashboard=false']
      if host == 0
      else [f'--address={_address(0)}:{_PORT}']
    )
    _run(
      *self.command(
        host,
        *(sys.executable, '-m', 'ray.scripts.scripts', 'start', *where),
        f'--node-ip-address={_address(host)}',
        # The head runs no clients, so that the others matter.
        f'--num-cpus={0 if host == 0 else self._num_cpus}',
        *('--object-store-memory=100000000', '--disable-usage-stats'),
      )
    )

  def program(self, host: int = 0, *num_workers: str) -> '_Program':
    """Starts rounds that do not end, on all workers or on so many."""
    return _Program(
      self.command(
        host,
        *(sys.executable, '-m', 'benchmarks.hosts_program'),
        f'{_address(0)}:{_PORT}',
        *num_workers,
      )
    )

  def cut(self, host: int, *, down: bool = True) -> None:
    """Cuts a host off, or joins it again."""
    state = 'down' if down else 'up'
    _ip('-n', _SWITCH, 'link', 'set', f'p{host}', state)

  def signal(self, host: int, signum: int, part: str = '') -> None:
    """Sends a signal to the processes of a host, or to one part of its Ray."""
    for pid in _ip('netns', 'pids', _namespace(host)).split():
      command = pathlib.Path(f'/proc/{pid}/cmdline')
      with contextlib.suppress(OSError):
        if part in command.read_text().split('\0')[0]:
          os.kill(int(pid), signum)


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


def _undisturbed(cluster: _Cluster) -> str:
  return _median(cluster.program().rounds(10))


def _host_cut_off(cluster: _Cluster) -> str:
  return _disturbed(cluster, lambda: cluster.cut(2))


def _cut_off_for_6_s(cluster: _Cluster) -> str:
  def cut() -> None:
    cluster.cut(2)
    time.sleep(6)
    cluster.cut(2, down=False)

  return _disturbed(cluster, cut)


def _host_killed(cluster: _Cluster) -> str:
  return _disturbed(cluster, lambda: cluster.signal(2, signal.SIGKILL))


def _raylet_stopped(cluster: _Cluster) -> str:
  return _disturbed(
    cluster, lambda: cluster.signal(2, signal.SIGSTOP, 'raylet')
  )


def _host_joins(cluster: _Cluster) -> str:
  program = cluster.program()
  program.rounds(3)
  cluster.signal(2, signal.SIGKILL)
  alone = statistics.median(program.rounds(10)[-5:])
  cluster.start(2)
  start = time.monotonic()
  while statistics.median(program.rounds(3)) > 0.75 * alone:
    if time.monotonic() - start > _MAX_SECONDS:
      return 'does not help'
  return f'helps {time.monotonic() - start:.1f} s after it has joined'


def _latency(cluster: _Cluster) -> str:
  return _with_netem(cluster, 'delay', '100ms')


def _loss(cluster: _Cluster) -> str:
  return _with_netem(cluster, 'loss', '1%')


def _two_runs(cluster: _Cluster) -> str:
  programs = [cluster.program(0, '2') for _ in range(2)]
  return ' and '.join(_median(program.rounds(10)) for program in programs)


def _all_cut_off(cluster: _Cluster) -> str:
  program = cluster.program()
  program.rounds(3)
  start = time.monotonic()
  cluster.cut(1)
  cluster.cut(2)
  return f'exit code {program.exit_code()} after {_since(start)}'


def _head_lost(cluster: _Cluster) -> str:
  program = cluster.program(host=1)
  program.rounds(3)
  start = time.monotonic()
  cluster.signal(0, signal.SIGKILL)
  return f'exit code {program.exit_code()} after {_since(start)}'


_ALL = (
  _undisturbed,
  _host_cut_off,
  _cut_off_for_6_s,
  _host_killed,
  _raylet_stopped,
  _host_joins,
  _latency,
  _loss,
  _two_runs,
  _all_cut_off,
  _head_lost,
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


def _with_netem(cluster: _Cluster, *netem: str) -> str:
  try:
    for host in range(_NUM_HOSTS):
      _run(
        *('tc', '-n', _namespace(host), 'qdisc', 'add', 'dev', 'eth0'),
        *('root', 'netem', *netem),
      )
  except subprocess.CalledProcessError as e:
    return f'not measured: this kernel has no netem ({e.stderr.strip()})'
  return _median(cluster.program().rounds(8))


def _median(seconds: Sequence[float]) -> str:
  return f'{statistics.median(seconds):.2f} s'


def _since(start: float) -> str:
  return f'{time.monotonic() - start:.1f} s'


@contextlib.contextmanager
def _cluster(num_cpus: int) -> Iterator[_Cluster]:
  """Makes the hosts, starts Ray on them, and removes all of it."""
  folder = tempfile.mkdtemp(prefix='hosts-')
  try:
    with _network():
      cluster = _Cluster(pathlib.Path(folder), num_cpus)
      try:
        for host in range(_NUM_HOSTS):
          cluster.start(host)
        yield cluster
      finally:
        for host in range(_NUM_HOSTS):
          cluster.signal(host, signal.SIGKILL)
  finally:
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _network() -> Iterator[None]:
  """Makes the namespaces and the bridge that joins them."""
  namespaces = [_SWITCH, *map(_namespace, range(_NUM_HOSTS))]
  try:
    for namespace in namespaces:
      _ip('netns', 'add', namespace)
      _ip('-n', namespace, 'link', 'set', 'lo', 'up')
    _ip('-n', _SWITCH, 'link', 'add', 'bridge', 'type', 'bridge')
    _ip('-n', _SWITCH, 'link', 'set', 'bridge', 'up')
    for host in range(_NUM_HOSTS):
      _ip(
        *('-n', _SWITCH, 'link', 'add', f'p{host}', 'type', 'veth', 'peer'),
        *('name', 'eth0', 'netns', _namespace(host)),
      )
      _ip('-n', _SWITCH, 'link', 'set', f'p{host}', 'master', 'bridge', 'up')
      _ip(
        *('-n', _namespace(host), 'addr', 'add', f'{_address(host)}/24'),
        *('dev', 'eth0'),
      )
      _ip('-n', _namespace(host), 'link', 'set', 'eth0', 'up')
    yield
  finally:
    for namespace in namespaces:
      with contextlib.suppress(subprocess.CalledProcessError):
        _ip('netns', 'del', namespace)


def _why_not() -> str | None:
  """Returns why namespaces cannot be made; `None` if they can."""
  for program in ('ip', 'tc'):
    if shutil.which(program) is None:
      return f'there is no `{program}`, which iproute2 has'
  try:
    with _network():
      return None
  except subprocess.CalledProcessError as e:
    return f'network namespaces cannot be made here ({e.stderr.strip()})'


def _namespace(host: int) -> str:
  return f'{_NAME}h{host}'


def _address(host: int) -> str:
  return f'10.213.0.{host + 1}'


def _ip(*arguments: str) -> str:
  return _run('ip', *arguments)


def _run(*command: str) -> str:
  # To files: what Ray starts keeps its output open.
  with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
    code = subprocess.run(
      command, stdout=out, stderr=err, env=os.environ | _ENVIRONMENT
    ).returncode
    out.seek(0)
    err.seek(0)
    if code:
      raise subprocess.CalledProcessError(code, command, stderr=err.read())
    return out.read()


if __name__ == '__main__':
  app.run(main)
