"""Tests of how clients are split, on which the last bits depend."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import runtime
from tff_clipping.runtime.in_process import split_into_shards


@pytest.mark.parametrize(
  ('num_clients', 'num_shards', 'sizes'),
  [
    (7, 3, [2, 2, 3]),
    (2, 5, [1, 1]),
    (0, 3, [0]),
    (4, 1, [4]),
    (6, 3, [2] * 3),
  ],
)
def test_clients_are_split_evenly_and_in_order(num_clients, num_shards, sizes):
  found = split_into_shards(num_clients, num_shards)
  assert [len(shard) for shard in found] == sizes
  assert [i for shard in found for i in shard] == list(range(num_clients))


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _sum(values):
  return tff.federated_sum(values)


def test_shards_are_added_up_one_after_the_other_whatever_the_threads():
  values = np.random.default_rng(0).normal(size=60).astype(np.float32) * 1e3
  sums = set()
  for num_shards in (1, 2, 7, 60, 100):
    expected = np.float32(0)
    for number, shard in enumerate(split_into_shards(60, num_shards)):
      part = np.float32(0)
      for value in values[shard.start : shard.stop]:
        part += value
      expected = expected + part if number else part
    for num_threads in (1, 5):
      runtime.set_default_context(
        num_threads=num_threads, num_shards=num_shards
      )
      assert float(_sum(list(values))) == float(expected)
    sums.add(float(expected))
  # The order matters here.
  assert len(sums) > 1


def test_secure_sums_in_shards_are_exact_and_name_the_client_that_fails():
  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def comp(values):
    return tff.federated_secure_sum(values, max_input=100)

  runtime.set_default_context(num_shards=3)
  assert comp([1, 20, 100, 7]) == 128
  with pytest.raises(
    runtime.ClientError, match=r'Client 3 of 4 failed \(101\)'
  ):
    comp([1, 2, 3, 101])


@pytest.mark.parametrize(
  ('argument', 'value', 'error'),
  [
    ('num_shards', 0, ValueError),
    ('num_shards', True, TypeError),
    ('num_threads', 0, ValueError),
    ('num_threads', 1.5, TypeError),
    ('threads_per_client', 0, ValueError),
  ],
)
def test_bad_numbers_are_refused(argument, value, error):
  with pytest.raises(error, match=f'`{argument}`'):
    runtime.InProcessContext(**{argument: value})
