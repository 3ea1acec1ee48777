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
  {
    'sampling': 'grouped_poisson',
    'min_separation': 6,
    'mechanism': 'banded',
  },
  {'sampling': 'poisson'},
  {'sampling': 'fixed_size', 'accountant': 'pld'},
]


def solve(**values):
  return budget_question.solve(budget_question.Question(**values))


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


def compute_by_library(num_clients, *, num_rounds, noise_multiplier):
  """Returns the epsilon of Poisson cohorts of 80 by dp_accounting alone."""
  event = dp_accounting.PoissonSampledDpEvent(
    80 / num_clients, dp_accounting.GaussianDpEvent(noise_multiplier)
  )
  accountant = rdp.RdpAccountant().compose(event, num_rounds)
  return accountant.get_epsilon(1e-5)


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
    less, more = (
      round(plan.num_clients * 0.997),
      round(plan.num_clients * 1.003),
    )
    assert compute_by_library(more, **numbers) <= 1.5
    assert compute_by_library(less, **numbers) > 1.5


@pytest.mark.parametrize('mechanism', privacy.MECHANISMS)
def test_one_round_more_does_not_fit(mechanism):
  setting = {
    **PAPER,
    'sampling': 'min_separation',
    'min_separation': 24,
    'mechanism': mechanism,
    'noise_multiplier': 5,
  }
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
  setting = {'sampling': 'min_separation', 'min_separation': 24}
  with pytest.raises(ValueError, match='even with `num_rounds` 50, the last'):
    budget_question.solve(
      budget_question.Question(
        **PAPER, **setting, noise_multiplier=1000, target_epsilon=3
      ),
      max_strategy_rounds=50,
    )
  with pytest.raises(ValueError, match='`num_rounds` must be at most 50'):
    budget_question.solve(
      budget_question.Question(
        **PAPER, **setting, num_rounds=51, target_epsilon=3
      ),
      max_strategy_rounds=50,
    )


_ONE_LEFT = 'all but one of .* must be given, .* found'


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'num_rounds': 1}, f'{_ONE_LEFT} .*`num_rounds`.$'),
    ({'num_rounds': 1, 'target_epsilon': 1, 'noise_multiplier': 1}, _ONE_LEFT),
    ({'num_rounds': 1, 'target_epsilon': 1, 'num_clients': None}, _ONE_LEFT),
    ({'num_rounds': 1, 'noise_to_clients_ratio': 0.1}, _ONE_LEFT),
    (
      {'num_rounds': 1, 'target_epsilon': 1, 'sampling': 'min_separation'},
      '`min_separation` must be given with',
    ),
    (
      {'num_rounds': 1, 'target_epsilon': 1, 'mechanism': 'blt'},
      "`mechanism` must be 'gaussian' where `sampling` is none of",
    ),
    (
      {
        **{'num_rounds': 1, 'target_epsilon': 1, 'sampling': 'min_separation'},
        **{'min_separation': 2, 'accountant': 'rdp'},
      },
      '`accountant` must not be given where',
    ),
  ],
)
def test_incomplete_questions_raise(values, message):
  with pytest.raises(ValueError, match=message):
    budget_question.Question(**{**PAPER, **values})
