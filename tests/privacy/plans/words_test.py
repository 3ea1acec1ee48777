"""Tests of tff_clipping.privacy.plans.words."""

import dataclasses
import importlib.metadata

import pytest

import tff_clipping
from tests.privacy.ledgers import PLAN
from tff_clipping import privacy
from tff_clipping.privacy.plans import words


@pytest.mark.parametrize('relation', privacy.Relation)
def test_a_promise_has_its_factor_and_its_delta_rounded_up(relation):
  # e = 2.71828..., e^1.5 = 4.48168...
  for epsilon, factor in ((1.0, '2.719'), (1.5, '4.482'), (0.0, '1 times')):
    text = words.state_promise(epsilon, 1e-5, relation)
    assert factor in text
    assert text.endswith('plus 1e-05.')


def test_a_large_epsilon_promises_nothing():
  text = words.state_promise(1e6, 1e-5, privacy.Relation.ADD_OR_REMOVE_ONE)
  assert text == 'In words: an epsilon of 1e+06 promises next to nothing.'


@pytest.mark.parametrize(
  ('relation', 'said'),
  [
    (
      privacy.Relation.ADD_OR_REMOVE_ONE,
      'of the clients that did not take part, names',
    ),
    (privacy.Relation.REPLACE_ONE, 'takes another client for this one in'),
    (privacy.Relation.ZERO_OUT, 'of the clients that sent zeros, names'),
  ],
)
def test_an_attack_is_told_for_its_relation(relation, said):
  text = words.state_attack(0.022601, 0.01, relation)
  assert said in text
  assert 'at most 1 %' in text
  assert '2.27 %' in text


def test_each_accountant_is_named_by_what_computes_it():
  ours = f'tff-clipping {tff_clipping.__version__}'
  theirs = f'dp-accounting {importlib.metadata.version("dp-accounting")}'
  assert words.name_accountant('pld').endswith(f'({ours})')
  assert words.name_accountant('rdp').endswith(f'({ours}, {theirs})')


@pytest.mark.parametrize(
  ('sampling', 'may_be_integers'),
  [('none', True), ('fixed_size', True), ('poisson', False)],
)
def test_pld_is_not_proved_where_noise_may_be_in_integers(
  sampling, may_be_integers
):
  clients = 80 if sampling == 'none' else 1920
  plan = dataclasses.replace(
    PLAN, num_clients=clients, sampling=sampling, noise_multiplier=5.0
  )
  text = words.describe_tightest(plan)
  assert ('(but for noise in integers)' in text) == may_be_integers


def test_a_plan_of_another_kind_has_no_words():
  with pytest.raises(TypeError, match='`plan` must be a PrivacyPlan or a Corr'):
    privacy.describe_plan(object())
