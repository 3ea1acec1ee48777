"""Tests of the attacks on releases."""

import numpy as np
import pytest

from tff_clipping.privacy import Relation, audit


def _score(products, **change):
  arguments = dict(
    sampling_prob=1,
    noise_multiplier=2,
    relation=Relation.ADD_OR_REMOVE_ONE,
  )
  return audit.score_releases(np.array(products), **{**arguments, **change})


def test_ratio_of_all_clients_is_linear():
  # log N(x; 1, z^2) / N(x; 0, z^2) = (x - 1/2) / z^2, and of -1: 2 x / z^2.
  products = [[1.0, 0.0], [3.0, -1.0]]
  ratios = _score(products)['all_releases']
  np.testing.assert_allclose(ratios, [3 / 4, -2 / 4])
  ratios = _score(products, relation=Relation.REPLACE_ONE)['all_releases']
  np.testing.assert_allclose(ratios, [8 / 4, -2 / 4])


def test_ratio_of_sampled_clients_is_of_the_mixture():
  (ratio,) = _score([[2.0]], sampling_prob=0.25, noise_multiplier=1)[
    'all_releases'
  ]
  assert ratio == pytest.approx(np.log(0.75 + 0.25 * np.exp(1.5)))


def test_largest_change_is_over_neighbouring_releases():
  scores = _score([[0.0, 5.0], [2.0, 5.0], [-1.0, 5.5]])
  np.testing.assert_array_equal(scores['successive_releases'], [3.0, 0.5])
  assert 'successive_releases' not in _score(np.zeros([1, 3]))


def test_true_positive_rate_is_of_the_scores_above():
  out_scores = np.arange(100.0)  # Above 98 is 1 %.
  in_scores = np.array([98, 98.5, 120, 3])
  rate = audit.measure_true_positive_rate(in_scores, out_scores, 0.01)
  assert rate == pytest.approx(2 / 4)


def test_estimate_is_of_the_means_and_one_deviation():
  # Variances of 2 and 0 are 1 together; the means are 3 apart.
  expected = audit.compute_gaussian_epsilon(3.0, 1e-5)
  for scores in (([1, 3], [5, 5]), ([5, 5], [1, 3])):
    assert audit.estimate_epsilon(*scores, delta=1e-5) == expected


@pytest.mark.parametrize(
  ('noise', 'epsilon', 'tolerance'),
  [
    (4.22, 1.0, 0.7),
    pytest.param(1.54, 3.01, 0.8, marks=pytest.mark.slow),
    pytest.param(0.541, 10.0, 1.2, marks=pytest.mark.slow),
  ],
)
def test_estimates_the_gaussian_mechanism(noise, epsilon, tolerance):
  # As Andrew et al. publish: d = 200,000 and K = 1000 canaries of norm 1; as
  # many are held out. Over seeds, the estimate's standard deviation is 0.17,
  # 0.20 and 0.28: within four of them.
  canaries = audit.Canaries(
    num_canaries=2048, num_parameters=200_000, seed=int(100 * noise)
  )
  rng = np.random.default_rng(0)
  release = noise * rng.normal(size=200_000)
  for mark in canaries.marks[canaries.is_in]:
    release += canaries.direction(mark)
  cosines = canaries.project(release) / np.linalg.norm(release)
  held_out = cosines[~canaries.is_in]
  estimate = audit.estimate_epsilon(
    cosines[canaries.is_in], held_out, delta=1e-6
  )
  assert estimate == pytest.approx(epsilon, abs=tolerance)
  # Held-out canaries fall as random directions do.
  assert held_out.mean() == pytest.approx(0, abs=5e-4)
  assert held_out.std() == pytest.approx(1 / np.sqrt(200_000), rel=0.1)


@pytest.mark.parametrize(
  'in_scores', [[], [1.0], [1.0, np.inf], [1.0, np.nan], [2.0, 2.0]]
)
def test_scores_without_a_normal_have_no_estimate(in_scores):
  assert np.isnan(audit.estimate_epsilon(in_scores, [1.0, 1.0], delta=1e-5))
