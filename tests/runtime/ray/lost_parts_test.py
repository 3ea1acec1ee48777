"""Programs that lose Ray or a node of it, or are ended."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import processes

# With the other tests of Ray in one process; the programs here start at once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_ROOT = pathlib.Path(__file__).parents[3]
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
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
          **os.environ,
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


@pytest.fixture(scope='module')
def printed(tmp_path_factory):
  """Returns what the program prints, by kind."""
  result = subprocess.run(
    [
      *(sys.executable, '-m', 'tests.runtime.ray.nodes'),
      tmp_path_factory.mktemp('nodes'),
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    env={**os.environ, 'OMP_NUM_THREADS': '1'},
    timeout=900,
  )
  assert result.returncode == 0, result.stdout + result.stderr
  found = {}
  # Ray prints what it likes to in this program, which imports it first.
  for line in result.stdout.splitlines():
    if line.startswith('{"'):
      for name, value in json.loads(line).items():
        found.setdefault(name, []).append(value)
  return found


def test_a_node_without_a_path_is_named(printed):
  (lacking,) = printed['lacking']
  assert 'node second (' in lacking
  assert 'lacks /proc/self/cwd/store.' in lacking


def test_a_killed_nodes_shard_runs_again_on_the_other_node(printed):
  assert printed['result'] == printed['expected']
  assert 'Lost the worker on node second (' in printed['warning'][0]


def test_the_loss_of_the_last_node_is_an_error(printed):
  (error,) = printed['error']
  assert error.startswith('No worker of the cluster is left')
  assert 'Lost the worker on node first (' in printed['warning'][-1]
