"""Tests of tff_clipping.programs.checks.cohort_checks."""

import pytest

from tests import noise_strategies
from tff_clipping import privacy
from tff_clipping.privacy import audit
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.checks import cohort_checks
from tff_clipping.programs.clients import client_sampling

_IDS = tuple(map(str, range(12)))
_STRATEGY = noise_strategies.blt(12)


class _Own(client_sampling.ClientSampler):
  """Draws what it is told."""

  def __init__(self, cohorts):
    super().__init__(_IDS, seed=0)
    self._cohorts = cohorts

  def sample(self, round_num, draw=0):
    return list(self._cohorts[round_num - 1])


def _plan(sampling):
  if sampling == 'min_separation':
    return privacy.CorrelatedNoisePlan(
      num_clients=12,
      clients_per_round=3,
      num_rounds=12,
      target_delta=1e-2,
      noise_multiplier=5.0,
      strategy=_STRATEGY,
      min_separation=3,
    )
  return privacy.PrivacyPlan(
    num_clients=12,
    clients_per_round=12 if sampling == 'none' else 3,
    num_rounds=9,
    target_delta=1e-2,
    noise_multiplier=5.0,
    sampling=sampling,
    accountant='pld',
  )


@pytest.mark.parametrize(
  'sampling',
  [
    *('poisson', 'fixed_size', 'none', 'random_allocation'),
    'min_separation',
  ],
)
def test_cohorts_of_the_plans_own_sampler_pass(sampling):
  plan = _plan(sampling)
  sampler = client_sampling.build_private_sampler(plan, _IDS, seed=3)
  checks = cohort_checks.CohortChecks(sampler, plan)
  for round_num in range(1, 10):
    checks.check(round_num, sampler.sample(round_num))


@pytest.mark.parametrize(
  ('sampling', 'cohorts', 'message'),
  [
    ('poisson', ['11'], 'a client at most once in a cohort, .* found it twice'),
    ('fixed_size', ['12'], 'cohorts of 3, .* found one of 2 in round 1'),
    ('none', ['0123'], 'cohorts of 12, .* found one of 4'),
    ('min_separation', ['1234'], 'cohorts of 0 to 3 clients, .* one of 4'),
    (
      'min_separation',
      ['123', '456', '178'],
      'a client at most once in 3 rounds, .* one of round 1 again in round 3',
    ),
  ],
)
def test_cohorts_that_the_plan_does_not_charge_for_are_refused(
  sampling, cohorts, message
):
  sampler, plan = _Own(cohorts), _plan(sampling)
  with pytest.raises(ValueError, match=f'`sampler` must draw {message}'):
    cohort_checks.CohortChecks(sampler, plan).check(len(cohorts), cohorts[-1])


def test_a_client_that_comes_twice_in_an_epoch_is_refused():
  plan = _plan('random_allocation')
  cohorts = ['012', '345', '678', '9', '012', '034']
  sampler = _Own(cohorts)
  checks = cohort_checks.CohortChecks(sampler, plan)
  # Of four rounds each: the fifth begins another one.
  checks.check(5, cohorts[4])
  with pytest.raises(ValueError, match='at most once in an epoch, .* round 5'):
    checks.check(6, cohorts[5])


def test_canaries_that_are_held_out_are_missed_by_nobody():
  canaries = audit.Canaries(
    num_canaries=4,
    num_parameters=8,
    seed=0,
    relation=privacy.Relation.ADD_OR_REMOVE_ONE,
  )
  names = canary_clients.canary_ids(canaries)
  plan = _plan('none')
  inner = client_sampling.build_private_sampler(
    plan, [*_IDS[: 12 - len(names)], *names], seed=3
  )
  sampler = canary_clients.CanarySampler(inner, canaries)
  cohort = sampler.sample(1)
  assert len(cohort) < 12
  cohort_checks.CohortChecks(sampler, plan).check(1, cohort)
  assert sampler.seed_digest == inner.seed_digest


class _Counting(_Own):
  """Counts how often it is asked."""

  num_asked = 0

  def sample(self, round_num, draw=0):
    self.num_asked += 1
    return super().sample(round_num, draw)


def test_earlier_cohorts_are_drawn_again_where_a_run_goes_on_alone():
  cohorts = ['123', '456', '789', '123', '045', '678', '139', '1']
  sampler = _Counting(cohorts)
  checks = cohort_checks.CohortChecks(sampler, _plan('min_separation'))
  # Two rounds before the first that is looked at.
  for round_num in (4, 5, 5, 6, 7):
    checks.check(round_num, cohorts[round_num - 1])
  assert sampler.num_asked == 2
  with pytest.raises(ValueError, match='one of round 7 again in round 8'):
    checks.check(8, cohorts[7])
  # A round of before, as after a failure.
  checks.check(5, cohorts[4])
  assert sampler.num_asked == 4


def test_a_round_has_one_cohort_where_clients_take_turns():
  checks = cohort_checks.CohortChecks(_Own([]), _plan('min_separation'))
  checks.check(1, '123')
  checks.check(1, '321')
  with pytest.raises(ValueError, match='one cohort a round, .* another one in'):
    checks.check(1, '456')
