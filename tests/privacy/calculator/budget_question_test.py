"""Tests of tff_clipping.privacy.calculator.budget_question."""

import dp_accounting
import pytest
from dp_accounting import rdp

from tests.privacy.paper import PAPER
from tff_clipping import privacy
from tff_clipping.privacy.calculator import budget_question

POPULATION = {'num_clients': 1920, 'target_delta': 1e-5}
SETTINGS = [
  *(
    {'sampling': 'min_separation', 'min_separation': 24, 'mechanism': each}
    for each in privacy.MECHANISMS
  ),
  {'sampling': 'grouped_poisson', 'min_separation': 6, 'mechanism': 'banded'},
  {'sampling': 'poisson'},
  {'sampling': 'fixed_size', 'accountant': 'pld'},
]


def solve(max_strategy_rounds=1000, **values):
  question = budget_question.Question(**values)
  return budget_question.solve(
    question, max_strategy_rounds=max_strategy_rounds
  )


@pytest.mark.parametrize('setting', SETTINGS)
def test_all_directions_give_the_same_plan(setting):
  plan = solve(**PAPER, **setting, num_rounds=100, target_epsilon=2)
  noise = plan.noise_multiplier
  assert 2 * (1 - 1e-4) < plan.epsilon <= 2
  given = solve(**PAPER, **setting, num_rounds=100, noise_multiplier=noise)
  assert given.epsilon == plan.epsilon
  rounds = solve(**PAPER, **setting, noise_multiplier=noise, target_epsilon=2)
  assert rounds.num_rounds >= 100
  assert rounds.epsilon <= 2
  clients = solve(
    **POPULATION,
    **setting,
    num_rounds=100,
    target_epsilon=2,
    noise_to_clients_ratio=noise / 80,
  )
  assert clients.clients_per_round <= 80
  assert clients.epsilon <= 2
  fewer = clients.clients_per_round - 1
  cohort = {'clients_per_round': fewer, 'noise_multiplier': noise * fewer / 80}
  less = solve(**POPULATION, **setting, **cohort, num_rounds=100)
  assert less.epsilon > 2


@pytest.mark.parametrize(
  ('setting', 'num_rounds', 'noise'),
  [
    ({'sampling': 'poisson'}, 720, 1),
    ({'sampling': 'grouped_poisson', 'min_separation': 6}, 24, 3),
    (
      {'sampling': 'min_separation', 'min_separation': 6, 'mechanism': 'blt'},
      24,
      20,
    ),
  ],
)
def test_all_numbers_but_the_population_give_the_smallest(
  setting, num_rounds, noise
):
  asked = {**setting, 'clients_per_round': 80, 'target_delta': 1e-5}
  numbers = {'num_rounds': num_rounds, 'noise_multiplier': noise}
  plan = solve(**asked, **numbers, target_epsilon=1.5)
  assert plan.epsilon <= 1.5
  if plan.sampling == 'min_separation':
    # Nothing is amplified by more clients.
    assert plan.num_clients == 480
    return
  more = solve(**asked, **numbers, num_clients=plan.num_clients - 1)
  assert more.epsilon > 1.5
  if plan.sampling == 'poisson':
    # The library's orders are in part others.
    for factor, is_enough in ((1.003, True), (0.997, False)):
      event = dp_accounting.PoissonSampledDpEvent(
        80 / round(factor * plan.num_clients),
        dp_accounting.GaussianDpEvent(noise),
      )
      accountant = rdp.RdpAccountant().compose(event, num_rounds)
      assert (accountant.get_epsilon(1e-5) <= 1.5) == is_enough


@pytest.mark.parametrize('mechanism', privacy.MECHANISMS)
def test_one_round_more_does_not_fit(mechanism):
  setting = {**PAPER, 'sampling': 'min_separation', 'min_separation': 24}
  setting |= {'mechanism': mechanism, 'noise_multiplier': 5}
  plan = solve(**setting, target_epsilon=3)
  assert plan.epsilon <= 3
  assert plan.strategy.num_rounds == plan.num_rounds
  more = solve(**setting, num_rounds=plan.num_rounds + 1)
  assert more.epsilon > 3


def test_random_allocation_has_one_accountant_that_need_not_be_named():
  # Two epochs of four rounds.
  setting = {**POPULATION, 'clients_per_round': 480, 'num_rounds': 8}
  setting['sampling'] = 'random_allocation'
  plan = solve(**setting, target_epsilon=1.5)
  assert (plan.accountant, plan.relation.value) == ('pld', 'add_or_remove_one')
  assert 0 < 1.5 - plan.epsilon < 1e-3
  with pytest.raises(ValueError, match="`accountant` must be 'pld' where"):
    solve(**setting, target_epsilon=1.5, accountant='rdp')
  with pytest.raises(ValueError, match="`mechanism` must be 'gaussian' where"):
    solve(**setting, target_epsilon=1.5, mechanism='blt')


def test_more_rounds_than_strategies_are_made_for_raise():
  setting = {**PAPER, 'sampling': 'min_separation', 'min_separation': 24}
  for number, message in (
    ({'noise_multiplier': 1000}, 'even with `num_rounds` 50, the last'),
    ({'num_rounds': 51}, '`num_rounds` must be at most 50'),
  ):
    with pytest.raises(ValueError, match=message):
      solve(50, **setting, **number, target_epsilon=3)


_ENOUGH = {'num_rounds': 1, 'target_epsilon': 1}
_SEPARATED = {'sampling': 'min_separation'}
_ONE_LEFT = 'all but one of .* must be given, .* found'


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'num_rounds': 1}, f'{_ONE_LEFT} .*`num_rounds`.$'),
    ({**_ENOUGH, 'noise_multiplier': 1}, _ONE_LEFT),
    ({**_ENOUGH, 'num_clients': None}, _ONE_LEFT),
    ({'num_rounds': 1, 'noise_to_clients_ratio': 0.1}, _ONE_LEFT),
    ({**_ENOUGH, 'mechanism': 'blt'}, "`mechanism` must be 'gaussian' where"),
    ({**_ENOUGH, **_SEPARATED}, '`min_separation` must be given with'),
    (
      {**_ENOUGH, **_SEPARATED, 'min_separation': 2, 'accountant': 'rdp'},
      '`accountant` must not be given where',
    ),
  ],
)
def test_incomplete_questions_raise(values, message):
  with pytest.raises(ValueError, match=message):
    budget_question.Question(**{**PAPER, **values})
