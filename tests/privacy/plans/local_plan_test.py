"""Tests of tff_clipping.privacy.plans.local_plan."""

import json
import math

import dp_accounting
import pytest
from scipy import stats

from tests.privacy.paper import PAPER
from tff_clipping import privacy
from tff_clipping.privacy.ledger import ledger_contents


def build_plan(**changes):
  return privacy.LocalPlan(
    **{
      **PAPER,
      'num_rounds': 96,
      'noise_multiplier': 10.0,
      'min_separation': 24,
      **changes,
    }
  )


def _balle_and_wang(multiplier, epsilon):
  """Returns delta by Theorem 8 of Balle and Wang (2018), as it is printed."""
  mu = 1 / multiplier
  return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(
    epsilon
  ) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def test_epsilon_is_the_closed_form_of_k_reports_two_norms_apart():
  plan = build_plan()
  assert plan.max_reports == 4
  multiplier = 10.0 / (2 * math.sqrt(4))
  assert _balle_and_wang(multiplier, plan.epsilon) == pytest.approx(
    1e-5, rel=1e-6
  )
  assert plan.dp_event == dp_accounting.GaussianDpEvent(multiplier)
  assert plan.relation is privacy.Relation.REPLACE_ONE


def test_a_first_report_costs_as_one_and_the_fifth_round_of_a_turn_as_two():
  plan = build_plan()
  one = privacy.gaussian_epsilon(10.0 / 2, 1e-5)
  assert plan.epsilon_after(1) == plan.epsilon_after(24) == one
  two = privacy.gaussian_epsilon(10.0 / (2 * math.sqrt(2)), 1e-5)
  assert plan.epsilon_after(25) == two
  assert plan.epsilon_after(0) == 0


def test_published_noise_that_composes_nothing_costs_more():
  # Flower's LocalDpMod calibrates each message alone, with sensitivity c, by
  # c sqrt(2 ln(1.25 / delta)) / epsilon. After 100 rounds of everybody, its 1.5
  # is more than ten times as much, even where c is granted.
  z = math.sqrt(2 * math.log(1.25 / 1e-5)) / 1.5
  granted = privacy.gaussian_epsilon(z / math.sqrt(100), 1e-5)
  assert granted == pytest.approx(17.4, abs=0.05)
  # What any two inputs of a client really cost there.
  everybody = build_plan(
    num_clients=10,
    clients_per_round=10,
    num_rounds=100,
    noise_multiplier=z,
    min_separation=1,
  )
  assert everybody.max_reports == 100
  assert everybody.epsilon > 2 * granted


def test_noise_grows_with_the_reports_of_a_client():
  targets = dict(target_epsilon=1.5, target_delta=1e-5)
  one = privacy.gaussian_noise_multiplier(*targets.values())
  for rounds, reports in ((24, 1), (96, 4), (97, 5)):
    plan = privacy.LocalPlan.from_target_epsilon(
      num_clients=1920,
      clients_per_round=80,
      num_rounds=rounds,
      min_separation=24,
      **targets,
    )
    assert plan.noise_multiplier == pytest.approx(
      2 * math.sqrt(reports) * one, rel=1e-5
    )
    assert plan.epsilon <= 1.5


def test_rounds_are_whole_turns():
  plan = privacy.LocalPlan.from_max_rounds(
    **PAPER, noise_multiplier=10.0, target_epsilon=1.6, min_separation=24
  )
  assert plan.num_rounds == 96
  assert build_plan(num_rounds=97).epsilon > 1.6


def test_says_what_a_secure_sum_would_promise():
  plan = build_plan()
  behind = privacy.gaussian_epsilon(
    10.0 * math.sqrt(80) / (2 * math.sqrt(4)), 1e-5
  )
  assert plan.secure_sum_epsilon == behind < plan.epsilon / 8
  text = plan.describe()
  assert 'satisfies local (1.555, 1e-05)-differential privacy' in text
  assert 'against the server too' in text
  assert 'Behind a secure sum' in text
  assert 'client-level' not in text


def test_noise_summary_is_that_of_all_reports():
  summary = build_plan().summarize_noise(clipping_norm=0.5)
  assert summary.mean_stddev == pytest.approx(10.0 * 0.5 / math.sqrt(80))


def test_json_round_trip():
  plan = build_plan()
  kept = json.loads(json.dumps(plan.to_json()))
  assert privacy.LocalPlan.from_json(kept) == plan
  header = {'kind': 'plan', 'format': ledger_contents.FORMAT, 'plan': kept}
  assert ledger_contents.parse_plan('ledger.jsonl', header) == plan


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (dict(sampling='poisson'), 'no sampling hides a client from a server'),
    (dict(min_separation=25), '`min_separation` must be at most 24'),
    (dict(min_separation=0), '`min_separation` must be at least 1'),
    (dict(target_epsilon=1.0), '`target_epsilon` must be at least the 1.55'),
    (dict(noise_multiplier=0.0), '`noise_multiplier` must be'),
  ],
)
def test_bad_plans_raise(changes, message):
  with pytest.raises(ValueError, match=message):
    build_plan(**changes)


def test_no_cohort_is_found_for_a_report():
  with pytest.raises(ValueError, match='does not depend on how many there are'):
    privacy.LocalPlan.from_noise_to_clients_ratio(
      num_clients=1920,
      num_rounds=96,
      target_delta=1e-5,
      min_separation=24,
      noise_to_clients_ratio=0.1,
      target_epsilon=1.5,
    )


def test_weights_and_amplification_have_no_attribute():
  with pytest.raises(TypeError, match='`accountant` must not be given'):
    privacy.LocalPlan.from_noise_multiplier(
      **PAPER,
      num_rounds=96,
      noise_multiplier=10.0,
      min_separation=24,
      accountant='pld',
    )
