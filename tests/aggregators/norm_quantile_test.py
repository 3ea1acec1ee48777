"""Tests of `norm_quantile_factory`."""

import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy

_VECTOR = tff.TensorType(np.float32, [2])
_NO_NOISE = 1e-4


@functools.cache
def _process(noise_multiplier=_NO_NOISE, clients_per_round=100, **settings):
  mean = aggregators.dp_mean_factory(
    clipping_norm=0.5,
    noise_multiplier=noise_multiplier,
    clients_per_round=clients_per_round,
    noise_key=(1, 2),
  )
  return aggregators.norm_quantile_factory(mean, **settings).create(_VECTOR)


def _of_norms(*norms):
  return [np.array([0, norm], np.float32) for norm in norms]


def _estimate(process, values, num_rounds):
  state = process.initialize()
  for _ in range(num_rounds):
    output = process.next(state, values)
    state = output.state
  return float(output.measurements['norm_estimate'])


def test_it_finds_the_quantile_and_changes_nothing():
  process = _process(target_quantile=0.3, initial_norm=10.0)
  values = _of_norms(*range(1, 101))
  # The norms have steps of 3 % there.
  assert _estimate(process, values, 24) == pytest.approx(30, rel=0.1)
  output = process.next(process.initialize(), values)
  np.testing.assert_array_equal(output.result, [0, 0])


@pytest.mark.slow
def test_equal_norms_far_from_the_start_are_found():
  # A share is 0 or 1 there, whatever the step.
  process = _process()
  assert _estimate(process, _of_norms(*[0.02] * 100), 15) == pytest.approx(
    0.02, rel=0.15
  )


def test_two_rounds_are_those_of_the_formula():
  process = _process(clients_per_round=4)
  # Three of four are at most 1, then one of four at most e^-1.
  values = _of_norms(0.2, 0.9, 0.9, 1.1)
  first = process.next(process.initialize(), values)
  assert first.measurements['norm_estimate'] == pytest.approx(
    math.exp(-4 * 0.25), rel=1e-3
  )
  second = process.next(first.state, values)
  # e_3 = e_2 exp(4/2 * 1/4), and weights of 1/5 and 4/5.
  logs = -1, -1 + 0.5
  assert math.log(second.measurements['norm_estimate']) == pytest.approx(
    logs[0] / 5 + 4 * logs[1] / 5, abs=1e-3
  )


@pytest.mark.parametrize('other', [1e-3, 2.0, math.nan, math.inf, 3e19])
def test_a_client_changes_the_sum_of_the_bits_by_a_half(other):
  """Neighbours: the state before a round is the same for both."""
  process = _process(clients_per_round=1)
  state = process.initialize()
  alone = _of_norms(0.5, 0.7, 3.0)
  # The mean is the change of log(norm) in the first round over the step of 4.
  sums = [
    -math.log(process.next(state, values).state['estimate']['asked_norm']) / 4
    for values in (alone, alone + _of_norms(other))
  ]
  assert abs(sums[1] - sums[0]) == pytest.approx(0.5, abs=1e-3)


def test_noise_and_its_unit_are_measured():
  process = _process(noise_multiplier=6.0)
  measured = process.next(process.initialize(), _of_norms(1)).measurements
  assert measured['noise_stddev'] == pytest.approx(3.0)
  assert measured['clipping_norm'] == 0.5
  assert set(measured) == {'norm_estimate', 'noise_stddev', 'clipping_norm'}


@pytest.mark.slow
def test_bits_may_have_the_noise_of_a_strategy():
  mean = aggregators.correlated_dp_mean_factory(
    clipping_norm=0.5,
    noise_multiplier=_NO_NOISE,
    clients_per_round=3,
    strategy=privacy.identity_strategy(num_rounds=8),
  )
  process = aggregators.norm_quantile_factory(mean).create(_VECTOR)
  estimate = _estimate(process, _of_norms(0.5, 1.5, 3.0), 8)
  assert estimate == pytest.approx(1.5, rel=0.5)


def test_bad_arguments_are_refused():
  mean = aggregators.dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=1.0, clients_per_round=3
  )
  with pytest.raises(ValueError, match='`initial_norm` must be positive'):
    aggregators.norm_quantile_factory(mean, initial_norm=0.0)
  with pytest.raises(ValueError, match='`target_quantile` must be'):
    aggregators.norm_quantile_factory(mean, target_quantile=1.0)
  with pytest.raises(ValueError, match='`step` must be positive'):
    aggregators.norm_quantile_factory(mean, step=-1.0)
  with pytest.raises(TypeError, match='`bits_mean_factory` must be'):
    aggregators.norm_quantile_factory(1.0)
