"""A program that loses Ray, or is ended, leaves no hang and nothing behind."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import processes

# With the other tests of Ray in one process; the programs here start at once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_LOST = {
  # What a user's terminal sends to all processes that it has started.
  'all': signal.SIGINT,
  'program': signal.SIGKILL,
  'raylet': signal.SIGKILL,
  'gcs_server': signal.SIGKILL,
}


@pytest.fixture(scope='module')
def programs(tmp_path_factory):
  """Returns a program on a Ray of its own for each test, started at once."""
  with contextlib.ExitStack() as stack:
    started = {}
    for part in _LOST:
      started[part] = subprocess.Popen(
        [
          *(sys.executable, '-m', 'tests.runtime.ray.rounds'),
          tmp_path_factory.mktemp(part),
        ],
        cwd=pathlib.Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
          **os.environ,
          'TF_CPP_MIN_LOG_LEVEL': '3',
          # Of a minute that Ray would wait for it.
          'RAY_gcs_rpc_server_reconnect_timeout_s': '5',
        },
        start_new_session=True,
      )
      stack.enter_context(processes.ended_at_last(started[part]))
    yield started


@pytest.mark.parametrize('part', _LOST)
def test_a_lost_part_ends_the_program_and_all_of_ray(part, programs):
  program = programs[part]
  assert program.stdout.readline()
  started = processes.descendants(program.pid)
  if part == 'all':
    os.killpg(program.pid, _LOST[part])
  else:
    commands = {p.pid: processes.command(p.pid).split('\0')[0] for p in started}
    named = {pathlib.Path(path).name: pid for pid, path in commands.items()}
    os.kill({**named, 'program': program.pid}[part], _LOST[part])
  program.communicate(timeout=300)
  assert program.returncode != 0
  processes.wait_until_ended(started)
