"""Tests of the one-shot estimate."""

import math

import numpy as np
import pytest

from tff_clipping.privacy import audit
from tff_clipping.privacy.audit import one_shot
from tff_clipping.privacy.audit.one_shot import Normal

# Andrew et al. (arXiv 2302.03098), Section 3: noise on the sum of 1000 canaries
# of norm 1, delta = 1e-6, and the analytic epsilon.
_PUBLISHED = [(4.22, 1.0), (1.54, 3.01), (0.541, 10.0)]


@pytest.mark.parametrize('mu', [0.1, 1.0, 3.0])
def test_equal_deviations_are_the_gaussian_mechanism(mu):
  estimate = one_shot.estimate_epsilon(
    Normal(5 + 2 * mu, 2), Normal(5, 2), delta=1e-5
  )
  assert estimate == pytest.approx(audit.compute_gaussian_epsilon(mu, 1e-5))


@pytest.mark.parametrize('stddev', [0.5, 1.25, 2.0])
def test_unequal_deviations_are_integrated(stddev):
  taken, held_out = Normal(1.0, stddev), Normal(0.0, 1.0)
  epsilon = one_shot.estimate_epsilon(taken, held_out, delta=1e-3)
  x = np.linspace(-20, 20, 400_001)

  def density(normal):
    return np.exp(-0.5 * ((x - normal.mean) / normal.stddev) ** 2) / (
      normal.stddev * math.sqrt(2 * math.pi)
    )

  deltas = [
    np.sum(np.maximum(p - np.exp(epsilon) * q, 0)) * (x[1] - x[0])
    for p, q in (
      (density(taken), density(held_out)),
      (density(held_out), density(taken)),
    )
  ]
  assert max(deltas) == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize(('noise', 'epsilon'), _PUBLISHED)
def test_published_noise_has_its_analytic_epsilon(noise, epsilon):
  found = audit.compute_gaussian_epsilon(1 / noise, 1e-6)
  assert found == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(
  ('noise', 'epsilon'),
  [
    _PUBLISHED[0],
    *(pytest.param(*each, marks=pytest.mark.slow) for each in _PUBLISHED[1:]),
  ],
)
def test_estimates_the_gaussian_mechanism(noise, epsilon):
  # As published: d = 200,000 and K = 1000 canaries; as many are held out. Over
  # seeds, the estimate's standard deviation is 0.17, 0.20 and 0.28: within four
  # of them.
  canaries = audit.Canaries(
    num_canaries=2048, num_parameters=200_000, seed=int(100 * noise)
  )
  rng = np.random.default_rng(0)
  release = noise * rng.normal(size=200_000)
  for mark in canaries.marks[canaries.is_in]:
    release += canaries.direction(mark)
  cosines = canaries.project(release) / np.linalg.norm(release)
  pair = one_shot.fit_pair(cosines[canaries.is_in], cosines[~canaries.is_in])
  estimate = one_shot.estimate_epsilon(*pair, delta=1e-6)
  tolerance = {4.22: 0.7, 1.54: 0.8, 0.541: 1.2}[noise]
  assert estimate == pytest.approx(epsilon, abs=tolerance)
  # Held-out canaries fall as random directions do.
  assert pair[1].mean == pytest.approx(0, abs=5e-4)
  null = one_shot.random_cosine(200_000)
  assert pair[1].stddev == pytest.approx(null.stddev, rel=0.1)


def test_no_spread_at_all():
  point = Normal(1.0, 0.0)
  assert one_shot.estimate_epsilon(point, point, delta=1e-5) == 0
  other = Normal(2.0, 0.0)
  assert one_shot.estimate_epsilon(point, other, delta=1e-5) == 600


def test_fit_is_mean_and_deviation():
  assert one_shot.fit_normal([1.0, 3.0]) == Normal(2.0, math.sqrt(2))


def test_pair_has_one_deviation():
  taken, held_out = one_shot.fit_pair([1.0, 3.0], [5.0, 5.0])
  assert taken == Normal(2.0, 1.0)
  assert held_out == Normal(5.0, 1.0)


@pytest.mark.parametrize('scores', [[], [1.0], [1.0, np.inf], [[1.0, 2.0]]])
def test_wrong_scores_raise(scores):
  with pytest.raises(ValueError, match='at least two finite numbers'):
    one_shot.fit_normal(scores)
