"""Tests of `adaptive_dp_mean_factory`."""

import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.aggregators.one_round import rounds, vectors
from tff_clipping import adaptive_noise, aggregators

_VECTOR = tff.TensorType(np.float32, [2])


_factory = functools.partial(
  aggregators.adaptive_dp_mean_factory,
  initial_clipping_norm=1.0,
  noise_multiplier=1.0,
  clients_per_round=100,
)


@pytest.mark.slow
def test_noise_follows_the_clipping_norm():
  process = _factory().create(tff.TensorType(np.float32, [20_000]))
  _, output = rounds(process, [[], []])
  # z' c of the second round.
  multiplier = adaptive_noise.split_noise_multiplier(
    noise_multiplier=1.0, below_count_stddev=5.0
  )
  clipping_norm = output.measurements['clipping_norm']
  assert clipping_norm != 1.0
  stddev = output.measurements['noise_stddev']
  assert stddev == pytest.approx(multiplier * clipping_norm, rel=1e-6)
  # Six standard deviations of the estimate from 20,000 draws.
  assert np.std(output.result) * 100 == pytest.approx(stddev, rel=0.03)


def _noised_bits(process, state, values):
  """Returns the sum of the bits with its noise, from the norm that follows."""
  after = process.next(state, values)
  norms = [
    float(process.next(s, []).measurements['clipping_norm'])
    for s in (state, after.state)
  ]
  # c_{t+1} = c_t exp(-rate (share - quantile)), with the default rate.
  share = 0.5 - math.log(norms[1] / norms[0]) / 0.2
  # The bits are +-1/2, so that none is a share of 1/2.
  return (share - 0.5) * 100


@pytest.mark.slow
def test_noise_on_the_bits_has_its_standard_deviation():
  # Each draw takes two rounds.
  num_draws = 200
  process = _factory(below_count_stddev=3.0).create(_VECTOR)
  state = process.initialize()
  draws = [_noised_bits(process, state, []) for _ in range(num_draws)]
  # Six standard errors of a mean, and of a standard deviation.
  assert abs(np.mean(draws)) < 6 * 3.0 / math.sqrt(num_draws)
  assert abs(np.std(draws) - 3.0) < 6 * 3.0 / math.sqrt(2 * num_draws)


def test_a_client_moves_the_sum_of_the_bits_by_a_half():
  # The noise of a key repeats.
  process = _factory(noise_key=(5, 6)).create(_VECTOR)
  state = process.initialize()
  alone = _noised_bits(process, state, [])
  for norm, bit in ((0.5, 0.5), (2.0, -0.5)):
    values = [np.array([0, norm], np.float32)]
    # `float32` norms near 1 have steps of 1e-7, which are 1e-4 here.
    assert _noised_bits(process, state, values) - alone == pytest.approx(
      bit, abs=1e-3
    )


@pytest.mark.slow
def test_bits_and_values_have_noise_of_their_own():
  process = _factory(noise_key=(5, 6)).create(tff.TensorType(np.float32, []))
  state = process.initialize()
  output = process.next(state, [])
  on_value = output.result * 100 / output.measurements['noise_stddev']
  on_bits = _noised_bits(process, state, []) / 5.0
  assert abs(on_value - on_bits) > 1e-2


def test_norm_follows_the_quantile():
  # Norms 1 ... 100: the quantile of 0.3 is 30. The noise on the bits, 1e-3 of
  # the clients, moves the estimate by a fraction of a percent.
  process = _factory(
    noise_multiplier=1e-2,
    target_quantile=0.3,
    learning_rate=1.0,
    initial_clipping_norm=5.0,
    below_count_stddev=0.1,
  ).create(_VECTOR)
  values = [np.array([0, norm], np.float32) for norm in range(1, 101)]
  *_, output = rounds(process, [values] * 25)
  assert output.measurements['clipping_norm'] == pytest.approx(30, rel=0.1)


def test_nonfinite_updates_and_empty_cohorts_are_harmless():
  process = _factory().create(_VECTOR)
  for output in rounds(process, [[], vectors([np.nan, 1])]):
    assert np.all(np.isfinite(output.result))
    assert np.isfinite(output.measurements['clipping_norm'])
