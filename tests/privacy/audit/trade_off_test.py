"""Tests of what a guarantee allows an attacker."""

import functools

import numpy as np
import pytest
from scipy import special

from tff_clipping.privacy import PrivacyPlan, audit


def _plan(sampling='none', **kwargs):
  arguments = dict(
    num_clients=20,
    clients_per_round=20 if sampling == 'none' else 10,
    num_rounds=4,
    target_delta=1e-3,
    noise_multiplier=2.0,
    sampling=sampling,
    accountant='pld',
  )
  return PrivacyPlan(**{**arguments, **kwargs})


@functools.cache
def _curve(sampling):
  return audit.compute_trade_off(_plan(sampling))


@pytest.mark.parametrize('fpr', [0.001, 0.01, 0.1, 0.5])
def test_plan_of_all_clients_allows_the_gaussian_curve(fpr):
  # 4 rounds of noise multiplier 2 are one of multiplier 1. The (epsilon, delta)
  # of a grid are looser than the curve, by little.
  allowed = _curve('none').max_true_positive_rate(fpr)
  exact = special.ndtr(special.ndtri(fpr) + 1)
  assert exact - 1e-9 <= allowed <= exact + 0.02


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size', 'none'])
def test_rates_are_each_others_inverse(sampling):
  curve = _curve(sampling)
  for fpr in (0.001, 0.05, 0.4):
    tpr = curve.max_true_positive_rate(fpr)
    assert curve.min_false_positive_rate(tpr) == pytest.approx(fpr, rel=1e-9)


def test_paper_plan_allows_what_its_cohorts_give():
  np.testing.assert_array_equal(
    _curve('paper').deltas, _curve('fixed_size').deltas
  )


def test_gaussian_curve_and_its_inverse():
  curve = audit.GaussianTradeOff(1.5)
  tpr = curve.max_true_positive_rate(0.1)
  assert tpr == pytest.approx(special.ndtr(special.ndtri(0.1) + 1.5))
  assert curve.min_false_positive_rate(tpr) == pytest.approx(0.1)


@pytest.mark.parametrize('mu', [0.01, 0.237, 1.0, 8.0])
def test_mu_and_epsilon_are_each_others_inverse(mu):
  epsilon = audit.compute_gaussian_epsilon(mu, 1e-6)
  assert audit.compute_gaussian_mu(epsilon, 1e-6) == pytest.approx(mu)


def test_no_mu_is_no_epsilon():
  assert audit.compute_gaussian_epsilon(0, 1e-6) == 0


def test_wrong_numbers_raise():
  with pytest.raises(ValueError, match='`mu` must not be negative, found -1.'):
    audit.compute_gaussian_epsilon(-1, 1e-6)
  with pytest.raises(ValueError, match='`epsilon` must not be negative'):
    audit.compute_gaussian_mu(-1, 1e-6)
  with pytest.raises(ValueError, match='`target_delta` must be above 0'):
    audit.compute_gaussian_mu(1, 0)
