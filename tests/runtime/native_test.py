"""The in-process context against TFF's native one, on stock processes."""

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests import processes
from tests.runtime import stock_processes


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
        cwd=pathlib.Path(__file__).parents[2],
        stdout=log,
        stderr=log,
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
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
