"""Tests of how clients are split, and that the last bits depend on it."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import runtime
from tff_clipping.runtime import shards


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
  found = shards.split(num_clients, num_shards)
  assert [len(shard) for shard in found] == sizes
  assert [i for shard in found for i in shard] == list(range(num_clients))


@pytest.mark.parametrize('num_shards', [1, 2, 7, 60, 100])
def test_shards_are_added_up_one_after_the_other(num_shards):
  values = np.random.default_rng(0).normal(size=60).astype(np.float32) * 1e3
  expected = np.float32(0)
  for number, shard in enumerate(shards.split(60, num_shards)):
    part = np.float32(0)
    for value in values[shard.start : shard.stop]:
      part += value
    expected = expected + part if number else part
  found = _sum_in_process(values, num_shards=num_shards)
  assert float(found) == float(expected)


def test_the_number_of_shards_matters():
  values = np.random.default_rng(0).normal(size=60).astype(np.float32) * 1e3
  found = {_sum_in_process(values, num_shards=n) for n in (1, 2, 3, 5)}
  assert len(found) > 1


def test_secure_sums_are_the_same_in_any_number_of_shards():
  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def comp(values):
    return tff.federated_secure_sum(values, max_input=100)

  for num_shards in (1, 3):
    runtime.set_default_context(num_shards=num_shards)
    assert comp([1, 20, 100, 7]) == 128


def test_an_error_in_a_later_shard_names_the_client():
  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def comp(values):
    return tff.federated_secure_sum(values, max_input=10)

  runtime.set_default_context(num_shards=2)
  with pytest.raises(runtime.ClientError, match=r'Client 3 of 4 failed \(11\)'):
    comp([1, 2, 3, 11])


@pytest.mark.parametrize(
  ('num_shards', 'error'),
  [(0, ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_bad_number_of_shards_is_refused(num_shards, error):
  with pytest.raises(error, match='`num_shards`'):
    runtime.InProcessContext(num_shards=num_shards)


def _sum_in_process(values, *, num_shards):
  runtime.set_default_context(num_shards=num_shards)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def comp(values):
    return tff.federated_sum(values)

  return comp(list(values))
