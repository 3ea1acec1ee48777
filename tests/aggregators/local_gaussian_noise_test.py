"""Tests of `local_gaussian_noise_factory`."""

import collections
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators

_SIZE = 10_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])

# P(sqrt(n) D > 2.9) is 1e-7 for the distribution that is claimed; with a
# standard deviation off by a factor of 1.5 either way, sqrt(n) D is 9 for n =
# 10,000.
_KS_LIMIT = 2.9


def _ks_statistic(samples, stddev):
  """Returns sqrt(n) times the Kolmogorov-Smirnov distance to N(0, stddev^2)."""
  samples = np.sort(np.ravel(samples)) / stddev
  cdf = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in samples])
  n = len(samples)
  above = np.max(np.arange(1, n + 1) / n - cdf)
  below = np.max(cdf - np.arange(n) / n)
  return math.sqrt(n) * max(above, below)


def _noise(factory, num_clients):
  process = factory.create(_VECTOR)
  values = [np.zeros(_SIZE, np.float32)] * num_clients
  return process.next(process.initialize(), values).result


@pytest.mark.parametrize(
  ('num_clients', 'min_clients', 'shares'),
  [(4, 4, 4), (9, 4, 9), (1, 1, 1), (2, 6, 6), (0, 3, 3), (0, 1, 1)],
)
def test_sum_has_at_least_the_shares_of_the_least_cohort(
  num_clients, min_clients, shares
):
  factory = aggregators.local_gaussian_noise_factory(
    0.5, min_clients_per_round=min_clients
  )
  noise = _noise(factory, num_clients)
  stddev = 0.5 * math.sqrt(shares)
  assert _ks_statistic(noise, stddev) < _KS_LIMIT
  assert _ks_statistic(noise, stddev / 1.5) > _KS_LIMIT
  assert _ks_statistic(noise, stddev * 1.5) > _KS_LIMIT


def test_noise_at_clients_and_at_the_server_have_one_distribution():
  clip, num_clients, multiplier = 2.0, 5, 1.5
  local = aggregators.local_gaussian_noise_factory(
    multiplier * clip / math.sqrt(num_clients),
    min_clients_per_round=num_clients,
  )
  server = aggregators.gaussian_noise_factory(multiplier * clip)
  left, right = np.sort(_noise(local, num_clients)), np.sort(_noise(server, 1))
  grid = np.concatenate([left, right])
  distance = np.max(
    np.abs(
      np.searchsorted(left, grid, side='right')
      - np.searchsorted(right, grid, side='right')
    )
    / _SIZE
  )
  # The two-sample statistic exceeds 2.9 with a probability of 1e-7.
  assert math.sqrt(_SIZE / 2) * distance < _KS_LIMIT


def test_clients_have_noise_of_their_own():
  # Equal shares would add up to n sigma, not sqrt(n) sigma.
  noise = _noise(aggregators.local_gaussian_noise_factory(1.0), 16)
  assert _ks_statistic(noise, 4.0) < _KS_LIMIT


def test_rounds_and_tensors_have_noise_of_their_own():
  value_type = tff.to_type(
    collections.OrderedDict(b=(np.float32, [_SIZE]), a=(np.float32, [_SIZE]))
  )
  process = aggregators.local_gaussian_noise_factory(1.0).create(value_type)
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
  process = aggregators.local_gaussian_noise_factory(
    1e-5, min_clients_per_round=4
  ).create(tff.TensorType(np.float32, [2]))
  values = [np.array(v, np.float32) for v in ([1, 2], [3, 6])]
  output = process.next(process.initialize(), values)
  # Ten standard deviations.
  np.testing.assert_allclose(output.result, [4, 8], atol=2e-4)
  assert output.measurements['noise_stddev'] == np.float32(1e-5)


def test_secure_sum_of_noised_values_is_in_bounds():
  inner = aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5)
  factory = aggregators.difference_clipping_factory(
    1.0, aggregators.local_gaussian_noise_factory(0.5, inner)
  )
  process = factory.create(_VECTOR)
  values = [np.zeros(_SIZE, np.float32)] * 4
  output = process.next(process.initialize(), values)
  assert _ks_statistic(output.result, 1.0) < _KS_LIMIT


@pytest.mark.parametrize('least', [0, -1])
def test_least_cohort_out_of_range_raises(least):
  with pytest.raises(ValueError, match='`min_clients_per_round` must be'):
    aggregators.local_gaussian_noise_factory(1.0, min_clients_per_round=least)


@pytest.mark.parametrize('least', [1.0, True, None])
def test_least_cohort_of_the_wrong_kind_raises(least):
  with pytest.raises(TypeError, match='`min_clients_per_round` must be'):
    aggregators.local_gaussian_noise_factory(1.0, min_clients_per_round=least)


def test_zero_stddev_raises():
  with pytest.raises(ValueError, match='`noise_stddev` must be positive'):
    aggregators.local_gaussian_noise_factory(0.0)


def test_weighted_inner_factory_is_refused_with_a_reason():
  with pytest.raises(TypeError, match='how much one client can move'):
    aggregators.local_gaussian_noise_factory(1.0, tff.aggregators.MeanFactory())
