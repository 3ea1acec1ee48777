"""Tests of tree aggregation."""

import numpy as np
import pytest

from tests.privacy.correlated_noise import brute_force
from tff_clipping.privacy import correlated_noise


def _tree(num_rounds):
  return correlated_noise.TreeStrategy(num_rounds=num_rounds)


def _best_estimates(num_rounds):
  """Returns the rows' weights in the best estimate of each running sum.

  By least squares from the rows that have ended, of shape [num_rounds, rows].
  """
  matrix, ends = brute_force.tree_matrix(num_rounds)
  weights = np.zeros([num_rounds, len(ends)])
  for t in range(1, num_rounds + 1):
    known = matrix[ends <= t][:, :t]
    weights[t - 1, ends <= t] = np.linalg.pinv(known.T) @ np.ones(t)
  np.testing.assert_allclose(
    weights @ matrix, np.tril(np.ones([num_rounds] * 2)), atol=1e-9
  )
  return weights


@pytest.mark.parametrize('num_rounds', [1, 2, 3, 8, 13, 40])
def test_noise_is_distributed_as_in_the_best_estimates(num_rounds):
  strategy = _tree(num_rounds)
  sums = np.cumsum(brute_force.released_noise(strategy), axis=0)
  weights = _best_estimates(num_rounds)
  np.testing.assert_allclose(sums @ sums.T, weights @ weights.T, atol=1e-9)
  np.testing.assert_allclose(
    strategy.compute_prefix_variances(), np.sum(weights**2, axis=1)
  )


@pytest.mark.parametrize(('num_rounds', 'num_slots'), [(1, 1), (7, 3), (8, 4)])
def test_there_is_a_slot_for_each_level(num_rounds, num_slots):
  assert _tree(num_rounds).recurrence.num_slots == num_slots


@pytest.mark.parametrize('num_rounds', [1, 4, 7, 12])
@pytest.mark.parametrize('min_separation', [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize('max_participations', [None, 1, 2, 3])
def test_sensitivity_is_the_largest_of_all_patterns(
  num_rounds, min_separation, max_participations
):
  participation = correlated_noise.Participation(
    min_separation=min_separation, max_participations=max_participations
  )
  matrix, _ = brute_force.tree_matrix(num_rounds)
  expected = brute_force.sensitivity(matrix, participation)
  found = _tree(num_rounds).compute_sensitivity(participation)
  assert found == pytest.approx(expected, rel=1e-12)


def test_first_rounds_are_a_tree_of_their_own():
  participation = correlated_noise.Participation(min_separation=3)
  assert _tree(100).compute_sensitivity(participation, 21) == _tree(
    21
  ).compute_sensitivity(participation)


def test_published_zcdp_of_a_production_model():
  # google-research/federated, dp_ftrl/blogpost_supplemental_privacy_accounting:
  # z = 7, T = 2000, 6 participations with 313 rounds between two of them.
  participation = correlated_noise.Participation(
    min_separation=314, max_participations=6
  )
  sensitivity = _tree(2000).compute_sensitivity(participation)
  assert round((sensitivity / 7) ** 2 / 2, 2) == 0.81
