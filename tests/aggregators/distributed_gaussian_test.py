"""Tests of `distributed_gaussian_mean_factory`."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import (
  check_is_gaussian,
  first_round,
)
from tff_clipping import aggregators
from tff_clipping.aggregators.noise import integers

_SIZE = 4096
_VECTOR = tff.TensorType(np.float32, [_SIZE])
_ZEROS = np.zeros(_SIZE, np.float32)


_factory = functools.partial(
  aggregators.distributed_gaussian_mean_factory,
  clipping_norm=1.0,
  noise_multiplier=1.0,
  clients_per_round=4,
)


@functools.cache
def _with_bounds(least, largest, **arguments):
  return _factory(
    min_clients_per_round=least, max_clients_per_round=largest, **arguments
  ).create(_VECTOR)


def test_mean_of_clipped_values_in_their_containers():
  value_type = tff.to_type(
    collections.OrderedDict(b=(np.float32, [2]), a=[(np.float64, [])])
  )
  process = _factory(
    noise_multiplier=1e-5, clients_per_round=2, max_clients_per_round=3
  ).create(value_type)
  # (3, 4, 0) becomes (0.6, 0.8, 0), the NaN zero.
  values = [
    collections.OrderedDict(b=np.array([3, 4], 'f4'), a=[np.float64(0)]),
    collections.OrderedDict(b=np.array([0, 0.5], 'f4'), a=[np.float64(0.25)]),
    collections.OrderedDict(b=np.array([0, np.nan], 'f4'), a=[np.float64(1)]),
  ]
  result = first_round(process, values).result
  np.testing.assert_allclose(result['b'], [0.3, 0.65], atol=1e-3)
  assert result['a'][0] == pytest.approx(0.125, abs=1e-3)
  assert result['a'][0].dtype == np.float64


@pytest.mark.parametrize(
  ('num_clients', 'least', 'largest'),
  [
    pytest.param(4, 4, 4, marks=pytest.mark.slow),
    pytest.param(4, 4, 9, marks=pytest.mark.slow),
    pytest.param(6, 4, 9, marks=pytest.mark.slow),
    (9, 4, 9),
    (0, 0, 2),
    (2, 0, 2),
  ],
)
def test_release_has_the_noise_of_the_largest_cohort(
  num_clients, least, largest
):
  output = first_round(_with_bounds(least, largest), [_ZEROS] * num_clients)
  # The shares of the least cohort, or of one client, are z c; rounding and its
  # sensitivity add about 1 %.
  stddev = math.sqrt(largest / max(least, 1))
  assert output.measurements['noise_stddev'] == pytest.approx(stddev, rel=0.011)
  check_is_gaussian(output.result, stddev / 4)


@pytest.mark.slow
def test_variance_does_not_tell_how_many_clients_took_part():
  # The attack: all clients send zeros, and who sees the release estimates their
  # number from its variance. Shares alone would give 2 +- 0.05 and 9 +- 0.2.
  process = _factory(
    clients_per_round=1, min_clients_per_round=2, max_clients_per_round=9
  ).create(_VECTOR)
  state = process.initialize()
  outputs = [process.next(state, [_ZEROS] * cohort) for cohort in [2, 9] * 20]
  estimates = [np.var(each.result, dtype=np.float64) for each in outputs]
  # Six standard errors.
  expected = outputs[0].measurements['noise_stddev'] ** 2
  np.testing.assert_allclose(estimates, expected, rtol=6 * math.sqrt(2 / _SIZE))
  # To order the 40 rounds by chance such that all of the small cohorts come
  # first, or last, has a probability of 1.5e-11.
  small, large = estimates[::2], estimates[1::2]
  assert max(small) > min(large)
  assert max(large) > min(small)


@pytest.mark.parametrize('num_clients', [6, 9])
def test_release_on_few_bits_has_the_noise_that_is_measured(num_clients):
  output = first_round(_with_bounds(4, 9, bits=11), [_ZEROS] * num_clients)
  assert output.measurements['bits_per_client'] == 11 * _SIZE
  stddev = output.measurements['noise_stddev']
  # A coarser grid: Delta is above c, and the noise with it.
  assert stddev == pytest.approx(1.5 * output.measurements['clipping_norm'])
  assert output.measurements['clipping_norm'] > 1.02
  check_is_gaussian(output.result, stddev / 4)


def test_what_wraps_is_a_remainder_of_the_sum():
  grid = integers.Grid(
    scale=1.0, sensitivity=2e4, share_stddev=8.0, modulus=2**14
  )
  value = tf.constant([10_000, 9_000, -10_000, 0], tf.float32)
  keys = tf.constant([[1, 2], [3, 4], [5, 6]], tf.int64)
  total = sum(integers.encode(value, grid, key) for key in keys[:2])
  result = integers.decode(total % grid.modulus, grid, tf.constant(1), keys[2])
  # 20,000 less 16,384, for example. The noise has a deviation of 14.
  expected = [3_616, 1_616, -3_616, 0]
  np.testing.assert_allclose(result, expected, atol=6.5 * 14)


@pytest.mark.parametrize(
  ('bounds', 'cohorts'),
  [
    (dict(min_clients_per_round=2), {1: 'min'}),
    # Cohorts have a fixed size by default.
    ({}, {3: 'min', 5: 'max'}),
  ],
)
def test_cohort_out_of_bounds_is_not_released(bounds, cohorts):
  process = _factory(**bounds).create(tff.TensorType(np.float32, [2]))
  for num_clients, bound in cohorts.items():
    message = f'`{bound}_clients_per_round`: nothing is released'
    with pytest.raises(Exception, match=message):
      first_round(process, [np.zeros(2, np.float32)] * num_clients)
