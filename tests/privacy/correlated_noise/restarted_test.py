"""Tests of strategies that begin anew."""

import numpy as np
import pytest
from scipy import linalg

from tests.privacy.correlated_noise import brute_force
from tff_clipping.privacy import correlated_noise

_BANDED = correlated_noise.BandedStrategy(
  num_rounds=4, coefficients=(1.0, 0.5, 0.25)
)
_INNER = [
  correlated_noise.identity_strategy(num_rounds=4),
  _BANDED,
  correlated_noise.BufferedToeplitzStrategy(
    num_rounds=4, scales=(0.4, 0.2), decays=(0.9, 0.3)
  ),
  correlated_noise.TreeStrategy(num_rounds=4),
  correlated_noise.TreeStrategy(num_rounds=3),
]


def _restarted(inner, times=3):
  return correlated_noise.RestartedStrategy(
    num_rounds=times * inner.num_rounds, inner=inner
  )


def _matrix(times):
  column = _BANDED.compute_coefficients()
  return linalg.block_diag(*[brute_force.toeplitz_matrix(column)] * times)


@pytest.mark.parametrize('inner', _INNER)
def test_instances_have_the_inner_noise_and_share_none(inner):
  found = brute_force.released_noise(_restarted(inner))
  expected = linalg.block_diag(*[brute_force.released_noise(inner)] * 3)
  np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize('inner', _INNER)
def test_prefix_variances_are_those_of_the_running_sums(inner):
  strategy = _restarted(inner)
  sums = np.cumsum(brute_force.released_noise(strategy), axis=0)
  np.testing.assert_allclose(
    strategy.compute_prefix_variances(), np.sum(sums**2, axis=1)
  )


@pytest.mark.parametrize('min_separation', [1, 2, 3, 4, 5])
@pytest.mark.parametrize('max_participations', [None, 1, 2, 4])
def test_sensitivity_is_never_below_that_of_any_pattern(
  min_separation, max_participations
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, max_participations=max_participations
  )
  strategy = _restarted(_BANDED)
  worst = brute_force.sensitivity(_matrix(3), participation)
  found = strategy.compute_sensitivity(participation)
  assert found >= worst * (1 - 1e-12)
  if 4 % min_separation == 0:
    # The worst rounds of each instance are allowed together.
    assert found == pytest.approx(worst, rel=1e-12)


def test_once_in_an_epoch_is_once_in_an_instance():
  participation = correlated_noise.Participation(
    min_separation=1, rounds_per_epoch=4
  )
  strategy = _restarted(_BANDED)
  worst = brute_force.sensitivity(_matrix(3), participation)
  assert strategy.compute_sensitivity(participation) == pytest.approx(worst)
  # Epochs of another length are bounded as if there were none.
  shifted = correlated_noise.Participation(min_separation=1, rounds_per_epoch=6)
  assert strategy.compute_sensitivity(shifted) >= brute_force.sensitivity(
    _matrix(3), shifted
  )


@pytest.mark.parametrize('num_rounds', [1, 4, 6, 8, 11])
def test_first_rounds_end_in_a_part_of_an_instance(num_rounds):
  participation = correlated_noise.Participation(min_separation=4)
  matrix = _matrix(3)[:num_rounds, :num_rounds]
  assert _restarted(_BANDED).compute_sensitivity(
    participation, num_rounds
  ) == pytest.approx(brute_force.sensitivity(matrix, participation))


def test_other_numbers_of_rounds_raise():
  with pytest.raises(
    ValueError, match='must be a multiple of the 4 of `inner`'
  ):
    correlated_noise.RestartedStrategy(num_rounds=6, inner=_BANDED)


def test_inner_of_the_wrong_kind_raises():
  with pytest.raises(TypeError, match='`inner` must be a NoiseStrategy'):
    correlated_noise.RestartedStrategy(num_rounds=6, inner=3)
