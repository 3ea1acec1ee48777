"""What has no MapReduce form runs in TFF's own context, with one warning."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import processes

_PROGRAM = """
import logging, numpy as np, tensorflow_federated as tff
from tff_clipping import runtime

logging.basicConfig(level=logging.WARNING, format='%(message)s')
runtime.set_default_context()
clients = tff.FederatedType(np.int32, tff.CLIENTS)

@tff.tensorflow.computation(np.int32)
def double(x):
  return 2 * x

@tff.federated_computation(clients)
def at_clients(values):
  return tff.federated_map(double, values), tff.federated_sum(values)

@tff.federated_computation(clients, tff.FederatedType(
  np.int32, tff.CLIENTS, all_equal=True))
def all_equal(values, offset):
  del offset
  return tff.federated_sum(values)

@tff.federated_computation(np.int32)
def unplaced(x):
  return double(double(x))

for _ in range(2):
  print(at_clients([1, 2]), all_equal([1, 2], 5), unplaced(3), flush=True)
input()
"""


@pytest.mark.slow
def test_what_has_no_map_reduce_form_runs_and_leaves_no_process(tmp_path):
  with open(tmp_path / 'output', 'w') as output:
    program = subprocess.Popen(
      [sys.executable, '-c', _PROGRAM],
      cwd=pathlib.Path(__file__).parents[2],
      stdin=subprocess.PIPE,
      # To a file: a worker that was left would keep a pipe open.
      stdout=output,
      stderr=output,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    )
    with processes.ended_at_last(program):
      processes.wait_for(
        lambda: (tmp_path / 'output').read_text().count(' 12') == 2, program
      )
      started = processes.descendants(program.pid)
      program.stdin.write(b'\n')
      program.stdin.close()
      assert program.wait(300) == 0
  assert started
  processes.wait_until_ended(started)
  lines = (tmp_path / 'output').read_text().splitlines()
  assert [x for x in lines if x[0] == '('] == ['([2, 4], 3) 3 12'] * 2
  # Each computation is warned of once.
  warnings = [x for x in lines if "in TFF's own context" in x]
  assert len(warnings) == 3
  assert 'It returns values at clients, ' in warnings[0]
