"""Tests of the canaries' directions and coins."""

import numpy as np
import pytest

from tff_clipping.privacy import Relation, audit


def _canaries(**kwargs):
  return audit.Canaries(
    **{**dict(num_canaries=50, num_parameters=1000, seed=3), **kwargs}
  )


def _matrix(canaries):
  return np.stack(
    [canaries.direction(i + 1) for i in range(canaries.num_canaries)]
  )


@pytest.mark.parametrize(
  ('num_parameters', 'largest'),
  # Of 1000 signs, 32 at most are beyond the last full period of 64.
  [(1024, 1e-6), (1000, 0.0321)],
)
def test_directions_are_orthogonal_signs(num_parameters, largest):
  directions = _matrix(_canaries(num_parameters=num_parameters))
  np.testing.assert_allclose(
    np.abs(directions), num_parameters**-0.5, rtol=1e-6
  )
  products = directions @ directions.T - np.eye(50)
  assert np.abs(products).max() <= largest


def test_another_seed_has_unrelated_directions():
  products = _matrix(_canaries(seed=3)) @ _matrix(_canaries(seed=4)).T
  # Products of random directions have a deviation of 1000^-0.5 = 0.032.
  assert np.abs(products).max() < 0.2
  assert np.std(products) == pytest.approx(0.032, rel=0.5)


def test_project_is_the_matrix_of_directions_times_the_update():
  canaries = _canaries()
  update = np.random.default_rng(0).normal(size=1000)
  expected = _matrix(canaries) @ update
  np.testing.assert_allclose(canaries.project(update), expected, atol=1e-6)
  leaves = [update[:600].reshape(20, 30), update[600:]]
  np.testing.assert_allclose(canaries.project(leaves), expected, atol=1e-6)


def test_about_half_are_in_and_by_the_seed():
  canaries = _canaries(num_canaries=512)
  # Six standard deviations.
  assert abs(canaries.is_in.sum() - 256) < 68
  np.testing.assert_array_equal(
    canaries.is_in, _canaries(num_canaries=512).is_in
  )
  assert np.any(canaries.is_in != _canaries(num_canaries=512, seed=4).is_in)


@pytest.mark.parametrize(
  'relation', [Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT]
)
def test_held_out_canary_is_absent_or_pulls_the_other_way(relation):
  absent = _canaries(relation=relation)
  opposite = _canaries(relation=Relation.REPLACE_ONE)
  numbers = np.arange(1, 51)
  np.testing.assert_array_equal(absent.marks, numbers * absent.is_in)
  np.testing.assert_array_equal(
    opposite.marks, np.where(opposite.is_in, numbers, -numbers)
  )
  np.testing.assert_array_equal(opposite.direction(-7), -opposite.direction(7))
  np.testing.assert_array_equal(absent.direction(0), np.zeros(1000))


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda: _canaries(num_canaries=1), '`num_canaries` must be at least 2'),
    (lambda: _canaries(num_canaries=513), '`num_canaries` must be at most 512'),
    (lambda: _canaries(seed=-1), '`seed` must be at least 0'),
    (lambda: _canaries(relation='x'), '`relation` must be a Relation'),
    (lambda: _canaries().project(np.zeros(999)), '`update` must have 1000'),
    (lambda: _canaries().direction(51), '`mark` must be at most 50, found 51'),
  ],
)
def test_wrong_arguments_raise(call, message):
  with pytest.raises((TypeError, ValueError), match=message):
    call()
