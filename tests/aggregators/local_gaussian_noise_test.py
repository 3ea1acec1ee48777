"""Tests of `local_gaussian_noise_factory`."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.aggregators.one_round import KS_LIMIT, ks_statistic
from tff_clipping import aggregators

_SIZE = 10_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])


def _factory(noise_stddev, least, largest, inner=None):
  return aggregators.local_gaussian_noise_factory(
    noise_stddev,
    inner,
    min_clients_per_round=least,
    max_clients_per_round=largest,
  )


@functools.cache
def _process(noise_stddev, least, largest):
  return _factory(noise_stddev, least, largest).create(_VECTOR)


def _noise(process, num_clients):
  values = [np.zeros(_SIZE, np.float32)] * num_clients
  return process.next(process.initialize(), values).result


@pytest.mark.parametrize(
  ('num_clients', 'least', 'largest'),
  [
    (2, 2, 9),
    (5, 2, 9),
    (9, 2, 9),
    (0, 0, 3),
    pytest.param(4, 4, 4, marks=pytest.mark.slow),
    pytest.param(1, 1, 1, marks=pytest.mark.slow),
  ],
)
def test_release_has_the_noise_of_the_largest_cohort(
  num_clients, least, largest
):
  noise = _noise(_process(0.5, least, largest), num_clients)
  stddev = 0.5 * math.sqrt(largest)
  assert ks_statistic(noise, stddev) < KS_LIMIT
  assert ks_statistic(noise, stddev / 1.5) > KS_LIMIT
  assert ks_statistic(noise, stddev * 1.5) > KS_LIMIT


@pytest.mark.slow
def test_variance_does_not_tell_how_many_clients_took_part():
  # The attack: all clients send zeros, and who sees the release estimates their
  # number from its variance. Shares alone would give 2 +- 0.03 and 16 +- 0.2.
  process = _factory(1.0, 2, 16).create(_VECTOR)
  state = process.initialize()
  cohorts = [2, 16] * 20
  estimates = [
    np.var(
      process.next(state, [np.zeros(_SIZE, np.float32)] * cohort).result,
      dtype=np.float64,
    )
    for cohort in cohorts
  ]
  # Six standard errors.
  np.testing.assert_allclose(estimates, 16, rtol=6 * math.sqrt(2 / _SIZE))
  # To order the 40 rounds by chance such that all of the small cohorts come
  # first, or last, has a probability of 1.5e-11.
  small, large = estimates[::2], estimates[1::2]
  assert max(small) > min(large)
  assert max(large) > min(small)


@pytest.mark.parametrize(
  ('num_clients', 'bound'),
  [
    (0, 'min_clients_per_round'),
    (1, 'min_clients_per_round'),
    (5, 'max_clients_per_round'),
  ],
)
def test_cohort_out_of_bounds_is_not_released(num_clients, bound):
  process = _factory(1.0, 2, 4).create(tff.TensorType(np.float32, [2]))
  values = [np.zeros(2, np.float32)] * num_clients
  with pytest.raises(Exception, match=f'`{bound}`: nothing is released'):
    process.next(process.initialize(), values)


def test_release_of_a_full_cohort_is_not_on_the_grid_of_a_secure_sum():
  # Integers times a step would tell that the server had no share to add.
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5)
  process = _factory(0.5, 2, 4, inner).create(
    tff.TensorType(np.float64, [_SIZE])
  )
  output = process.next(process.initialize(), [np.zeros(_SIZE)] * 4)
  steps = output.result / (5.0 / (2**31 - 1 - 2**10))
  is_integer = np.abs(steps - np.round(steps)) < 0.01
  # One of 50 by chance, with a standard deviation of 0.0014.
  assert np.mean(is_integer) == pytest.approx(0.02, abs=0.01)


def test_rounds_and_tensors_have_noise_of_their_own():
  value_type = tff.to_type(
    collections.OrderedDict(b=(np.float32, [_SIZE]), a=(np.float32, [_SIZE]))
  )
  process = _factory(1.0, 1, 1).create(value_type)
  state = process.initialize()
  zero = collections.OrderedDict(
    b=np.zeros(_SIZE, np.float32), a=np.zeros(_SIZE, np.float32)
  )
  draws = []
  for _ in range(2):
    result = process.next(state, [zero]).result
    draws.extend([result['a'], result['b']])
  # The correlation of independent draws has a standard deviation of 0.01.
  assert np.max(np.abs(np.corrcoef(draws) - np.eye(4))) < 0.07


def test_values_are_summed_with_the_noise():
  process = _factory(1e-5, 2, 4).create(tff.TensorType(np.float32, [2]))
  values = [np.array(v, np.float32) for v in ([1, 2], [3, 6])]
  output = process.next(process.initialize(), values)
  # Ten standard deviations.
  np.testing.assert_allclose(output.result, [4, 8], atol=2e-4)
  assert output.measurements['share_noise_stddev'] == np.float32(1e-5)


def test_secure_sum_of_noised_values_is_in_bounds():
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5)
  factory = aggregators.difference_clipping_factory(
    1.0, _factory(0.5, 4, 4, inner)
  )
  process = factory.create(_VECTOR)
  values = [np.zeros(_SIZE, np.float32)] * 4
  output = process.next(process.initialize(), values)
  assert ks_statistic(output.result, 1.0) < KS_LIMIT


def test_secure_sum_without_room_for_the_noise_is_refused():
  with pytest.raises(ValueError, match='must leave room for the noise'):
    _factory(0.5, 4, 4, aggregators.secure_sum_factory(1.0))


def test_secure_sum_with_room_for_less_noise_is_refused():
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.49)
  with pytest.raises(ValueError, match='0.49, where `noise_stddev` is 0.5'):
    _factory(0.5, 4, 4, inner)


@pytest.mark.parametrize(
  ('least', 'largest', 'message'),
  [
    (-1, 4, '`min_clients_per_round` must be at least 0, found -1'),
    (0, 0, '`max_clients_per_round` must be at least 1, found 0'),
    (5, 4, 'must be at most `max_clients_per_round`, found 5 and 4'),
  ],
)
def test_bounds_out_of_range_raise(least, largest, message):
  with pytest.raises(ValueError, match=message):
    _factory(1.0, least, largest)


@pytest.mark.parametrize('bound', [1.0, True, None])
def test_bounds_of_the_wrong_kind_raise(bound):
  with pytest.raises(TypeError, match='`min_clients_per_round` must be'):
    _factory(1.0, bound, 4)
  with pytest.raises(TypeError, match='`max_clients_per_round` must be'):
    _factory(1.0, 1, bound)


def test_shares_without_bounds_are_refused():
  with pytest.raises(TypeError, match='max_clients_per_round'):
    aggregators.local_gaussian_noise_factory(1.0, min_clients_per_round=1)


@pytest.mark.parametrize(
  ('stddev', 'rule'), [(0.0, 'positive'), (1e38, r'at most 1e\+37')]
)
def test_a_stddev_out_of_range_raises(stddev, rule):
  with pytest.raises(ValueError, match=f'`noise_stddev` must be {rule}'):
    _factory(stddev, 1, 1)
