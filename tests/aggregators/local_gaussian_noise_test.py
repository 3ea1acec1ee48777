"""Tests of `local_gaussian_noise_factory`."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import check_is_gaussian, first_round, run
from tff_clipping import aggregators

_SIZE = 10_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])
_ZEROS = np.zeros(_SIZE, np.float32)


def _factory(noise_stddev, clients_per_round, inner=None):
  return aggregators.local_gaussian_noise_factory(
    noise_stddev, inner, clients_per_round=clients_per_round
  )


@functools.cache
def _process(num_clients):
  return _factory(1.5, num_clients).create(_VECTOR)


@pytest.mark.parametrize('num_clients', [1, 5])
def test_release_has_the_noise_of_all_shares(num_clients):
  output = first_round(_process(num_clients), [_ZEROS] * num_clients)
  check_is_gaussian(output.result, 1.5)
  share = np.float32(1.5 / math.sqrt(num_clients))
  assert output.measurements['noise_stddev'] == np.float32(1.5)
  assert output.measurements['share_noise_stddev'] == share


def test_each_client_adds_its_share():
  # Behind a sum that keeps what it is given apart.
  squares = aggregators.transformed_factory(
    tff.aggregators.SumFactory(), before=tf.square
  )
  found = run(_factory(2.0, 4, squares), [_ZEROS] * 4, _VECTOR).result
  # The squares of four shares of 1: 4 on average, seven standard errors.
  assert np.mean(found) == pytest.approx(4, abs=7 * math.sqrt(8 / _SIZE))


def test_a_cohort_of_another_size_is_not_released():
  for num_clients, bound in ((0, 'min'), (4, 'min'), (6, 'max')):
    message = f'`{bound}_clients_per_round`: nothing is released'
    with pytest.raises(Exception, match=message):
      first_round(_process(5), [_ZEROS] * num_clients)


def test_secure_sum_of_noised_values_is_in_bounds():
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5)
  factory = aggregators.difference_clipping_factory(
    1.0, _factory(1.0, 4, inner)
  )
  output = run(factory, [_ZEROS] * 4, _VECTOR)
  check_is_gaussian(output.result, 1.0)
