"""Tests of tff_clipping.privacy.plans.plan."""

import dataclasses
import json
import math
import warnings

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from tests.privacy.paper import PAPER, POPULATION, build_plan
from tff_clipping import gone, privacy
from tff_clipping.privacy.accounting import renyi, sampled_gaussian

_GAUSSIAN = dp_accounting.GaussianDpEvent(1.6)
COHORTS = {'poisson': {}, 'fixed_size': {}, 'none': {'clients_per_round': 1920}}


@pytest.mark.parametrize(
  ('sampling', 'event', 'relation', 'factor'),
  [
    (
      'poisson',
      dp_accounting.PoissonSampledDpEvent(80 / 1920, _GAUSSIAN),
      privacy.Relation.ADD_OR_REMOVE_ONE,
      1,
    ),
    (
      'fixed_size',
      dp_accounting.SampledWithoutReplacementDpEvent(
        1920, 80, dp_accounting.GaussianDpEvent(0.8)
      ),
      privacy.Relation.REPLACE_ONE,
      2,
    ),
    ('none', _GAUSSIAN, privacy.Relation.ADD_OR_REMOVE_ONE, 1),
  ],
)
def test_plan_holds_event_and_relation(sampling, event, relation, factor):
  plan = build_plan(sampling=sampling, **COHORTS[sampling])
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(event, 100)
  assert plan.relation is relation
  assert plan.relation.sensitivity_factor == factor
  accountant = rdp.RdpAccountant(
    neighboring_relation=relation.accountant_relation
  ).compose(plan.dp_event)
  expected = accountant.get_epsilon(1e-5)
  assert plan.epsilon == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
  ('sampling', 'prob', 'size', 'bounds'),
  [
    ('poisson', 80 / 1920, None, None),
    ('random_allocation', 80 / 1920, None, None),
    ('fixed_size', 80 / 1920, 80, (80, 80)),
    # A neighbour has a client less, or one more.
    ('none', 1.0, 1920, (1919, 1921)),
  ],
)
def test_sampler_aggregator_and_shares_have_what_the_plan_charges(
  sampling, prob, size, bounds
):
  plan = build_plan(
    sampling=sampling, accountant='pld', **COHORTS.get(sampling, {})
  )
  cohort = plan.clients_per_round
  assert plan.sampler_parameters == (sampling, 1920, prob, size)
  assert plan.aggregator_parameters == (1.6, cohort)
  if bounds is not None:
    assert plan.share_parameters == (1.6, cohort, *bounds)
    return
  with pytest.raises(ValueError, match="`sampling` must be 'fixed_size'"):
    plan.share_parameters  # noqa: B018


def test_random_allocation_charges_whole_epochs():
  plan = build_plan(sampling='random_allocation', accountant='pld')
  # Of 100 rounds, four are of a fifth epoch.
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(
    sampled_gaussian.RandomAllocationDpEvent(24, _GAUSSIAN), 5
  )
  assert plan.epsilon_after(96) < plan.epsilon_after(97) == plan.epsilon
  assert plan.epsilon_after(120) == plan.epsilon
  within = dataclasses.replace(plan, target_epsilon=1.01 * plan.epsilon)
  assert within.permitted_rounds == 120
  assert not plan.allows_new_draws
  assert (
    'takes part if it has drawn this one of the 24 rounds of an epoch'
    in privacy.describe_plan(plan)
  )


def test_random_allocation_has_the_most_whole_epochs():
  plan = privacy.PrivacyPlan.from_max_rounds(
    **PAPER,
    noise_multiplier=1.6,
    target_epsilon=1.5,
    sampling='random_allocation',
    accountant='pld',
  )
  assert plan.num_rounds % 24 == 0
  assert plan.epsilon <= 1.5 < plan.epsilon_after(plan.num_rounds + 1)


ALLOCATION = {'sampling': 'random_allocation', 'accountant': 'pld'}


def _solve_cohort(**given):
  return privacy.PrivacyPlan.from_noise_to_clients_ratio(
    **{'noise_to_clients_ratio': 0.03, 'num_clients': 1920} | given,
    target_epsilon=3,
  )


def _solve_clients(**given):
  return privacy.PrivacyPlan.from_smallest_population(
    noise_multiplier=1, clients_per_round=80, target_epsilon=1e-5, **given
  )


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'num_clients': 79}, '`clients_per_round` must be at most `num_clients`'),
    ({'num_clients': 10**13}, '`num_clients` must be at most'),
    ({'num_rounds': 0}, '`num_rounds` must be at least 1, found 0'),
    ({'num_rounds': 10**8}, '`num_rounds` must be at most'),
    ({'noise_multiplier': 0}, '`noise_multiplier` must be positive'),
    ({'noise_multiplier': 1e-3}, '`noise_multiplier` must be at least 0.01'),
    ({'noise_multiplier': 1e9}, '`noise_multiplier` must be at most'),
    ({'target_delta': 1}, '`target_delta` must be between 0 and 1'),
    ({'target_delta': 1e-21}, '`target_delta` must be at least 1e-20'),
    ({'target_epsilon': 0}, '`target_epsilon` must be positive'),
    ({'target_epsilon': 1.3}, '`target_epsilon` must be at least the 1.39'),
    ({'sampling': 'uniform'}, "`sampling` must be one of 'poisson'"),
    ({'sampling': 'none'}, '`clients_per_round` must equal `num_clients`'),
    ({'accountant': 'gdp'}, "`accountant` must be one of 'rdp'"),
    ({**ALLOCATION, 'accountant': 'rdp'}, "`accountant` must be 'pld' where"),
    (
      {'sampling': 'fixed_size', 'accountant': 'gaussian'},
      "`accountant` must be 'rdp' or 'pld' where",
    ),
    (
      {**ALLOCATION, 'clients_per_round': 81},
      'must divide `num_clients` .* found 81 of 1920',
    ),
  ],
)
def test_a_plan_that_is_not_accounted_for_is_refused(change, message):
  with pytest.raises(ValueError, match=message) as caught:
    build_plan(**change)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  ('solve', 'change', 'message'),
  [
    (_solve_cohort, {'noise_to_clients_ratio': 1e-3}, 'even with `clients_per'),
    (_solve_cohort, {'noise_to_clients_ratio': 1e9}, r'1e\+09 gives no cohort'),
    (_solve_cohort, {'noise_to_clients_ratio': 0}, 'ratio` must be positive'),
    (_solve_cohort, {'sampling': 'none'}, '`clients_per_round` must be given'),
    (_solve_cohort, ALLOCATION, '`clients_per_round` must be given where'),
    (_solve_clients, {}, 'out of reach: even with `num_clients`'),
    (_solve_clients, {'sampling': 'none'}, '`num_clients` must be given'),
    (_solve_clients, ALLOCATION, '`num_clients` must be given'),
  ],
)
def test_no_cohort_or_population_is_large_enough(solve, change, message):
  with pytest.raises(ValueError, match=message):
    solve(**{'num_rounds': 100, 'target_delta': 1e-5} | change)


@pytest.mark.parametrize(
  'changes',
  [{'noise_multiplier': 1.6}, {'min_separation': 2}, {'num_rounds': ...}],
)
def test_a_constructor_takes_the_attributes_that_it_does_not_find(changes):
  given = {**PAPER, 'num_rounds': 100, **changes}
  given = {name: value for name, value in given.items() if value is not ...}
  with pytest.raises(TypeError, match=f"'{next(iter(changes))}'"):
    privacy.PrivacyPlan.from_target_epsilon(target_epsilon=1.5, **given)


def test_noise_for_poisson_cohorts_costs_more_for_cohorts_of_a_fixed_size():
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_rounds=100, target_epsilon=1.5, **PAPER
  )
  fixed = dataclasses.replace(
    plan, sampling='fixed_size', accountant='pld', target_epsilon=None
  )
  assert plan.target_epsilon == 1.5
  # As published for the paper's experiments.
  assert fixed.epsilon == pytest.approx(5.878, abs=0.002)


def test_permits_the_rounds_of_the_plan_and_those_within_the_target():
  plan = build_plan()
  assert plan.epsilon_after(0) == 0
  assert 0 < plan.epsilon_after(1) < plan.epsilon_after(99) < plan.epsilon
  assert plan.permits(100)
  assert not plan.permits(101)
  wider = build_plan(target_epsilon=1.5)
  most = privacy.compute_max_rounds(
    noise_multiplier=1.6, target_epsilon=1.5, **PAPER
  )
  assert most > 100
  assert wider.permits(most)
  assert not wider.permits(most + 1)
  assert not wider.permits(10**9)


@pytest.mark.parametrize('factor', [1 + 3e-16, 1 + 1e-12, 1 - 1e-12])
def test_another_last_digit_of_epsilon_changes_nothing(monkeypatch, factor):
  plan = build_plan(target_epsilon=build_plan().epsilon)
  short = build_plan(num_rounds=2, target_epsilon=plan.epsilon)
  written = [privacy.plan_to_json(plan), privacy.plan_to_json(short)]
  compute = renyi.RenyiCost.compute_epsilon
  monkeypatch.setattr(
    renyi.RenyiCost,
    'compute_epsilon',
    lambda self, delta: factor * compute(self, delta),
  )
  assert [*map(privacy.plan_from_json, written)] == [plan, short]
  there = privacy.plan_from_json(written[1])
  assert there.permits(100)
  assert there.permitted_rounds == 100


def test_an_accountant_that_finds_more_than_the_target_permits_fewer_rounds(
  monkeypatch,
):
  plan = build_plan(target_epsilon=build_plan().epsilon)
  once = build_plan(num_rounds=1)
  once = dataclasses.replace(once, target_epsilon=once.epsilon)
  written = [privacy.plan_to_json(plan), privacy.plan_to_json(once)]
  compute = renyi.RenyiCost.compute_epsilon
  monkeypatch.setattr(
    renyi.RenyiCost,
    'compute_epsilon',
    lambda self, delta: (1 + 1e-5) * compute(self, delta),
  )
  read, read_once = map(privacy.plan_from_json, written)
  assert (read, read_once) == (plan, once)
  assert read.epsilon > read.target_epsilon
  assert (read.permits(99), read.permits(100)) == (True, False)
  assert (read.permitted_rounds, read_once.permitted_rounds) == (99, 0)
  # The largest target there is.
  widest = dataclasses.replace(plan, target_epsilon=1e6)
  assert privacy.plan_from_json(privacy.plan_to_json(widest)) == widest
  # Nobody has found the epsilon of another value.
  del written[0]['epsilon']
  with pytest.raises(ValueError, match='`target_epsilon` must be at least'):
    privacy.plan_from_json(written[0])


def test_a_target_has_no_more_slack_than_the_last_digits():
  epsilon = build_plan().epsilon
  build_plan(target_epsilon=epsilon * (1 - 1e-10))
  with pytest.raises(ValueError, match='`target_epsilon` must be at least'):
    build_plan(target_epsilon=epsilon * (1 - 1e-8))
  short = build_plan(num_rounds=2, target_epsilon=epsilon * (1 - 1e-8))
  assert short.permitted_rounds == 99


@pytest.mark.parametrize(
  'setting',
  [
    {'target_epsilon': 20.0},
    {'sampling': 'fixed_size'},
    {'sampling': 'random_allocation', 'accountant': 'pld'},
  ],
)
def test_json_round_trip(setting):
  # NumPy's numbers become Python's.
  plan = build_plan(num_clients=np.int64(1920), **setting)
  value = json.loads(json.dumps(privacy.plan_to_json(plan)))
  assert privacy.plan_from_json(value) == plan == build_plan(**setting)
  assert value['epsilon'] == plan.epsilon


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'epsilon': 0.5}, '`epsilon` must be the 1.39'),
    ({'noise_multiplier': 3.0}, '`epsilon` must be the'),
    ({'num_round': 5}, "found \\['num_round'\\]"),
    ({'format': 2}, '`value` must be of format 1, found 2'),
  ],
)
def test_json_changed_by_hand_raises(change, message):
  value = privacy.plan_to_json(build_plan())
  with pytest.raises(ValueError, match=message):
    privacy.plan_from_json({**value, **change})
  del value['sampling']
  with pytest.raises(ValueError, match="found none of \\['sampling'\\]"):
    privacy.plan_from_json(value)
  with pytest.raises(TypeError, match='must be a mapping'):
    privacy.plan_from_json([1, 2])


def test_json_of_an_earlier_version_is_read_or_refused_by_its_name():
  value = privacy.plan_to_json(build_plan())
  # It had bounds of cohorts, most plans none, and an epsilon that was said
  # twice.
  value |= {'min_clients_per_round': None, 'actual_epsilon': value['epsilon']}
  assert privacy.plan_from_json(value) == build_plan()
  with pytest.raises(gone.GoneError, match="'paper' .* went in 0.3"):
    privacy.plan_from_json({**value, 'sampling': 'paper'})


@pytest.mark.parametrize(
  ('build', 'given'),
  [
    (privacy.PrivacyPlan, {'num_rounds': 5, 'noise_multiplier': 1.6}),
    (
      privacy.PrivacyPlan.from_target_epsilon,
      {'num_rounds': 5, 'target_epsilon': 2.0},
    ),
    (
      privacy.PrivacyPlan.from_max_rounds,
      {'noise_multiplier': 3.0, 'target_epsilon': 2.0},
    ),
  ],
)
def test_large_delta_is_warned_of_once_at_the_call(build, given):
  with pytest.warns() as caught:
    build(**POPULATION, target_delta=0.01, **given)
  assert [each.category for each in caught] == [privacy.DeltaTooLargeWarning]
  assert caught[0].filename == __file__


def test_a_delta_below_what_the_draws_add_is_warned_of_once():
  with pytest.warns() as caught:
    plan = privacy.PrivacyPlan.from_target_epsilon(
      target_epsilon=8.0, **{**PAPER, 'num_rounds': 10, 'target_delta': 1e-18}
    )
  assert [each.category for each in caught] == [privacy.DeltaTooSmallWarning]
  assert caught[0].filename == __file__
  # 4e-13 (1 + e^epsilon), as docs/guarantees.md has it.
  added = 4e-13 * (1 + math.exp(plan.epsilon))
  assert f'at least {added:.2g} for epsilon' in str(caught[0].message)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    build_plan(target_delta=2e-9, num_rounds=10)


def test_fewest_clients_of_a_published_example():
  # TensorFlow Federated, tutorial "Differential Privacy in TFF": 3383 clients,
  # 100 rounds and noise of 0.01 a client need 120 clients and noise 1.2.
  plan = privacy.PrivacyPlan.from_noise_to_clients_ratio(
    num_clients=3383,
    num_rounds=100,
    noise_to_clients_ratio=0.01,
    target_epsilon=2,
    target_delta=1e-5,
  )
  assert plan.clients_per_round == 120
  assert plan.noise_multiplier == pytest.approx(1.2)


@pytest.mark.slow
def test_epsilon_of_fewer_rounds_does_not_hold_where_releases_chose_them():
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=1000,
    clients_per_round=1000,
    num_rounds=100,
    target_epsilon=1.5,
    target_delta=1e-5,
    sampling='none',
    accountant='pld',
  )
  epsilons = np.array([plan.epsilon_after(n) for n in range(1, 101)])
  noise, generator = plan.noise_multiplier, np.random.default_rng(0)

  def sum_deltas(epsilon, losses):
    return np.sum(np.maximum(1 - np.exp(epsilon - losses), 0))

  stopped = of_all_rounds = 0.0
  for _ in range(10):
    draws = generator.standard_normal((100_000, 100))
    losses = np.cumsum(0.5 / noise**2 + draws / noise, axis=1)
    # A run stops where its loss first exceeds the epsilon so far by 0.02.
    is_over = losses > epsilons + 0.02
    rounds = np.where(is_over.any(axis=1), is_over.argmax(axis=1), 99)
    at_stop = np.take_along_axis(losses, rounds[:, np.newaxis], axis=1)[:, 0]
    stopped += sum_deltas(epsilons[rounds], at_stop)
    of_all_rounds += sum_deltas(epsilons[-1], losses[:, -1])
  # Nine times the delta of the plan.
  assert 8.5e-5 < stopped / 1_000_000 < 9.5e-5
  # Without stopping the same draws agree with the plan, to 4 standard errors.
  assert of_all_rounds / 1_000_000 == pytest.approx(1e-5, abs=4e-6)
