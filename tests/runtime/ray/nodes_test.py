"""Tests of clusters of several nodes, which are raylets of this machine."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_ROOT = pathlib.Path(__file__).parents[3]


def _run(scenario, folder):
  """Returns what `nodes` prints of a scenario."""
  result = subprocess.run(
    [sys.executable, '-m', 'tests.runtime.ray.nodes', scenario, folder],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'OMP_NUM_THREADS': '1'},
    timeout=900,
  )
  # Ray prints what it likes to in this program, which imports it first.
  lines = [x for x in result.stdout.splitlines() if x.startswith('{"')]
  assert result.returncode == 0, result.stdout + result.stderr
  return [json.loads(line) for line in lines]


def _values(printed, name):
  return [p[name] for p in printed if name in p]


def test_nodes_that_are_lost_in_mid_round(tmp_path):
  printed = _run('lose_nodes', tmp_path)
  nodes = _values(printed, 'nodes')[0]
  # Two workers and the spare one, on both nodes.
  assert sorted(node.split()[1] for node in nodes)[0] == 'first'
  assert sorted(node.split()[1] for node in nodes)[-1] == 'second'
  assert len(nodes) == 3
  # One node is lost: the same result.
  assert _values(printed, 'result') == _values(printed, 'expected')
  # Twice if the spare one was on the lost node, and its loss came later.
  assert _values(printed, 'num_repeated')[0] in (1, 2)
  lost = [w for w in _values(printed, 'warning') if w.startswith('Lost')]
  assert 'node second (' in lost[0]
  # The last one is lost: a clear error.
  (error,) = _values(printed, 'error')
  assert error.startswith('No worker of the cluster is left')
  assert 'node first (' in error


def test_a_node_that_comes_later_is_used(tmp_path):
  printed = _run('rejoin', tmp_path)
  assert set(_values(printed, 'result')) == set(_values(printed, 'expected'))
  assert any('third' in node for node in _values(printed, 'nodes')[0])


def test_a_path_that_is_missing_on_a_node(tmp_path):
  lacking, present = _values(_run('lack_path', tmp_path), 'error')
  assert 'node without (' in lacking
  assert 'lacks /proc/self/cwd/store.' in lacking
  assert 'node with (' not in lacking
  assert present is None


def test_gpus_are_asked_for_where_they_are(tmp_path):
  printed = _run('use_gpus', tmp_path)
  nodes = [node.split()[1] for node in _values(printed, 'nodes')[0]]
  # One for each GPU, one for the CPU of the other node, and the spare one.
  assert sorted(nodes[:-1]) == ['cpus', 'gpus', 'gpus']
  assert _values(printed, 'gpus_left')[0] <= 0.2 + 1e-6
  assert 'must be at most the 3' in _values(printed, 'error')[0]
