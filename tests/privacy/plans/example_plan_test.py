"""Tests of plans for noise in each local step."""

import json

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from tff_clipping import privacy

# The paper's MLP where clients do not overlap: 480 with 125 examples, of which
# 20 take part in a round, 24 rounds apart: four times in 96.
_PAPER = dict(
  num_clients=480,
  clients_per_round=20,
  num_rounds=96,
  target_delta=1e-5,
  examples_per_client=125,
  batch_size=64,
  local_steps=32,
  min_separation=24,
)


def _rdp_epsilon(noise_multiplier, count, prob, delta):
  accountant = dp_accounting.rdp.RdpAccountant()
  accountant.compose(
    dp_accounting.PoissonSampledDpEvent(
      prob, dp_accounting.GaussianDpEvent(noise_multiplier)
    ),
    count,
  )
  return accountant.get_epsilon(delta)


@pytest.fixture(scope='module')
def paper_plan():
  return privacy.ExamplePlan.from_target_epsilon(**_PAPER, target_epsilon=1.5)


def test_four_rounds_of_32_steps_need_16_times_the_norm(paper_plan):
  plan = paper_plan
  assert plan.max_participations == 4
  assert plan.unit == 'example'
  assert plan.noise_multiplier == pytest.approx(16.3, abs=0.05)
  assert plan.epsilon <= 1.5
  # 128 Poisson-sampled Gaussians, at the delta that large batches leave.
  found = _rdp_epsilon(plan.noise_multiplier, 128, 64 / 125, 0.995e-5)
  assert plan.epsilon == pytest.approx(found, rel=1e-3)


def test_batches_that_are_cut_are_charged_to_delta(paper_plan):
  largest = paper_plan.step_parameters.max_batch_size
  tail = stats.binom.sf(largest, 126, 64 / 125)
  # 0.5 % of delta, for neighbours with one example more as well.
  assert 128 * (1 + np.exp(1.5)) * tail <= 0.005e-5 * 1.01
  assert 128 * (1 + np.exp(1.5)) * stats.binom.sf(
    largest - 1, 126, 64 / 125
  ) > (0.005e-5)
  words = '`max_batch_size` must be larger, found 70.*; 99 would do'
  with pytest.raises(ValueError, match=words):
    privacy.ExamplePlan.from_target_epsilon(
      **_PAPER, target_epsilon=1.5, max_batch_size=70
    )


def test_given_noise_with_small_batches_is_refused():
  with pytest.raises(ValueError, match='`max_batch_size` must be larger'):
    privacy.ExamplePlan.from_noise_multiplier(
      **_PAPER, noise_multiplier=16.3, max_batch_size=70
    )


def test_rounds_cost_by_how_often_one_client_takes_part(paper_plan):
  epsilons = [paper_plan.epsilon_after(t) for t in (0, 1, 24, 25, 48, 73, 96)]
  assert epsilons[0] == 0.0
  assert epsilons[1] == epsilons[2] < epsilons[3] == epsilons[4]
  assert epsilons[4] < epsilons[5] == epsilons[6] == paper_plan.epsilon
  mechanism, count = paper_plan.released_mechanism(25)
  assert (mechanism.noise_multiplier, count) == (
    paper_plan.noise_multiplier,
    64,
  )


def test_epochs_are_charged_as_turns(paper_plan):
  settings = {**_PAPER, 'min_separation': 1, 'sampling': 'shuffled_epochs'}
  plan = privacy.ExamplePlan.from_noise_multiplier(
    **settings, noise_multiplier=paper_plan.noise_multiplier
  )
  assert plan.epsilon == paper_plan.epsilon
  assert plan.sampler_parameters.scheme == 'shuffled_epochs'


def test_pld_needs_less_noise(paper_plan):
  plan = privacy.ExamplePlan.from_target_epsilon(
    **_PAPER, target_epsilon=1.5, accountant='pld'
  )
  assert 0.8 < plan.noise_multiplier / paper_plan.noise_multiplier < 1


def test_as_many_rounds_as_a_budget_has_room_for(paper_plan):
  settings = {k: v for k, v in _PAPER.items() if k != 'num_rounds'}
  plan = privacy.ExamplePlan.from_max_rounds(
    **settings,
    noise_multiplier=paper_plan.noise_multiplier,
    target_epsilon=1.5,
    max_batch_size=paper_plan.max_batch_size,
  )
  assert plan.num_rounds == 96


def test_json_is_read_back(paper_plan):
  written = json.loads(json.dumps(paper_plan.to_json()))
  assert privacy.ExamplePlan.from_json(written) == paper_plan
  assert written['unit'] == 'example'


def test_description_says_what_is_promised_and_to_whom(paper_plan):
  text = paper_plan.describe()
  for words in (
    'example-level (1.5',
    'adding or removing one example of one client',
    'against the server too',
    '4 rounds at most',
    'does not protect a client as a whole',
  ):
    assert words in text
  assert 'client-level' not in text


def test_ledger_charges_rounds_and_refuses_one_again(tmp_path, paper_plan):
  path = tmp_path / 'ledger.jsonl'
  with privacy.PrivacyLedger(path, paper_plan) as ledger:
    ledger.check_cohorts('cohorts')
    for round_num in range(1, 26):
      ledger.charge(round_num, f'{round_num:064x}')
    assert ledger.epsilon == paper_plan.epsilon_after(25)
    with pytest.raises(
      privacy.ChangedReleaseError, match='Round 25, run again'
    ):
      ledger.charge(25, f'{99:064x}')
  contents = privacy.read_ledger(path)
  assert contents.plan == paper_plan
  spent = privacy.compute_spending([contents])
  assert spent.epsilon == paper_plan.epsilon_after(25)


def test_examples_and_clients_are_not_added_up(tmp_path, paper_plan):
  of_clients = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=480,
    clients_per_round=20,
    num_rounds=5,
    target_delta=1e-5,
    noise_multiplier=2.0,
  )
  contents = []
  for place, plan in enumerate((paper_plan, of_clients)):
    path = tmp_path / f'{place}.jsonl'
    with privacy.PrivacyLedger(path, plan) as ledger:
      ledger.charge(1, '0' * 64)
    contents.append(privacy.read_ledger(path))
  with pytest.raises(ValueError, match='`unit` must be the same'):
    privacy.compute_spending(contents)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(sampling='poisson'), '`sampling` must be one of'),
    (dict(batch_size=126), '`batch_size` must be'),
    (dict(max_batch_size=63), '`max_batch_size` must be'),
    (dict(local_steps=0), '`local_steps` must be'),
    (dict(min_separation=25), '`min_separation` must be at most 24'),
    (dict(accountant='moments'), '`accountant` must be'),
    (dict(target_delta=2.0), '`target_delta` must be'),
  ],
)
def test_attribute_out_of_range_raises(changes, words):
  with pytest.raises(ValueError, match=words):
    privacy.ExamplePlan.from_noise_multiplier(
      **{**_PAPER, **changes}, noise_multiplier=16.0
    )
