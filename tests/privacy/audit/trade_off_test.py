"""Tests of what a guarantee allows an attacker."""

import functools

import numpy as np
import pytest
from scipy import special

from tests import noise_strategies
from tests.privacy.paper import PAPER, build_plan
from tff_clipping import privacy
from tff_clipping.privacy import PrivacyPlan, audit
from tff_clipping.privacy.accounting import accountants, privacy_loss


@functools.cache
def _curve(sampling):
  plan = PrivacyPlan(
    num_clients=20,
    clients_per_round=20 if sampling == 'none' else 10,
    num_rounds=4,
    target_delta=1e-3,
    noise_multiplier=2.0,
    sampling=sampling,
    accountant='pld',
  )
  return audit.compute_trade_off(plan)


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


def test_gaussian_curve_and_its_inverse():
  curve = audit.GaussianTradeOff(1.5)
  tpr = curve.max_true_positive_rate(0.1)
  assert tpr == pytest.approx(special.ndtr(special.ndtri(0.1) + 1.5))
  assert curve.min_false_positive_rate(tpr) == pytest.approx(0.1)
  assert audit.compute_gaussian_epsilon(0, 1e-6) == 0


@pytest.mark.parametrize(
  ('compute', 'arguments', 'message'),
  [
    (audit.compute_gaussian_epsilon, (-1, 1e-6), '`mu` must be .* least 0'),
    (audit.compute_gaussian_epsilon, (1, 0), '`target_delta` must be between'),
    (audit.bound_attacks, (build_plan(), 0), '`false_positive_rate` must be b'),
    (audit.bound_attacks, (build_plan(), 1), '`false_positive_rate` must be b'),
  ],
)
def test_arguments_out_of_range_raise(compute, arguments, message):
  with pytest.raises(ValueError, match=message):
    compute(*arguments)


def test_gaussian_releases_have_their_mu():
  plan = build_plan(sampling='none', clients_per_round=1920, num_rounds=25)
  bounds = audit.bound_attacks(plan, 0.1)
  assert bounds.mu == pytest.approx(5 / 1.6)
  # Telling N(0, 1) from N(mu, 1): the best test is a threshold.
  threshold = special.ndtri(1 - 0.1)
  assert bounds.true_positive_rate == pytest.approx(
    1 - special.ndtr(threshold - bounds.mu)
  )


def test_correlated_noise_is_one_gaussian_release():
  plan = privacy.CorrelatedNoisePlan.from_noise_multiplier(
    **PAPER,
    strategy=noise_strategies.blt(100),
    noise_multiplier=5,
    min_separation=24,
  )
  bounds = audit.bound_attacks(plan, 0.01)
  assert bounds.mu == plan.sensitivity / 5


def test_sampling_of_almost_all_is_near_the_gaussian_release():
  near = build_plan(clients_per_round=1919, noise_multiplier=30)
  limit = build_plan(
    clients_per_round=1920, sampling='none', noise_multiplier=30
  )
  found, expected = (audit.bound_attacks(each, 0.01) for each in (near, limit))
  assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
  'setting',
  [
    {},
    {'sampling': 'fixed_size', 'noise_multiplier': 4.0},
    {'num_rounds': 1, 'noise_multiplier': 0.5},
  ],
)
def test_no_delta_is_above_that_of_mu_or_the_plans(setting):
  plan = build_plan(accountant='pld', **setting)
  cost = accountants.compose(plan.parts(plan.num_rounds), 'pld')
  mu = audit.bound_attacks(plan, 0.01).mu
  epsilons = np.linspace(0, 2 * plan.epsilon, 73)
  deltas = np.array([*map(cost.compute_delta, epsilons)])
  # A mu that is much smaller would not do.
  for factor, holds in ((1, True), (0.98, False)):
    of_mu = privacy_loss.compute_gaussian_delta(1 / (factor * mu), epsilons)
    assert np.all(deltas <= np.maximum(of_mu, plan.target_delta)) == holds


@pytest.mark.slow
def test_no_attack_does_better_than_the_bound():
  # The best attack on one round: a threshold on the released number.
  plan = build_plan(num_rounds=1, noise_multiplier=1.0)
  thresholds = np.linspace(-1, 5, 5)
  false = special.ndtr(-thresholds)
  true = (1 - 1 / 24) * false + special.ndtr(1 - thresholds) / 24
  for rate, found in zip(false, true, strict=True):
    bounds = audit.bound_attacks(plan, float(rate))
    assert found <= bounds.true_positive_rate
    assert bounds.true_positive_rate <= found * 1.2
