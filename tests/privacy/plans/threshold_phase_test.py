"""Tests of plans whose clipping norm is estimated in a first phase."""

import dataclasses
import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import stats

from tff_clipping import privacy

_COHORTS = dict(num_clients=960, clients_per_round=80, target_delta=1e-5)


def _plan(threshold_rounds=4, bits_noise=6.0, **settings):
  return privacy.PrivacyPlan.from_noise_multiplier(
    **{**_COHORTS, 'noise_multiplier': 2.0, 'num_rounds': 24, **settings},
    threshold=privacy.ThresholdPhase(
      num_rounds=threshold_rounds, noise_multiplier=bits_noise
    ),
  )


def _correlated(sampling='min_separation', **settings):
  strategy = privacy.banded_strategy(
    num_rounds=24,
    num_bands=4,
    participation=privacy.Participation(min_separation=12),
  )
  return privacy.CorrelatedNoisePlan.from_target_epsilon(
    **_COHORTS,
    strategy=strategy,
    sampling=sampling,
    min_separation=12,
    target_epsilon=2.0,
    threshold=privacy.ThresholdPhase(num_rounds=13),
    **settings,
  )


@pytest.mark.parametrize(
  'sampling',
  ['poisson', pytest.param('fixed_size', marks=pytest.mark.slow)],
)
def test_rdp_is_that_of_an_outside_composition(sampling):
  plan = _plan(sampling=sampling)
  factor = 2 if sampling == 'fixed_size' else 1
  accountant = rdp.RdpAccountant(
    neighboring_relation=plan.relation.accountant_relation
  )
  # Its own events, made here: bits with noise 6 / 2, of sensitivity 1/2.
  for count, noise in ((4, 6.0), (24, 2.0)):
    gaussian = dp_accounting.GaussianDpEvent(noise / factor)
    event = (
      dp_accounting.PoissonSampledDpEvent(80 / 960, gaussian)
      if sampling == 'poisson'
      else dp_accounting.SampledWithoutReplacementDpEvent(960, 80, gaussian)
    )
    accountant.compose(event, count)
  assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_pld_is_that_of_an_outside_composition():
  plan = _plan(accountant='pld')
  accountant = pld.PLDAccountant().compose(plan.dp_event)
  assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_the_phase_alone_costs_what_its_rounds_cost():
  plan = _plan()
  alone = privacy.compute_epsilon(
    **_COHORTS, num_rounds=4, noise_multiplier=6.0
  )
  assert plan.epsilon_after(4) == pytest.approx(alone)
  assert plan.build_threshold_plan().epsilon == pytest.approx(alone)
  assert plan.epsilon_after(3) < alone < plan.epsilon_after(5)
  assert plan.epsilon == plan.epsilon_after(28)
  assert plan.permits(28)
  assert not plan.permits(29)


def test_delta_of_a_round_of_each_is_that_of_two_exact_neighbours():
  plan = _plan(1, 3.0, num_rounds=1, noise_multiplier=1.5)
  # A client moves the bits by 1/2 and the sum by c, where it is drawn: both
  # releases over their noise, by a grid. What all others do cancels.
  prob, epsilon = 80 / 960, 0.05
  x = np.linspace(-9, 10, 1501)
  without, width = stats.norm.pdf(x), x[1] - x[0]
  bits, update = (
    (1 - prob) * without + prob * stats.norm.pdf(x - 1 / noise)
    for noise in (3.0, 1.5)
  )
  with_client = np.multiply.outer(bits, update)
  without = np.multiply.outer(without, without)
  exact = max(
    np.sum(np.maximum(one - math.exp(epsilon) * other, 0)) * width**2
    for one, other in ((with_client, without), (without, with_client))
  )
  delta = plan.tightest_delta(epsilon)
  assert exact <= delta * (1 + 1e-6)
  assert delta == pytest.approx(exact, rel=1e-2)


def test_epochs_of_random_allocation_compose():
  settings = dict(sampling='random_allocation', accountant='pld')
  plan = _plan(12, 8.0, **settings)
  first, second = plan.build_threshold_plan(), plan.build_training_plan()
  assert [p.num_rounds for p in (first, second)] == [12, 24]
  assert second.epsilon < plan.epsilon < first.epsilon + second.epsilon
  # With the noise of training, it is three epochs of it.
  same = _plan(12, 2.0, **settings)
  three = privacy.compute_epsilon(
    **_COHORTS, num_rounds=36, noise_multiplier=2.0, **settings
  )
  assert same.epsilon == pytest.approx(three, rel=1e-6)


def test_correlated_noise_after_it_is_one_gaussian_mechanism():
  plan = _correlated()
  # Thirteen rounds, twelve apart: a client is in two of them.
  bits = 2 / plan.threshold.noise_multiplier**2
  training = (plan.sensitivity / plan.noise_multiplier) ** 2
  exact = privacy.gaussian_epsilon((bits + training) ** -0.5, 1e-5)
  assert plan.epsilon == pytest.approx(exact, rel=1e-9)
  assert plan.epsilon <= 2.0
  # A hundredth of the budget, about.
  assert bits / (bits + training) == pytest.approx(0.01, rel=0.05)


def test_a_draw_from_groups_composes_turns():
  plan = _correlated('grouped_poisson')
  event = plan.dp_event
  counts = [each.count for each in event.events[0:1]]
  assert counts == [2]
  accountant = pld.PLDAccountant(
    dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
  ).compose(event)
  assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.parametrize(
  'settings',
  [
    dict(),
    dict(sampling='fixed_size', accountant='pld'),
    pytest.param(
      dict(sampling='random_allocation', accountant='pld', num_rounds=12),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_noise_of_both_phases_is_found_together(settings):
  rounds = settings.pop('num_rounds', 5)
  asked = dict(**_COHORTS, num_rounds=24, target_epsilon=1.0, **settings)
  alone = privacy.PrivacyPlan.from_target_epsilon(**asked)
  plan = privacy.PrivacyPlan.from_target_epsilon(
    **asked, threshold=privacy.ThresholdPhase(num_rounds=rounds)
  )
  assert 0.999 < plan.epsilon <= 1.0
  # A small share of the budget: training has a little more noise.
  growth = plan.noise_multiplier / alone.noise_multiplier
  assert 1 < growth < 1.02
  assert plan.threshold.noise_multiplier >= 2 * alone.noise_multiplier


@pytest.mark.parametrize('build', [_plan, _correlated])
def test_json_holds_both_phases(build):
  plan = build()
  read = type(plan).from_json(json.loads(json.dumps(plan.to_json())))
  assert read == plan
  assert 'threshold' not in plan.build_training_plan().to_json()
  assert 'Both phases together satisfy' in plan.describe()


def test_ledgers_add_up_both_phases(tmp_path):
  plan = _plan()
  paths = tmp_path / 'a.jsonl', tmp_path / 'b.jsonl'
  for path in paths:
    with privacy.PrivacyLedger(path, plan) as ledger:
      for number in range(1, 7):
        ledger.charge(number, f'{number:064x}')
      assert ledger.epsilon == plan.epsilon_after(6)
  both = privacy.compute_spending([privacy.read_ledger(p) for p in paths])
  accountant = rdp.RdpAccountant()
  for count, noise in ((8, 6.0), (4, 2.0)):
    gaussian = dp_accounting.GaussianDpEvent(noise)
    event = dp_accounting.PoissonSampledDpEvent(80 / 960, gaussian)
    accountant.compose(event, count)
  assert both.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    (dict(sampling='paper'), "where `sampling` is 'paper'"),
    (dict(sampling='truncated_poisson'), "is 'truncated_poisson'"),
    (
      dict(sampling='random_allocation', accountant='pld'),
      'whole epochs of 12 rounds',
    ),
    (dict(noise_multiplier=7.0), 'at least the 7 of training'),
  ],
)
def test_what_is_not_proved_is_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    _plan(**settings)


def test_shuffled_epochs_are_whole_in_the_phase():
  strategy = privacy.RestartedStrategy(
    num_rounds=24, inner=privacy.identity_strategy(num_rounds=12)
  )
  settings = dict(
    **_COHORTS, strategy=strategy, sampling='shuffled_epochs', target_epsilon=2
  )
  with pytest.raises(ValueError, match='whole epochs of 12 rounds'):
    privacy.CorrelatedNoisePlan.from_target_epsilon(
      **settings, threshold=privacy.ThresholdPhase(num_rounds=13)
    )
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    **settings, threshold=privacy.ThresholdPhase(num_rounds=12)
  )
  assert plan.epsilon <= 2.0


def test_a_phase_needs_its_noise_where_that_of_training_is_given():
  with pytest.raises(ValueError, match='must have a `noise_multiplier`'):
    _plan(bits_noise=None)
  with pytest.raises(TypeError, match='must be a ThresholdPhase, found 4'):
    dataclasses.replace(_plan(), threshold=4)
  with pytest.raises(ValueError, match='must not be given where `num_rounds`'):
    privacy.PrivacyPlan.from_max_rounds(
      **_COHORTS,
      noise_multiplier=2.0,
      target_epsilon=1.0,
      threshold=privacy.ThresholdPhase(num_rounds=4, noise_multiplier=6.0),
    )
  with pytest.raises(ValueError, match='`threshold` must be given for a plan'):
    _plan().build_training_plan().build_threshold_plan()
