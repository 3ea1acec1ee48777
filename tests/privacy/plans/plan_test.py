"""Tests of tff_clipping.privacy.plans.plan."""

import dataclasses
import importlib.metadata
import json
import math
import warnings

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

import tff_clipping
from tests.privacy.paper import PAPER, build_plan
from tff_clipping import gone, privacy
from tff_clipping.privacy.accounting import renyi, sampled_gaussian
from tff_clipping.privacy.plans import functions, words

ALL_CLIENTS = {**PAPER, 'clients_per_round': 1920}


@pytest.mark.parametrize(
  ('sampling', 'event', 'relation', 'factor'),
  [
    (
      'poisson',
      dp_accounting.PoissonSampledDpEvent(
        80 / 1920, dp_accounting.GaussianDpEvent(1.6)
      ),
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
  ],
)
def test_plan_holds_event_and_relation(sampling, event, relation, factor):
  plan = build_plan(sampling=sampling)
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(event, 100)
  assert plan.relation is relation
  assert plan.sensitivity_factor == factor
  assert plan.sampling_prob == 80 / 1920
  accountant = rdp.RdpAccountant(
    neighboring_relation=relation.accountant_relation
  ).compose(plan.dp_event)
  expected = accountant.get_epsilon(1e-5)
  assert plan.epsilon == pytest.approx(expected, rel=1e-9)


def test_plan_of_all_clients_charges_gaussians():
  plan = build_plan(**ALL_CLIENTS, sampling='none', noise_multiplier=40)
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(
    dp_accounting.GaussianDpEvent(40.0), 100
  )
  assert plan.sampler_parameters == ('none', 1920, 1.0, 1920)


@pytest.mark.parametrize(
  ('sampling', 'parameters'),
  [
    ('poisson', ('poisson', 1920, 80 / 1920, None)),
    ('fixed_size', ('fixed_size', 1920, 80 / 1920, 80)),
    ('random_allocation', ('random_allocation', 1920, 80 / 1920, None)),
  ],
)
def test_sampler_and_aggregator_parameters(sampling, parameters):
  plan = build_plan(sampling=sampling, accountant='pld')
  assert plan.sampler_parameters == parameters
  assert plan.aggregator_parameters == (1.6, 80)
  assert plan.aggregator_parameters._asdict() == {
    'noise_multiplier': 1.6,
    'clients_per_round': 80,
  }


@pytest.mark.parametrize(
  ('setting', 'least', 'largest'),
  [
    ({'sampling': 'fixed_size'}, 80, 80),
    # A neighbour has a client less, or one more.
    (
      {**ALL_CLIENTS, 'sampling': 'none', 'noise_multiplier': 40},
      1919,
      1921,
    ),
  ],
)
def test_shares_have_the_bounds_of_all_neighbours(setting, least, largest):
  plan = build_plan(**setting)
  shares = plan.share_parameters
  assert shares == (
    plan.noise_multiplier,
    plan.clients_per_round,
    least,
    largest,
  )
  # The least cohort's shares are what is charged.
  assert shares.share_multiplier * least**0.5 == pytest.approx(
    plan.noise_multiplier
  )
  assert shares.release_multiplier == pytest.approx(
    shares.share_multiplier * largest**0.5
  )
  assert shares.release_multiplier >= plan.noise_multiplier * (1 - 1e-12)


def test_shares_are_of_one_client_at_least_and_of_cohorts_with_bounds():
  shares = privacy.ShareParameters(2.0, 3, 0, 9)
  assert shares.share_multiplier == 2
  assert shares.release_multiplier == 6
  with pytest.raises(ValueError, match="`sampling` must be 'fixed_size'"):
    build_plan(sampling='poisson').share_parameters  # noqa: B018


def test_random_allocation_charges_whole_epochs():
  plan = build_plan(sampling='random_allocation', accountant='pld')
  assert plan.dp_event == dp_accounting.SelfComposedDpEvent(
    sampled_gaussian.RandomAllocationDpEvent(
      24, dp_accounting.GaussianDpEvent(1.6)
    ),
    5,  # Of 100 rounds, four are of a fifth epoch.
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


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'accountant': 'rdp'}, "`accountant` must be 'pld' where `sampling` is"),
    ({'clients_per_round': 81}, 'must divide `num_clients` .* 80 and 96 would'),
  ],
)
def test_random_allocation_that_has_no_plan_is_refused(change, message):
  allocation = {'sampling': 'random_allocation', 'accountant': 'pld'}
  with pytest.raises(ValueError, match=message):
    build_plan(**{**allocation, **change})
  with pytest.raises(ValueError, match=message):
    privacy.PrivacyPlan.from_target_epsilon(
      **{**PAPER, **allocation, **change}, num_rounds=96, target_epsilon=1.5
    )


def test_json_of_a_plan_with_bounds_of_cohorts_is_refused():
  plan = build_plan()
  bounds = {'min_clients_per_round': 31, 'max_clients_per_round': 141}
  # Plans of earlier versions had none, most of them.
  value = {**privacy.plan_to_json(plan), **dict.fromkeys(bounds)}
  assert privacy.plan_from_json(value) == plan
  value |= {'sampling': 'truncated_poisson', **bounds}
  with pytest.raises(
    gone.GoneError, match="'truncated_poisson' .* went in 0.3"
  ):
    privacy.plan_from_json(value)


def test_from_target_epsilon_keeps_the_target():
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_rounds=100, target_epsilon=1.5, **PAPER
  )
  assert plan.noise_multiplier == pytest.approx(1.529983, rel=1e-5)
  assert 1.4999 < plan.epsilon <= 1.5 == plan.target_epsilon


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
  # As published for the paper's experiments.
  assert fixed.epsilon == pytest.approx(5.878, abs=0.002)


def test_epsilon_after_counts_rounds():
  plan = build_plan()
  assert plan.epsilon_after(0) == 0
  assert plan.epsilon_after(100) == plan.epsilon
  assert 0 < plan.epsilon_after(1) < plan.epsilon_after(50) < plan.epsilon
  with pytest.raises(ValueError, match='`num_rounds` must be at least 0'):
    plan.epsilon_after(-1)


def test_permits_the_rounds_of_the_plan_and_those_within_the_target():
  plan = build_plan()
  assert plan.permits(100)
  assert not plan.permits(101)
  wider = build_plan(target_epsilon=1.5)
  most = functions.compute_max_rounds(
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
  assert [privacy.plan_from_json(each) for each in written] == [
    plan,
    short,
  ]
  there = privacy.plan_from_json(written[1])
  assert there.permits(100)
  assert there.permitted_rounds == 100


def test_a_target_has_no_more_slack_than_the_last_digits():
  epsilon = build_plan().epsilon
  build_plan(target_epsilon=epsilon * (1 - 1e-10))
  with pytest.raises(ValueError, match='`target_epsilon` must be at least'):
    build_plan(target_epsilon=epsilon * (1 - 1e-8))
  short = build_plan(num_rounds=2, target_epsilon=epsilon * (1 - 1e-8))
  assert short.permitted_rounds == 99


@pytest.mark.parametrize(
  ('sampling', 'accountant'),
  [
    *((each, 'rdp') for each in ('poisson', 'fixed_size')),
    ('random_allocation', 'pld'),
  ],
)
@pytest.mark.parametrize('target', [None, 20.0])
def test_json_round_trip(sampling, accountant, target):
  plan = build_plan(
    sampling=sampling, accountant=accountant, target_epsilon=target
  )
  value = json.loads(json.dumps(privacy.plan_to_json(plan)))
  assert privacy.plan_from_json(value) == plan
  assert value['epsilon'] == plan.epsilon


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'epsilon': 0.5}, '`epsilon` must be the 1.39'),
    ({'noise_multiplier': 3.0}, '`epsilon` must be the'),
    ({'num_rounds': 0}, '`num_rounds` must be at least 1'),
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


def test_json_of_the_papers_accounting_is_refused_by_its_name():
  value = privacy.plan_to_json(build_plan())
  # Version 0.2 wrote two epsilons, of which the second was the first.
  old = {**value, 'actual_epsilon': value['epsilon']}
  assert privacy.plan_from_json(old) == build_plan()
  with pytest.raises(gone.GoneError, match="'paper' .* went in 0.3"):
    privacy.plan_from_json({**old, 'sampling': 'paper'})


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  [
    ({'target_epsilon': 0}, ValueError, '`target_epsilon` must be positive'),
    ({'target_epsilon': 1.3}, ValueError, '`target_epsilon` must be at least'),
    ({'target_epsilon': '2'}, TypeError, '`target_epsilon` must be a number'),
  ],
)
def test_bad_target_raises(change, error, message):
  with pytest.raises(error, match=message):
    build_plan(**change)


@pytest.mark.parametrize(
  'build',
  [
    lambda **setting: privacy.PrivacyPlan(
      num_rounds=5, noise_multiplier=1.6, **{**PAPER, **setting}
    ),
    lambda **setting: privacy.PrivacyPlan.from_target_epsilon(
      num_rounds=5, target_epsilon=2.0, **{**PAPER, **setting}
    ),
    lambda **setting: privacy.PrivacyPlan.from_max_rounds(
      noise_multiplier=3.0, target_epsilon=2.0, **{**PAPER, **setting}
    ),
  ],
)
def test_large_delta_is_warned_of_once_at_the_call(build):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    build(target_delta=0.01)
  assert [each.category for each in caught] == [privacy.DeltaTooLargeWarning]
  assert caught[0].filename == __file__


def test_a_delta_below_what_the_draws_add_is_warned_of_once():
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    plan = privacy.PrivacyPlan.from_target_epsilon(
      target_epsilon=8.0, **{**PAPER, 'num_rounds': 10, 'target_delta': 1e-18}
    )
  assert [each.category for each in caught] == [privacy.DeltaTooSmallWarning]
  assert caught[0].filename == __file__
  # 4e-13 (1 + e^epsilon), as docs/guarantees.md has it.
  added = 4e-13 * (1 + math.exp(plan.epsilon))
  assert f'at least {added:.2g} for epsilon' in str(caught[0].message)


@pytest.mark.parametrize('delta', [1e-9, 2e-9])
def test_a_delta_that_the_draws_do_not_change_is_not_warned_of(delta):
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    privacy.PrivacyPlan.from_target_epsilon(
      target_epsilon=7.5, **{**PAPER, 'num_rounds': 10, 'target_delta': delta}
    )


def test_each_accountant_is_named_by_what_computes_it():
  ours = f'tff-clipping {tff_clipping.__version__}'
  theirs = f'dp-accounting {importlib.metadata.version("dp-accounting")}'
  assert words.name_accountant('pld').endswith(f'({ours})')
  assert words.name_accountant('rdp').endswith(f'({ours}, {theirs})')


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
@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_fewest_clients_meet_the_target_and_one_less_does_not(
  sampling, accountant
):
  plan = privacy.PrivacyPlan.from_noise_to_clients_ratio(
    num_clients=1920,
    num_rounds=100,
    noise_to_clients_ratio=0.03,
    target_epsilon=3,
    target_delta=1e-5,
    sampling=sampling,
    accountant=accountant,
  )
  assert plan.sampling == sampling
  assert plan.noise_multiplier == 0.03 * plan.clients_per_round
  assert plan.epsilon <= 3
  fewer = plan.clients_per_round - 1
  with pytest.raises(ValueError, match='`target_epsilon` must be at least the'):
    dataclasses.replace(
      plan,
      clients_per_round=fewer,
      noise_multiplier=0.03 * fewer,
    )


@pytest.mark.parametrize(
  ('changes', 'error', 'message'),
  [
    (
      {'noise_to_clients_ratio': 1e-3},
      ValueError,
      'out of reach: even with `clie',
    ),
    ({'noise_to_clients_ratio': 1e9}, ValueError, 'ratio` 1e\\+09 gives no'),
    ({'noise_to_clients_ratio': 0}, ValueError, 'ratio` must be positive'),
    ({'noise_to_clients_ratio': '1'}, TypeError, 'ratio` must be a number'),
    ({'sampling': 'none'}, ValueError, 'have a fixed share of the population'),
    (
      {'sampling': 'random_allocation', 'accountant': 'pld'},
      ValueError,
      'have a fixed share of the population',
    ),
    ({'target_epsilon': -1}, ValueError, '`target_epsilon` must be positive'),
    ({'num_rounds': 0}, ValueError, '`num_rounds` must be at least 1'),
    ({'accountant': 'gdp'}, ValueError, '`accountant` must be one'),
  ],
)
def test_no_cohort_is_large_enough(changes, error, message):
  with pytest.raises(error, match=message):
    privacy.PrivacyPlan.from_noise_to_clients_ratio(
      **{
        'num_clients': 1920,
        'num_rounds': 100,
        'noise_to_clients_ratio': 0.03,
        'target_epsilon': 3,
        'target_delta': 1e-5,
        **changes,
      }
    )


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
  mean = 0.5 / plan.noise_multiplier**2  # Of the loss of a round, a normal one.
  generator, num_runs = np.random.default_rng(0), 2_000_000
  needed, of_all_rounds = [], []
  for _ in range(num_runs // 100_000):
    draws = generator.standard_normal((100_000, 100))
    losses = np.cumsum(mean + draws / plan.noise_multiplier, axis=1)
    # A run stops where its loss first exceeds the epsilon so far by 0.02.
    is_over = losses > epsilons + 0.02
    stopped = np.flatnonzero(is_over.any(axis=1))
    rounds = is_over[stopped].argmax(axis=1)
    needed.append(1 - np.exp(epsilons[rounds] - losses[stopped, rounds]))
    of_all = losses[:, -1][losses[:, -1] > epsilons[-1]]
    of_all_rounds.append(1 - np.exp(epsilons[-1] - of_all))
  delta = np.sum(np.concatenate(needed)) / num_runs
  # Nine times the delta of the plan.
  assert 8.5e-5 < delta < 9.5e-5
  # Without stopping the same draws agree with the plan, to 4 standard errors.
  delta = np.sum(np.concatenate(of_all_rounds)) / num_runs
  assert delta == pytest.approx(1e-5, abs=4e-6)
