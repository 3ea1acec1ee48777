"""Tests of strategies and participations: noise, sensitivity, files."""

import json
import math

import numpy as np
import pytest

from tests import noise_strategies
from tests.privacy.correlated_noise import brute_force
from tff_clipping import gone
from tff_clipping.privacy import correlated_noise

_ANY_SIGN = (1.0, -0.7, 0.9)


def _banded(coefficients, num_rounds=9):
  return correlated_noise.BandedStrategy(
    num_rounds=num_rounds, coefficients=coefficients
  )


def _blt(scales=(0.3, 0.2, 0.1), decays=(0.95, 0.5, 0.0), num_rounds=11):
  return correlated_noise.BufferedToeplitzStrategy(
    num_rounds=num_rounds, scales=scales, decays=decays
  )


def _limited(most, min_separation=9):
  return correlated_noise.Participation(
    min_separation=min_separation, max_participations=most
  )


def _matrix(strategy):
  return brute_force.toeplitz_matrix(strategy.compute_coefficients())


_ONCE = _limited(1)
_FALLING = _banded((1.0, 0.5, 0.3, 0.25))
_SLOTS = [
  (_banded((1.0,)), 0),
  (_banded((1.0, 0.5)), 1),
  (_FALLING, 3),
  (_blt((), ()), 0),
  (_blt((0.4,), (0.9,)), 1),
  (_blt(), 3),
]


@pytest.mark.parametrize(('strategy', 'num_slots'), _SLOTS)
def test_noise_is_the_inverse_times_the_draws(strategy, num_slots):
  inverse = np.linalg.inv(_matrix(strategy))
  found = noise_strategies.inverse_matrix(strategy.recurrence)
  np.testing.assert_allclose(found, inverse, atol=1e-12)
  np.testing.assert_allclose(
    strategy.compute_inverse_coefficients(), inverse[:, 0], atol=1e-12
  )
  assert strategy.recurrence.num_slots == num_slots
  # The running sums'.
  variances = np.sum(np.cumsum(inverse, axis=0) ** 2, axis=1)
  np.testing.assert_allclose(strategy.compute_prefix_variances(), variances)


def test_coefficients_of_buffers_are_sums_of_geometric_sequences():
  found = _blt(scales=(0.25, 0.5), decays=(0.5, 0.0), num_rounds=5)
  np.testing.assert_allclose(
    found.compute_coefficients(), [1, 0.75, 0.125, 0.0625, 0.03125]
  )


def test_noise_in_float32_is_that_of_the_strategy():
  # As a number of `float32` this decay would be 1, and the sensitivity of a
  # million rounds larger by a hundredth.
  strategy = _blt(scales=(0.3, 0.2), decays=(1 - 2.9e-8, 0.9))
  for weights in (
    strategy.recurrence.keep_weights,
    strategy.recurrence.read_weights,
  ):
    np.testing.assert_array_equal(np.float32(weights), weights)
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


@pytest.mark.parametrize('strategy', [_FALLING, _blt()])
@pytest.mark.parametrize('min_separation', [1, 2, 3, 5, 9, 12])
@pytest.mark.parametrize('max_participations', [None, 1, 2])
def test_sensitivity_is_the_largest_of_all_patterns(
  strategy, min_separation, max_participations
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, max_participations=max_participations
  )
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
  participation = correlated_noise.Participation(min_separation=1)
  matrix = _matrix(_banded(_ANY_SIGN))
  worst = brute_force.sensitivity(matrix, participation, with_signs=True)
  assert worst > np.linalg.norm(np.sum(matrix, axis=1)) * 1.1


@pytest.mark.parametrize(
  ('build', 'message'),
  [
    (lambda: _banded(()), 'must be from 1 to 9 numbers, found 0'),
    (lambda: _banded((1.0,) * 10), 'must be from 1 to 9 numbers, found 10'),
    (lambda: _banded((0.5, 0.1)), 'must begin with 1, found 0.5'),
    (lambda: _banded((1.0, math.nan)), '`coefficients` must be finite'),
    (lambda: _banded(1.0), '`coefficients` must be a tuple of numbers'),
    (lambda: _blt((0.6, 0.6), (0.5, 0.4)), '`scales` must be at most 1 togeth'),
    (lambda: _blt((-0.1,), (0.5,)), '`scales` must not be negative'),
    (lambda: _blt((0.1,), (-0.5,)), '`decays` must not be negative'),
    (lambda: _blt((0.1,), (1.0,)), '`decays` must be below 1'),
    (lambda: _blt((0.1,), (0.5, 0.4)), '`scales` must be as many as `decays`'),
    (lambda: _blt(0.1), '`scales` must be a tuple of numbers'),
    (lambda: _FALLING.compute_sensitivity(_ONCE, 10), 'must be at most 9'),
    (lambda: _limited(1, min_separation=0), '`min_separation` must be at le'),
    (lambda: _limited(0), '`max_participations` must be at least 1, found 0'),
    (lambda: _limited(1.5), '`max_participations` must be an integer'),
  ],
)
def test_what_is_no_strategy_is_refused(build, message):
  with pytest.raises((TypeError, ValueError), match=message):
    build()


@pytest.mark.parametrize('strategy', [_FALLING, _blt((1 / 3,), (0.9,))])
def test_strategies_are_read_as_they_were_written(strategy):
  value = json.loads(json.dumps(strategy.to_json()))
  assert correlated_noise.strategy_from_json(value) == strategy
  for changed in ({**value, 'other': 1}, {'kind': value['kind']}):
    with pytest.raises(ValueError, match='`value` must hold'):
      correlated_noise.strategy_from_json(changed)


@pytest.mark.parametrize(
  ('value', 'message'),
  [
    ({'kind': 'dense'}, '`kind` must be one of'),
    (3, '`value` must be a mapping'),
    ({'kind': 'tree'}, "`kind` 'tree' .* went in 0.3.0"),
    ({'kind': 'restarted'}, "'restarted' .* went in 0.3.0"),
  ],
)
def test_files_of_no_strategy_are_refused(value, message):
  with pytest.raises((TypeError, ValueError), match=message) as caught:
    correlated_noise.strategy_from_json(value)
  assert isinstance(caught.value, gone.GoneError) == ('went' in message)


@pytest.mark.parametrize('num_rounds', [1, 5, 8])
@pytest.mark.parametrize('min_separation', [1, 2, 3, 9])
@pytest.mark.parametrize('limits', [{}, {'max_participations': 2}])
def test_count_is_the_most_rounds_of_any_pattern(
  num_rounds, min_separation, limits
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, **limits
  )
  patterns = brute_force.patterns(num_rounds, participation)
  assert participation.count(num_rounds) == max(map(len, patterns))
