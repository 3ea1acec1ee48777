"""The in-process context against TFF's native one, and where it gives up."""

import contextlib
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests import processes
from tests.runtime import stock_processes

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  """Returns what every process gave, by context."""
  folder = tmp_path_factory.mktemp('stock')
  with contextlib.ExitStack() as stack:
    programs = {}
    for context in ('in_process', 'native'):
      # To a file: the native context's worker keeps its output open.
      log = stack.enter_context(open(folder / f'{context}.log', 'w'))
      path = folder / f'{context}.pkl'
      programs[path] = subprocess.Popen(
        [
          *(sys.executable, '-m', 'tests.runtime.stock_processes'),
          *(context, path),
        ],
        cwd=_ROOT,
        stdout=log,
        stderr=log,
      )
      stack.enter_context(processes.ended_at_last(programs[path]))
    for path, program in programs.items():
      assert program.wait(900) == 0, path.with_suffix('.log').read_text()
  return [pickle.loads(path.read_bytes()) for path in programs]


@pytest.mark.slow
@pytest.mark.parametrize('name', stock_processes.PROCESSES)
def test_results_equal_those_of_the_native_context(results, name):
  found, expected = (each[name] for each in results)
  assert [leaf[:2] for leaf in found] == [leaf[:2] for leaf in expected]
  for (path, _, a), (_, _, b) in zip(found, expected, strict=True):
    assert a.dtype == b.dtype, path
    if a.dtype.kind in 'fc' and name != 'noise':
      # float32, summed in another order.
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=path)
    else:
      # Noise of a key has the same bits.
      np.testing.assert_array_equal(a, b, err_msg=path)


# What has no MapReduce form.
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
      cwd=_ROOT,
      stdin=subprocess.PIPE,
      # To a file: a worker that was left would keep a pipe open.
      stdout=output,
      stderr=output,
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
