"""Tests of tff_clipping.privacy.plans.correlated_plan."""

import json

import dp_accounting
import pytest
from dp_accounting import rdp

from tests import noise_strategies
from tests.privacy.paper import PAPER
from tff_clipping import privacy

SEPARATION = privacy.Participation(min_separation=24)
BLT = noise_strategies.blt(100)
STRATEGIES = [
  privacy.identity_strategy(num_rounds=100),
  BLT,
  privacy.banded_strategy(num_rounds=100, participation=SEPARATION),
  privacy.blt_strategy(num_rounds=100, participation=SEPARATION),
]


def build_plan(**changes):
  return privacy.CorrelatedNoisePlan(
    **PAPER
    | {'noise_multiplier': 3.0, 'strategy': BLT, 'min_separation': 24}
    | changes
  )


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_plan_is_one_gaussian_event_for_the_whole_run(strategy):
  plan = build_plan(strategy=strategy)
  sensitivity = strategy.compute_sensitivity(SEPARATION)
  assert plan.sensitivity == sensitivity
  assert plan.dp_event == dp_accounting.GaussianDpEvent(3.0 / sensitivity)
  assert plan.relation is privacy.Relation.ZERO_OUT
  assert plan.relation.accountant_relation is (
    dp_accounting.NeighboringRelation.REPLACE_SPECIAL
  )
  assert plan.max_participations == -(-strategy.num_rounds // 24)
  # The exact epsilon is below the bound by Renyi divergences, by little.
  accountant = rdp.RdpAccountant(
    neighboring_relation=plan.relation.accountant_relation
  )
  accountant.compose(plan.dp_event)
  bound = accountant.get_epsilon(plan.target_delta)
  assert 0.8 * bound < plan.epsilon < bound


def test_independent_noise_is_charged_for_every_participation():
  # sqrt(k) times the sensitivity is the same as 1 / sqrt(k) of the noise.
  plan = build_plan(strategy=STRATEGIES[0])
  assert plan.max_participations == 5
  assert plan.epsilon == pytest.approx(
    privacy.gaussian_epsilon(3.0 / 5**0.5, 1e-5)
  )


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_most_rounds_are_those_of_the_strategy_or_fewer(strategy):
  common = {**PAPER, 'strategy': strategy, 'min_separation': 24}
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    target_epsilon=2.0, **common
  )
  assert plan.num_rounds == strategy.num_rounds
  assert 2.0 * (1 - 1e-5) < plan.epsilon <= 2.0
  fewer, whole = (
    privacy.CorrelatedNoisePlan.from_max_rounds(
      noise_multiplier=plan.noise_multiplier, target_epsilon=epsilon, **common
    )
    for epsilon in (1.5, 2.0)
  )
  assert fewer.epsilon <= 1.5 < fewer.epsilon_after(fewer.num_rounds + 1)
  assert whole == plan


def test_rounds_beyond_the_plan_need_a_target_that_allows_them():
  assert not build_plan(num_rounds=50).permits(51)
  epsilon = build_plan().epsilon_after(60)
  plan = build_plan(num_rounds=50, target_epsilon=epsilon)
  assert plan.permits(60)
  assert not plan.permits(100)
  whole = build_plan(target_epsilon=1e3)
  assert whole.permits(100)
  # There is no noise for more.
  assert not whole.permits(101)


def build_bands(num_bands):
  return privacy.banded_strategy(
    num_rounds=100,
    participation=privacy.Participation(min_separation=7, max_participations=1),
    num_bands=num_bands,
  )


BANDS = build_bands(6)
GROUPED = {'min_separation': 6, 'sampling': 'grouped_poisson'}


def test_banded_noise_is_amplified_by_sampling_within_groups():
  # arXiv 2306.08153, Theorem 4: as 17 rounds of Poisson sampling, with the
  # probability 80 * 6 / 1920.
  plan = build_plan(strategy=BANDS, **GROUPED)
  norm = sum(c**2 for c in BANDS.coefficients) ** 0.5
  noise = plan.dp_event.event.event.noise_multiplier
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(
      0.25, dp_accounting.GaussianDpEvent(noise)
    ),
    17,
  )
  # A sum of six squares, in another order: each is rounded some ten times.
  assert noise == pytest.approx(plan.noise_multiplier / norm, rel=1e-14)
  assert plan.relation is privacy.Relation.ZERO_OUT
  expected = privacy.compute_epsilon(
    **PAPER | {'clients_per_round': 480, 'num_rounds': 17},
    noise_multiplier=3.0 / norm,
    accountant='pld',
  )
  assert plan.epsilon == pytest.approx(expected, rel=1e-9)
  assert plan.epsilon < build_plan(strategy=BANDS, min_separation=6).epsilon
  text = privacy.describe_plan(plan)
  assert 'independently with probability 0.25 (80 expected), in secret' in text


def test_one_group_of_independent_noise_is_poisson_sampling():
  setting = {**PAPER, 'noise_multiplier': 1.4}
  plan = privacy.CorrelatedNoisePlan(
    **setting, strategy=STRATEGIES[0], sampling='grouped_poisson'
  )
  poisson = privacy.PrivacyPlan(**setting, num_rounds=100, accountant='pld')
  assert plan.epsilon == pytest.approx(poisson.epsilon, rel=1e-9)


@pytest.mark.parametrize(
  'setting',
  [{'strategy': BLT, 'num_rounds': 90}, {'strategy': BANDS, **GROUPED}],
)
def test_json_round_trip(setting):
  plan = build_plan(**setting, target_epsilon=50)
  value = json.loads(json.dumps(privacy.plan_to_json(plan)))
  assert value['relation'] == 'zero_out'
  assert privacy.plan_from_json(value) == plan


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'min_separation': 25}, '`min_separation` must be at most 24'),
    ({'sampling': 'poisson'}, "`sampling` must be one of 'min_sep"),
    ({'num_rounds': 101}, '`num_rounds` must be at most 100'),
    ({'strategy': 'blt'}, '`strategy` must be a NoiseStrategy'),
    # Only as many bands as groups gain from sampling.
    ({**GROUPED, 'strategy': BLT}, 'banded, with at most `min_s'),
    ({**GROUPED, 'strategy': build_bands(7)}, 'banded, with at most `min_s'),
  ],
)
def test_bad_plans_raise(changes, message):
  with pytest.raises((TypeError, ValueError), match=message):
    build_plan(**changes)
