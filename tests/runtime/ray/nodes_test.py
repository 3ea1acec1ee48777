"""A cluster of two nodes, raylets of this machine, of which both are killed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_ROOT = pathlib.Path(__file__).parents[3]


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
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'OMP_NUM_THREADS': '1'},
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
