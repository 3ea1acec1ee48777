"""Tests of the audit of a plan."""

import dataclasses
import json

import numpy as np
import pytest

from tests.privacy.paper import build_plan
from tff_clipping.privacy import Relation, audit


def _plan(sampling='poisson', **changes):
  setting = dict(
    num_clients=2000,
    clients_per_round=1000,
    num_rounds=3,
    target_delta=1e-4,
    noise_multiplier=2.0,
    accountant='pld' if sampling == 'fixed_size' else 'rdp',
  )
  return build_plan(sampling=sampling, **setting | changes)


def _canaries(plan, num_canaries=1024):
  return audit.Canaries(
    num_canaries=num_canaries,
    num_parameters=4096,
    seed=0,
    relation=plan.relation,
  )


def _simulate(plan, canaries, noise_multiplier):
  rng = np.random.default_rng(1)
  shape = plan.num_rounds, canaries.num_canaries
  took_part = rng.random(shape) < plan.sampling_prob
  products = took_part * np.sign(canaries.marks) + (
    noise_multiplier * rng.normal(size=shape)
  )
  return audit.score_releases(
    products,
    sampling_prob=plan.sampling_prob,
    noise_multiplier=plan.noise_multiplier,
    relation=canaries.relation,
  )


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_noise_as_claimed_is_not_refuted_and_a_tenth_is(sampling):
  plan = _plan(sampling, noise_multiplier=8.0)
  canaries = _canaries(plan)
  for noise_multiplier, expected in ((8.0, False), (0.8, True)):
    scores = _simulate(plan, canaries, noise_multiplier)
    result = audit.audit_plan(plan, canaries, scores, confidence=0.999)
    assert result.is_refuted == expected


def test_bounds_of_sound_noise_are_below_the_claim():
  plan = _plan('none', clients_per_round=2000, noise_multiplier=1.0)
  canaries = _canaries(plan)
  result = audit.audit_plan(plan, canaries, _simulate(plan, canaries, 1.0))
  assert 0 < result.epsilon_lower_bound < result.claimed_epsilon
  attack = result.attacks['all_releases']
  assert 0 < attack.gaussian_epsilon_lower_bound < plan.epsilon
  # At one false positive in a hundred.
  assert 0.1 < attack.true_positive_rate
  assert attack.true_positive_rate < result.allowed_true_positive_rate + 0.05
  assert result.num_canaries_in + result.num_canaries_out == 1024


def test_json_is_of_numbers_and_says_that_it_is_no_private_release():
  plan = _plan()
  canaries = _canaries(plan, 16)
  scores = {'infinite': np.where(canaries.is_in, np.inf, 0)}
  result = json.loads(audit.audit_plan(plan, canaries, scores).to_json())
  assert 'not a private release' in result['note']
  assert result['attacks']['infinite']['epsilon_estimate'] is None
  assert result['claimed_epsilon'] == plan.epsilon


def test_confidence_is_shared_among_the_attacks():
  plan = _plan()
  canaries = _canaries(plan)
  scores = {'a': _simulate(plan, canaries, 0.4)['all_releases']}
  alone = audit.audit_plan(plan, canaries, scores)
  together = audit.audit_plan(
    plan, canaries, {**scores, 'b': np.arange(1024.0)}
  )
  assert together.epsilon_lower_bound < alone.epsilon_lower_bound
  exact = audit.audit_plan(plan, canaries, scores, confidence=0.975)
  assert together.attacks['a'] == exact.attacks['a']


def test_plan_with_canaries_keeps_the_chance_of_a_client():
  plan = build_plan(target_epsilon=1.5)
  widened = audit.add_canaries_to_plan(plan, 2000)
  # 80 * 3920 / 1920 = 163.3
  expected = dataclasses.replace(plan, num_clients=3920, clients_per_round=163)
  assert widened == expected
  assert widened.epsilon <= plan.epsilon
  # Of all clients, all.
  plan = _plan('none', clients_per_round=2000)
  assert audit.add_canaries_to_plan(plan, 24).clients_per_round == 2024


def test_wrong_arguments_raise():
  plan = _plan()
  canaries = _canaries(plan, 16)
  replaced = dataclasses.replace(canaries, relation=Relation.REPLACE_ONE)
  scores = {'a': np.zeros(16)}
  for change, message in (
    ({'scores': {}}, '`scores` must have an attack'),
    ({'confidence': 2.0}, '`confidence`.*found 2.0'),
    ({'canaries': replaced}, 'of the relation add_or_remove_one'),
    (
      {'canaries': _canaries(plan, 2)},
      'found that the coins of all 2 say in',
    ),
  ):
    given = {'plan': plan, 'canaries': canaries, 'scores': scores}
    with pytest.raises(ValueError, match=message):
      audit.audit_plan(**given | change)
