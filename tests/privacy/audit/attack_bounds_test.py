"""Tests of tff_clipping.privacy.audit.attack_bounds."""

import numpy as np
import pytest
from scipy import special

from tests.privacy.paper import PAPER, build_plan
from tff_clipping import privacy
from tff_clipping.privacy.accounting import privacy_loss
from tff_clipping.privacy.audit import attack_bounds


def test_gaussian_releases_have_their_mu():
  plan = build_plan(sampling='none', clients_per_round=1920, num_rounds=25)
  bounds = attack_bounds.bound_attacks(plan, 0.1)
  assert bounds.mu == pytest.approx(5 / 1.6)
  # Telling N(0, 1) from N(mu, 1): the best test is a threshold.
  threshold = special.ndtri(1 - 0.1)
  assert bounds.true_positive_rate == pytest.approx(
    1 - special.ndtr(threshold - bounds.mu)
  )


def test_correlated_noise_is_one_gaussian_release():
  plan = privacy.CorrelatedNoisePlan.from_noise_multiplier(
    **PAPER,
    strategy=privacy.TreeStrategy(num_rounds=100),
    noise_multiplier=5,
    min_separation=24,
  )
  bounds = attack_bounds.bound_attacks(plan, 0.01)
  assert bounds.mu == plan.sensitivity / 5


def test_sampling_of_almost_all_is_near_the_gaussian_release():
  near = build_plan(clients_per_round=1919, noise_multiplier=30)
  limit = build_plan(
    clients_per_round=1920, sampling='none', noise_multiplier=30
  )
  found = attack_bounds.bound_attacks(near, 0.01)
  expected = attack_bounds.bound_attacks(limit, 0.01)
  assert found.mu == pytest.approx(expected.mu, rel=0.01)
  assert found.true_positive_rate == pytest.approx(
    expected.true_positive_rate, rel=0.01
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'setting',
  [
    {},
    {'sampling': 'fixed_size', 'noise_multiplier': 4.0},
    {'sampling': 'truncated_poisson'},
    {'num_rounds': 1, 'noise_multiplier': 0.5},
  ],
)
def test_no_delta_is_above_that_of_mu_or_the_plans(setting):
  plan = build_plan(accountant='pld', **setting)
  mu = attack_bounds.bound_attacks(plan, 0.01).mu
  for epsilon in np.linspace(0, 2 * plan.epsilon, 37):
    delta = float(privacy_loss.compute_gaussian_delta(1 / mu, epsilon))
    assert plan.tightest_delta(epsilon) <= max(delta, plan.target_delta)
  # A mu that is much smaller would not do.
  assert any(
    plan.tightest_delta(epsilon)
    > max(
      float(privacy_loss.compute_gaussian_delta(1 / (0.98 * mu), epsilon)),
      plan.target_delta,
    )
    for epsilon in np.linspace(0, plan.epsilon, 37)
  )


@pytest.mark.slow
def test_no_attack_does_better_than_the_bound():
  # The best attack on one round: a threshold on the released number.
  plan = build_plan(num_rounds=1, noise_multiplier=1.0)
  thresholds = np.linspace(-1, 5, 13)
  false = special.ndtr(-thresholds)
  true = (1 - 1 / 24) * false + special.ndtr(1 - thresholds) / 24
  for rate, found in zip(false, true, strict=True):
    bounds = attack_bounds.bound_attacks(plan, float(rate))
    assert found <= bounds.true_positive_rate
    assert bounds.true_positive_rate <= found * 1.2


@pytest.mark.slow
def test_paper_is_bounded_by_what_is_drawn():
  paper = attack_bounds.bound_attacks(build_plan(sampling='paper'), 0.01)
  drawn = build_plan(sampling='fixed_size', accountant='pld')
  assert paper == attack_bounds.bound_attacks(drawn, 0.01)
  poisson = attack_bounds.bound_attacks(build_plan(), 0.01)
  assert paper.mu > 2 * poisson.mu


@pytest.mark.parametrize('rate', [0, 1, -0.1, float('nan')])
def test_a_rate_that_is_none_is_refused(rate):
  with pytest.raises(ValueError, match='`false_positive_rate` must be between'):
    attack_bounds.bound_attacks(build_plan(), rate)
