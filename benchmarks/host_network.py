"""Hosts with addresses of their own: network namespaces joined by a bridge.

All are of this machine, and removed at the end. It takes Linux, `ip` (iproute2)
and the right to make namespaces, mostly root's.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping

NUM_HOSTS = 3
_NAME = f'tffc{os.getpid()}'
_SWITCH = f'{_NAME}s'


def address(host: int) -> str:
  """Returns the address of a host."""
  return f'10.213.0.{host + 1}'


def command(host: int, *arguments: str) -> list[str]:
  """Returns a command as it is run on a host."""
  return ['ip', 'netns', 'exec', _namespace(host), *arguments]


def cut(host: int, *, down: bool = True) -> None:
  """Cuts a host off, or joins it again."""
  _ip('-n', _SWITCH, 'link', 'set', f'p{host}', 'down' if down else 'up')


def send_signal(host: int, signum: int, part: str = '') -> None:
  """Sends a signal to the processes of a host with `part` in their name."""
  for pid in _ip('netns', 'pids', _namespace(host)).split():
    with contextlib.suppress(OSError):
      name = pathlib.Path(f'/proc/{pid}/cmdline').read_text().split('\0')[0]
      if part in name:
        os.kill(int(pid), signum)


@contextlib.contextmanager
def network() -> Iterator[None]:
  """Makes the hosts and the bridge, and removes them at the end.

  Raises:
    subprocess.CalledProcessError: it is not permitted here.
  """
  namespaces = [_SWITCH, *map(_namespace, range(NUM_HOSTS))]
  try:
    for namespace in namespaces:
      _ip('netns', 'add', namespace)
      _ip('-n', namespace, 'link', 'set', 'lo', 'up')
    _ip('-n', _SWITCH, 'link', 'add', 'bridge', 'type', 'bridge')
    _ip('-n', _SWITCH, 'link', 'set', 'bridge', 'up')
    for host in range(NUM_HOSTS):
      _plug_in(host)
    yield
  finally:
    for namespace in namespaces:
      with contextlib.suppress(subprocess.CalledProcessError):
        _ip('netns', 'del', namespace)


def why_not() -> str | None:
  """Returns why there can be no such hosts here; `None` if they can be."""
  if shutil.which('ip') is None:
    return 'there is no `ip`, which iproute2 has'
  try:
    with network():
      return None
  except subprocess.CalledProcessError as e:
    return f'network namespaces cannot be made here ({e.stderr.strip()})'


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
  """Runs a command that may leave processes behind; returns its output.

  Args:
    *arguments: the command.
    environment: its variables; `None` for those of this process.

  Raises:
    subprocess.CalledProcessError: it has failed.
  """
  # To files: what it leaves keeps its output open.
  with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
    code = subprocess.run(
      arguments, stdout=out, stderr=err, env=environment
    ).returncode
    out.seek(0)
    err.seek(0)
    if code:
      raise subprocess.CalledProcessError(code, arguments, stderr=err.read())
    return out.read()


def _plug_in(host: int) -> None:
  """Joins a host to the bridge by a pair of devices."""
  namespace = _namespace(host)
  _ip(
    *('-n', _SWITCH, 'link', 'add', f'p{host}', 'type', 'veth', 'peer'),
    *('name', 'eth0', 'netns', namespace),
  )
  _ip('-n', _SWITCH, 'link', 'set', f'p{host}', 'master', 'bridge', 'up')
  _ip('-n', namespace, 'addr', 'add', f'{address(host)}/24', 'dev', 'eth0')
  _ip('-n', namespace, 'link', 'set', 'eth0', 'up')


def _namespace(host: int) -> str:
  return f'{_NAME}h{host}'


def _ip(*arguments: str) -> str:
  return run('ip', *arguments)
