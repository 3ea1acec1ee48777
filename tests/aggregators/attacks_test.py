"""The attack on floating-point noise, which finds nothing on a grid.

A sum of floating-point numbers is rounded, so that a float is reached from some
sums and not from others: fl(x + y) = r has a solution y among the draws or it
has none, and that proves which x it was (Mironov 2012). On a grid that was
fixed before the data, each point is reached from each sum.
"""

import math

import numpy as np
import pytest
import tensorflow_federated as tff
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tests import noise_strategies
from tests.aggregators.one_round import first_round, rounds
from tff_clipping import aggregators

_NUM_RELEASES = 1000


@pytest.mark.slow
@pytest.mark.parametrize('update', [0.75, 0.1])
def test_no_release_is_impossible_without_the_client(update):
  process = aggregators.dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=1,
    noise_key=(1, 2),
  ).create(tff.TensorType(np.float64))
  # Of noise with a standard deviation of 1.
  step = 2.0**-29
  for values in ([np.float64(update)], []):
    outputs = rounds(process, [values] * _NUM_RELEASES)
    found = np.array([float(output.result) for output in outputs]) / step
    # With and without it, the noise that explains the release is on the grid.
    steps = np.rint(found)
    np.testing.assert_array_equal(found, steps)
    # No multiple of a number is left out, and none is preferred: of 1000 draws
    # a residue modulo 4 has 250, with a standard deviation of 14.
    for modulus in (2, 3, 4):
      counts = np.bincount(
        np.mod(steps.astype(np.int64), modulus), minlength=modulus
      )
      share = _NUM_RELEASES / modulus
      assert np.max(np.abs(counts - share)) < 7 * math.sqrt(share), counts


def _check_grid(released, step):
  """Checks that 4000 releases are on a grid, and half of them on a coarser."""
  steps = released / step
  np.testing.assert_array_equal(steps, np.rint(steps))
  odd = np.count_nonzero(steps % 2)
  assert abs(odd - 2000) < 7 * math.sqrt(1000)


@pytest.mark.parametrize(
  'is_secure', [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_shares_lie_on_a_grid(is_secure):
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5)
  process = aggregators.local_gaussian_noise_factory(
    1.0, inner if is_secure else None, clients_per_round=4
  ).create(tff.TensorType(np.float64, [4000]))
  values = [np.full(4000, 0.3)] * 4
  _check_grid(first_round(process, values).result, 2.0**-26)


def test_a_mixture_of_draws_lies_on_a_grid():
  process = aggregators.correlated_noise_factory(
    noise_strategies.blt(4),
    1.0,
    noise_key=(1, 2),
  ).create(tff.TensorType(np.float64, [4000]))
  for output in rounds(process, [[np.full(4000, 0.3)]] * 3):
    _check_grid(output.result, 2.0**-24)


@pytest.mark.slow
def test_an_adapted_norm_has_a_grid_of_its_own():
  process = aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=16,
    below_count_stddev=1.0,
  ).create(tff.TensorType(np.float64, [4000]))
  for output in rounds(process, [[np.full(4000, 0.3)]] * 3):
    # z' c, from which the step follows.
    stddev = np.float64(output.measurements['clipping_norm']) * 3**-0.5 * 2
    step = 2.0 ** (math.floor(math.log2(stddev)) - 29)
    _check_grid(output.result * 16, step)


def _constants(process):
  """Returns the constants of all graphs of a process, by content."""
  found = []

  def collect(message):
    if message.DESCRIPTOR.full_name == 'google.protobuf.Any':
      graph = graph_pb2.GraphDef()
      if message.Unpack(graph):
        collect(graph)
    elif isinstance(message, node_def_pb2.NodeDef):
      if message.op == 'Const':
        found.append(message.attr['value'].tensor.SerializeToString())
    else:
      for field, value in message.ListFields():
        if field.message_type is None:
          continue
        if field.message_type.GetOptions().map_entry:
          continue
        if field.label == field.LABEL_REPEATED:
          for each in value:
            collect(each)
        else:
          collect(value)

  for computation in (process.initialize, process.next):
    collect(tff.framework.serialize_computation(computation))
  return sorted(found)


@pytest.mark.parametrize(
  'build',
  [
    pytest.param(
      lambda: aggregators.local_gaussian_noise_factory(
        1.0, clients_per_round=2
      ),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda: aggregators.distributed_gaussian_mean_factory(
        clipping_norm=1.0, noise_multiplier=4.0, clients_per_round=2
      ),
      marks=pytest.mark.slow,
    ),
    lambda: aggregators.gaussian_noise_factory(1.0),
  ],
)
def test_no_secret_is_in_a_graph(build):
  one, other = (
    build().create(tff.TensorType(np.float32, [64])) for _ in range(2)
  )
  constants = _constants(one)
  assert constants
  assert constants == _constants(other)
  results = [
    first_round(process, [np.zeros(64, np.float32)] * 2).result
    for process in (one, one, other)
  ]
  assert not np.array_equal(results[0], results[1])
  assert not np.array_equal(results[0], results[2])
