"""Tests of the lower bounds that hold for the canaries of one run."""

import numpy as np
import pytest
from scipy import stats

from tff_clipping.privacy import audit
from tff_clipping.privacy.accounting import gaussian_mechanism
from tff_clipping.privacy.audit import one_run
from tff_clipping.privacy.audit.one_run import Guesses

# Source: google-deepmind/jax_privacy, tests/auditing_test.py (2026): epsilon at
# delta = 1e-6 with confidence 95 % from 10,000 scores in and as many out, at
# the quantiles of N(shift, 1) and N(0, 1). It divides 5 % by the number of
# corners of the upper hull of the ROC curve, and takes the best of them.
_JAX_PRIVACY = [
  # shift, epsilon, epsilon by f-DP
  (1, 1.13346, 2.164749),
  (2, 2.311945, 4.7218075),
  (4, 4.395568, 9.133752),
]
_NUM_SCORES = 10_000


def _hull_of_roc_curve(shift):
  """Returns the guesses at the corners of the upper hull."""
  out = stats.norm.ppf((np.arange(_NUM_SCORES) + 0.5) / _NUM_SCORES)
  thresholds = np.append(np.union1d(out, out + shift), np.inf)
  found = _NUM_SCORES - np.searchsorted(out + shift, thresholds)
  false = _NUM_SCORES - np.searchsorted(out, thresholds)
  corners = []
  for point in zip(false[::-1].tolist(), found[::-1].tolist(), strict=True):
    while len(corners) > 1 and _turns_left(*corners[-2:], point):
      corners.pop()
    corners.append(point)
  return [Guesses(fp + tp, tp) for fp, tp in corners]


def _turns_left(first, second, third):
  to_second, to_third = np.subtract(second, first), np.subtract(third, second)
  return to_second[1] * to_third[0] <= to_third[1] * to_second[0]


@pytest.mark.parametrize(('shift', 'epsilon', 'gaussian_epsilon'), _JAX_PRIVACY)
def test_bounds_are_those_of_jax_privacy(shift, epsilon, gaussian_epsilon):
  corners = _hull_of_roc_curve(shift)
  significance = 0.05 / len(corners)

  def refutes(guesses, value):
    return all(
      one_run.one_run_p_value(2 * _NUM_SCORES, guesses, value, delta)
      <= significance
      for delta in (0, 1e-6)  # The first is cheap, and necessary.
    )

  def refutes_gaussian(guesses, value):
    noise = gaussian_mechanism.gaussian_noise_multiplier(value, 1e-6)
    curve = audit.GaussianTradeOff(1 / noise)
    return one_run.refutes_curve(curve, 2 * _NUM_SCORES, guesses, significance)

  for is_refuted, bound in (
    (refutes, epsilon),
    (refutes_gaussian, gaussian_epsilon),
  ):
    assert any(is_refuted(each, bound * (1 - 1e-5)) for each in corners)
    assert not any(is_refuted(each, bound * (1 + 1e-5)) for each in corners)


@pytest.mark.parametrize(
  ('is_in', 'num_attempts', 'num_right'),
  [
    # There are 10 attempts: of 1, 2, 4, 8, 16 canaries on one side and on both.
    # 32 of 32 are right.
    (np.arange(32) < 16, 10, 32),
    # On one side 8 of 8, on both 12 of 16.
    (np.isin(np.arange(16), [*range(8), 8, 10, 12, 14]), 8, 8),
  ],
)
def test_epsilon_without_delta_inverts_a_power(is_in, num_attempts, num_right):
  # So many right have the probability p^n.
  scores = -np.arange(len(is_in), dtype=float)
  bound = one_run.bound_epsilon(scores, is_in, delta=0.0, confidence=0.95)
  p = (0.05 / num_attempts) ** (1 / num_right)
  assert bound == pytest.approx(np.log(p / (1 - p)), abs=1e-6)


def test_p_value_adds_the_largest_move_by_delta():
  # By Theorem 5.2, summed by hand: 3 guesses, all right, epsilon = 0.
  # P[3] = 1/8; moves of 1, 2, 3 reach 3/8, 6/8 / 2, 7/8 / 3: 3/8 at most.
  p_value = one_run.one_run_p_value(10, Guesses(3, 3), 0.0, 0.01)
  assert p_value == pytest.approx(1 / 8 + 2 * 10 * 0.01 * 3 / 8)


@pytest.mark.parametrize('delta', [0.0, 1e-5])
def test_bound_is_rarely_above_the_truth(delta):
  # Randomised response of epsilon = 1, the mechanism that the bound is made
  # for. It may be exceeded in 10 % of the runs; 200 runs exceed it 35 times
  # with a probability of 1e-4.
  rng = np.random.default_rng(0)
  truth, num_canaries, exceeded = 1.0, 64, 0
  for _ in range(200):
    is_in = rng.integers(2, size=num_canaries).astype(bool)
    is_right = rng.random(num_canaries) < 1 / (1 + np.exp(-truth))
    scores = np.where(is_in == is_right, 1.0, -1.0)
    scores += 0.1 * rng.random(num_canaries)
    exceeded += truth < one_run.bound_epsilon(
      scores, is_in, delta=delta, confidence=0.9
    )
  assert exceeded <= 35


def test_gaussian_bound_is_near_the_truth_and_below():
  # 4000 canaries of mu = 2, a fixed seed.
  rng = np.random.default_rng(1)
  is_in = rng.integers(2, size=4000).astype(bool)
  scores = rng.normal(size=4000) + 2 * is_in
  bound = one_run.bound_mu(scores, is_in, confidence=0.95)
  assert 0.6 < bound < 2


def test_scores_that_say_nothing_bound_nothing():
  rng = np.random.default_rng(2)
  is_in = rng.integers(2, size=200).astype(bool)
  scores = rng.normal(size=200)
  assert one_run.bound_epsilon(scores, is_in, delta=0, confidence=0.95) == 0
  assert one_run.bound_mu(scores, is_in, confidence=0.95) == 0
  alike = np.zeros(200)
  assert one_run.bound_epsilon(alike, is_in, delta=0, confidence=0.95) == 0


def test_curve_is_refuted_where_its_mu_is_exceeded():
  is_in = np.arange(512) % 2 == 0
  scores = is_in + 0.0
  bound = one_run.bound_mu(scores, is_in, confidence=0.95)
  for mu, expected in ((bound - 1e-3, True), (bound + 1e-3, False)):
    curve = audit.GaussianTradeOff(mu)
    refuted = one_run.is_refuted(curve, scores, is_in, confidence=0.95)
    assert refuted == expected


@pytest.mark.parametrize(
  ('scores', 'is_in', 'confidence', 'message'),
  [
    ([1.0], [True], 0.95, 'at least 2, found'),
    ([1.0, 2.0], [True], 0.95, 'vectors of one length'),
    ([1.0, np.nan], [True, False], 0.95, 'must not be NaN'),
    ([1.0, 2.0], [True, False], 1.0, '`confidence` must be'),
  ],
)
def test_wrong_arguments_raise(scores, is_in, confidence, message):
  with pytest.raises(ValueError, match=message):
    one_run.bound_epsilon(scores, is_in, delta=0, confidence=confidence)
