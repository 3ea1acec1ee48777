"""The in-process context against TFF's native one, on stock processes."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.runtime import stock_processes

_ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  """Returns what every process gave, by context."""
  folder = tmp_path_factory.mktemp('stock')
  found = {}
  for context in ('in_process', 'native'):
    # To a file: the native context's worker keeps its output open.
    with open(folder / f'{context}.log', 'w') as log:
      subprocess.run(
        [
          sys.executable,
          '-m',
          'tests.runtime.stock_processes',
          context,
          folder / f'{context}.pkl',
        ],
        cwd=_ROOT,
        stdout=log,
        stderr=log,
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
        check=True,
        timeout=900,
      )
    found[context] = pickle.loads((folder / f'{context}.pkl').read_bytes())
  return found


@pytest.mark.slow
@pytest.mark.parametrize('name', [*stock_processes.PROCESSES, 'evaluation'])
def test_results_equal_those_of_the_native_context(results, name):
  found, expected = results['in_process'][name], results['native'][name]
  assert [leaf[:2] for leaf in found] == [leaf[:2] for leaf in expected]
  for (path, _, a), (_, _, b) in zip(found, expected, strict=True):
    assert a.dtype == b.dtype, path
    if a.dtype.kind in 'fc':
      # float32, summed in another order.
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=path)
    else:
      np.testing.assert_array_equal(a, b, err_msg=path)


@pytest.mark.slow
def test_noise_of_a_key_has_the_same_bits_in_both_contexts(results):
  ((_, _, found),), ((_, _, expected),) = (
    results[context]['noise'] for context in ('in_process', 'native')
  )
  np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
  'factory',
  [
    lambda: tff.aggregators.UnweightedMeanFactory(
      value_sum_factory=tff.aggregators.SecureSumFactory(1.0, -1.0)
    ),
    pytest.param(
      lambda: tff.learning.secure_aggregator(
        zeroing=False, clipping=False, weighted=False
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_secure_sums_give_the_mean_to_their_precision(factory):
  process = factory().create(tff.TensorType(np.float32, [3]))
  values = np.random.default_rng(0).uniform(-0.9, 0.9, [7, 3])
  values = list(values.astype(np.float32))
  output = process.next(process.initialize(), values)
  np.testing.assert_allclose(output.result, np.mean(values, axis=0), atol=1e-4)
