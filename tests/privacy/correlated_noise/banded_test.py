"""Tests of banded Toeplitz strategies, the identity among them."""

import math

import numpy as np
import pytest

from tests.privacy.correlated_noise import brute_force
from tff_clipping.privacy import correlated_noise

_FALLING = (1.0, 0.5, 0.3, 0.25)
_ANY_SIGN = (1.0, -0.7, 0.9)


def _banded(coefficients, num_rounds=9):
  return correlated_noise.BandedStrategy(
    num_rounds=num_rounds, coefficients=coefficients
  )


def _matrix(strategy):
  return brute_force.toeplitz_matrix(strategy.compute_coefficients())


@pytest.mark.parametrize('coefficients', [(1.0,), (1.0, 0.5), _FALLING])
def test_noise_is_the_inverse_times_the_draws(coefficients):
  strategy = _banded(coefficients)
  inverse = np.linalg.inv(_matrix(strategy))
  np.testing.assert_allclose(
    brute_force.released_noise(strategy), inverse, atol=1e-12
  )
  np.testing.assert_allclose(
    strategy.compute_inverse_coefficients(), inverse[:, 0], atol=1e-12
  )
  assert strategy.recurrence.num_slots == len(coefficients) - 1


def test_prefix_variances_are_those_of_the_running_sums():
  strategy = _banded(_FALLING)
  sums = np.cumsum(np.linalg.inv(_matrix(strategy)), axis=0)
  variances = np.sum(sums**2, axis=1)
  np.testing.assert_allclose(strategy.compute_prefix_variances(), variances)


@pytest.mark.parametrize('min_separation', [1, 2, 3, 5, 9, 12])
@pytest.mark.parametrize('max_participations', [None, 1, 2])
def test_sensitivity_is_the_largest_of_all_patterns(
  min_separation, max_participations
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, max_participations=max_participations
  )
  strategy = _banded(_FALLING)
  for num_rounds in (1, 4, 9):
    expected = brute_force.sensitivity(
      _matrix(strategy)[:num_rounds, :num_rounds], participation
    )
    found = strategy.compute_sensitivity(participation, num_rounds)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('min_separation', [3, 4])
def test_bands_within_the_separation_may_have_any_sign(min_separation):
  participation = correlated_noise.Participation(min_separation=min_separation)
  strategy = _banded(_ANY_SIGN)
  expected = brute_force.sensitivity(
    _matrix(strategy), participation, with_signs=True
  )
  found = strategy.compute_sensitivity(participation)
  assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
  ('coefficients', 'separation', 'num_rounds'),
  [
    (_ANY_SIGN, 2, 9),
    ((1.0, 0.2, 0.3), 2, 9),
    # As long as the rounds are no more than the bands, all of them fall.
    (_ANY_SIGN, 1, 2),
    ((1.0, -0.5), 1, 2),
  ],
)
def test_unknown_sensitivity_is_refused(coefficients, separation, num_rounds):
  participation = correlated_noise.Participation(min_separation=separation)
  message = f'within `min_separation` = {separation} rounds'
  with pytest.raises(ValueError, match=message):
    _banded(coefficients).compute_sensitivity(participation, num_rounds)


def test_refused_sensitivity_would_be_wrong():
  # Where the coefficients change sign, the rounds 1, b + 1, ... with equal
  # contributions are not the worst.
  strategy = _banded(_ANY_SIGN)
  participation = correlated_noise.Participation(min_separation=1)
  matrix = _matrix(strategy)
  worst = brute_force.sensitivity(matrix, participation, with_signs=True)
  assert worst > np.linalg.norm(np.sum(matrix, axis=1)) * 1.1


def test_identity_is_independent_noise():
  strategy = correlated_noise.identity_strategy(num_rounds=100)
  np.testing.assert_array_equal(
    strategy.compute_inverse_coefficients(), np.eye(100)[0]
  )
  assert strategy.recurrence.num_slots == 0
  assert strategy.compute_prefix_variances()[-1] == 100.0
  participation = correlated_noise.Participation(min_separation=25)
  assert strategy.compute_sensitivity(participation) == 2.0


@pytest.mark.parametrize(
  ('coefficients', 'error', 'message'),
  [
    ((), ValueError, 'must be from 1 to 9 numbers, found 0'),
    ((1.0,) * 10, ValueError, 'must be from 1 to 9 numbers, found 10'),
    ((0.5, 0.1), ValueError, 'must begin with 1, found 0.5'),
    ((1.0, math.nan), ValueError, '`coefficients` must be finite'),
    ((1.0, 'a'), TypeError, '`coefficients` must be a number'),
    (1.0, TypeError, '`coefficients` must be a tuple of numbers'),
  ],
)
def test_bad_coefficients_raise(coefficients, error, message):
  with pytest.raises(error, match=message):
    _banded(coefficients)


@pytest.mark.parametrize('num_rounds', [0, 10])
def test_released_rounds_out_of_range_raise(num_rounds):
  participation = correlated_noise.Participation(min_separation=9)
  with pytest.raises(ValueError, match='`num_rounds` must be at'):
    _banded(_FALLING).compute_sensitivity(participation, num_rounds)
