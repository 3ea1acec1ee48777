"""Tests of buffered linear Toeplitz strategies."""

import numpy as np
import pytest

from tests.privacy.correlated_noise import brute_force
from tff_clipping.privacy import correlated_noise


def _blt(scales=(0.3, 0.2, 0.1), decays=(0.95, 0.5, 0.0), num_rounds=11):
  return correlated_noise.BufferedToeplitzStrategy(
    num_rounds=num_rounds, scales=scales, decays=decays
  )


def _matrix(strategy):
  return brute_force.toeplitz_matrix(strategy.compute_coefficients())


def test_coefficients_are_sums_of_geometric_sequences():
  found = _blt(scales=(0.25, 0.5), decays=(0.5, 0.0), num_rounds=5)
  np.testing.assert_allclose(
    found.compute_coefficients(), [1, 0.75, 0.125, 0.0625, 0.03125]
  )


@pytest.mark.parametrize(
  ('scales', 'decays'),
  [((), ()), ((0.4,), (0.9,)), ((0.3, 0.2, 0.1), (0.95, 0.5, 0.0))],
)
def test_noise_is_the_inverse_times_the_draws(scales, decays):
  strategy = _blt(scales, decays)
  inverse = np.linalg.inv(_matrix(strategy))
  np.testing.assert_allclose(
    brute_force.released_noise(strategy), inverse, atol=1e-12
  )
  np.testing.assert_allclose(
    strategy.compute_inverse_coefficients(), inverse[:, 0], atol=1e-12
  )
  assert strategy.recurrence.num_slots == len(scales)


def test_noise_in_float32_is_that_of_the_strategy():
  # As a number of `float32` this decay would be 1, and the sensitivity of a
  # million rounds larger by a hundredth.
  strategy = _blt(scales=(0.3, 0.2), decays=(1 - 2.9e-8, 0.9))
  assert all(decay < 1 for decay in strategy.decays)
  for weights in (
    strategy.recurrence.keep_weights,
    strategy.recurrence.read_weights,
  ):
    assert np.array_equal(weights.astype(np.float32), weights)
  assert strategy.scales[0] <= 0.3
  assert _blt(scales=strategy.scales, decays=strategy.decays) == strategy


def test_inverse_is_accurate_for_buffers_that_hardly_decay():
  # The product of a long column and its inverse is the identity.
  strategy = _blt(
    scales=(0.19, 0.012, 0.001),
    decays=(0.98, 0.9999, 0.999999),
    num_rounds=20_000,
  )
  product = np.convolve(
    strategy.compute_coefficients(), strategy.compute_inverse_coefficients()
  )[:20_000]
  np.testing.assert_allclose(product, np.eye(1, 20_000)[0], atol=1e-12)


@pytest.mark.parametrize('min_separation', [1, 3, 4, 11])
@pytest.mark.parametrize('max_participations', [None, 2])
def test_sensitivity_is_the_largest_of_all_patterns(
  min_separation, max_participations
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, max_participations=max_participations
  )
  strategy = _blt()
  expected = brute_force.sensitivity(_matrix(strategy), participation)
  found = strategy.compute_sensitivity(participation)
  assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
  ('scales', 'decays', 'message'),
  [
    ((0.6, 0.6), (0.5, 0.4), '`scales` must be at most 1 together'),
    ((-0.1,), (0.5,), '`scales` must not be negative'),
    ((0.1,), (-0.5,), '`decays` must not be negative'),
    ((0.1,), (1.0,), '`decays` must be below 1'),
    ((0.1,), (0.5, 0.4), '`scales` must be as many as `decays`'),
  ],
)
def test_bad_buffers_raise(scales, decays, message):
  with pytest.raises(ValueError, match=message):
    _blt(scales, decays)


def test_buffers_of_the_wrong_kind_raise():
  with pytest.raises(TypeError, match='`scales` must be a tuple of numbers'):
    _blt(scales=0.1)
