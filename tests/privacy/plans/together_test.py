"""Tests of tff_clipping.privacy.plans.together."""

import dataclasses

import dp_accounting
import pytest
from dp_accounting import pld, rdp

from tests.privacy.paper import build_plan, compose_plans
from tff_clipping import privacy

DELTA = 1e-6
# Unlike in all that a plan may differ in.
PLANS = [
  privacy.PrivacyPlan(
    num_clients=num_clients,
    clients_per_round=cohort,
    num_rounds=num_rounds,
    noise_multiplier=noise,
    target_delta=DELTA,
  )
  for num_clients, cohort, num_rounds, noise in (
    (20_000, 400, 30, 1.1),
    (5_000, 50, 80, 0.9),
    (20_000, 200, 15, 0.8),
  )
]


def compose_by_library(accountant):
  """Adds the events up by dp_accounting alone."""
  for plan in PLANS:
    event = dp_accounting.PoissonSampledDpEvent(
      plan.clients_per_round / plan.num_clients,
      dp_accounting.GaussianDpEvent(plan.noise_multiplier),
    )
    accountant.compose(event, plan.num_rounds)
  return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(
  ('accountant', 'library'),
  [
    # Of orders that differ in part, of which the best counts.
    ('rdp', rdp.RdpAccountant),
    # A grid of 1e-3 adds at most so much in each of 125 rounds, and far less on
    # average.
    ('pld', lambda: pld.PLDAccountant(value_discretization_interval=1e-3)),
  ],
)
def test_runs_cost_together_what_dp_accounting_says(accountant, library):
  plans = [dataclasses.replace(each, accountant=accountant) for each in PLANS]
  cost = compose_plans(plans)
  expected = compose_by_library(library())
  assert cost.epsilon == pytest.approx(expected, rel=5e-3)
  assert (cost.accountant, cost.num_releases) == (accountant, 125)
  assert cost.relation is privacy.Relation.ADD_OR_REMOVE_ONE
  alone = [plan.epsilon for plan in plans]
  assert max(alone) < cost.epsilon < sum(alone)
  # The same by a flag, whatever the plans are charged by.
  asked = compose_plans(PLANS, accountant=accountant)
  assert asked.epsilon == cost.epsilon


def test_what_cannot_be_added_up_raises():
  plan = PLANS[0]
  with pytest.raises(ValueError, match='`runs` must be at least one'):
    compose_plans([])
  other = dataclasses.replace(plan, sampling='fixed_size', noise_multiplier=5)
  with pytest.raises(ValueError, match='of one neighbouring relation'):
    compose_plans([plan, other])
  other = dataclasses.replace(plan, target_delta=1e-7)
  with pytest.raises(ValueError, match='`target_delta` must be given where'):
    compose_plans([plan, other])
  at_given = compose_plans([plan, other], target_delta=1e-6)
  assert at_given.target_delta == 1e-6
  with pytest.raises(ValueError, match='`accountant` must be one of'):
    compose_plans([plan], accountant='gdp')


def test_a_delta_that_is_too_large_for_a_population_is_warned_of():
  # Above 1 / 20,000, and below 1 / 5,000.
  with pytest.warns(privacy.DeltaTooLargeWarning, match='= 5e-05'):
    compose_plans(PLANS, target_delta=1e-4)


def test_draws_may_add_too_much_to_delta_only_of_runs_together():
  setting = {'noise_multiplier': 1.0, 'target_delta': 1e-10}
  with pytest.warns(privacy.DeltaTooSmallWarning):
    plan = build_plan(**setting)
  # 4e-13 (1 + e^epsilon) sqrt(rounds / 1e5), as docs/guarantees.md has it.
  assert not plan.caveats
  with pytest.warns(privacy.DeltaTooSmallWarning, match='for epsilon 9.6'):
    spent = compose_plans([plan] * 4)
  (caveat,) = spent.caveats
  assert 'may add more to delta' in caveat


@pytest.mark.parametrize('count', [-1, 0.5, True, 10**7 + 1])
def test_a_number_of_rounds_that_no_run_has_is_refused(count):
  with pytest.raises((TypeError, ValueError), match='`runs` must be'):
    privacy.compose_together([(PLANS[0], 20), (PLANS[0], count)])
