"""Tests of the bounds by Clopper and Pearson's limits."""

import math

import numpy as np
import pytest

from tff_clipping.privacy import audit
from tff_clipping.privacy.audit import thresholds


def test_limits_at_a_given_threshold_are_clopper_and_pearsons():
  # 0 of 10 false at 97.5 %: 1 - 0.025^(1/10) = 0.3085. 5 of 5 found: the mirror
  # image, 0.025^(1/5) = 0.4782.
  bounds = thresholds.bound_rates(
    np.ones(5), np.zeros(10), confidence=0.95, threshold=0.5
  )
  assert bounds.false_positive_rates[0] == pytest.approx(1 - 0.025 ** (1 / 10))
  assert bounds.true_positive_rates[0] == pytest.approx(0.025 ** (1 / 5))


def test_epsilon_at_a_given_threshold():
  fpr, tpr = 1 - 0.025 ** (1 / 10), 0.025 ** (1 / 5)
  bound = thresholds.bound_epsilon(
    np.ones(5), np.zeros(10), delta=0.1, confidence=0.95, threshold=0.5
  )
  expected = max((tpr - 0.1) / fpr, (1 - fpr - 0.1) / (1 - tpr))
  assert bound == pytest.approx(math.log(expected))


def test_bounds_of_rates_fail_as_rarely_as_they_say():
  # In 90 % of the runs all limits hold. 300 runs fail 50 times with a
  # probability of 1e-4, where they fail as often as they may.
  rng = np.random.default_rng(0)
  failed = 0
  for _ in range(300):
    in_scores, out_scores = rng.random(64) ** 0.5, rng.random(64)
    limits = thresholds.bound_rates(in_scores, out_scores, confidence=0.9)
    levels = np.sort(out_scores)[::-1][2 ** np.arange(7) - 1]
    # P[u > t] = 1 - t; P[sqrt(u) > t] = 1 - t^2.
    failed += np.any(limits.false_positive_rates < 1 - levels) or np.any(
      limits.true_positive_rates > 1 - levels**2
    )
  assert failed <= 50


def test_mu_is_near_the_truth_and_below():
  rng = np.random.default_rng(1)
  bound = thresholds.bound_mu(
    rng.normal(2, 1, 5000), rng.normal(0, 1, 5000), confidence=0.95
  )
  assert 1.8 < bound < 2


def test_epsilon_of_a_gaussian_is_below_the_truth():
  rng = np.random.default_rng(2)
  bound = thresholds.bound_epsilon(
    rng.normal(1, 1, 5000), rng.normal(0, 1, 5000), delta=1e-5, confidence=0.95
  )
  assert 1.5 < bound < audit.compute_gaussian_epsilon(1, 1e-5)


def test_scores_that_say_nothing_bound_nothing():
  rng = np.random.default_rng(3)
  scores = rng.normal(size=[2, 500])
  assert thresholds.bound_epsilon(*scores, delta=0, confidence=0.95) == 0
  assert thresholds.bound_mu(*scores, confidence=0.95) == 0


def test_only_a_curve_that_is_exceeded_is_refuted():
  rng = np.random.default_rng(4)
  scores = rng.normal(2, 1, 2000), rng.normal(0, 1, 2000)
  for mu, expected in ((1.5, True), (2.0, False)):
    curve = audit.GaussianTradeOff(mu)
    assert thresholds.is_refuted(curve, *scores, confidence=0.95) == expected


def test_true_positive_rate_is_of_the_scores_above():
  out_scores = np.arange(100.0)  # Above 98 is 1 %.
  in_scores = np.array([98, 98.5, 120, 3])
  rate = thresholds.measure_true_positive_rate(in_scores, out_scores, 0.01)
  assert rate == pytest.approx(2 / 4)


@pytest.mark.parametrize(
  ('in_scores', 'out_scores', 'message'),
  [
    ([], [1.0], '`in_scores` must be a vector that is not empty'),
    ([1.0], [[1.0]], '`out_scores` must be a vector'),
    ([np.nan], [1.0], '`in_scores` must not be NaN'),
  ],
)
def test_wrong_scores_raise(in_scores, out_scores, message):
  with pytest.raises(ValueError, match=message):
    thresholds.bound_rates(in_scores, out_scores, confidence=0.95)


def test_wrong_confidence_raises():
  with pytest.raises(ValueError, match='`confidence` must be between 0'):
    thresholds.bound_rates([1.0], [0.0], confidence=1)
