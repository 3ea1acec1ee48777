"""Tests of the training program with a ledger."""

import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.programs import small_program
from tff_clipping import aggregators, privacy, storage_errors
from tff_clipping.privacy.ledger.ledger import BudgetExhaustedError
from tff_clipping.programs.clients.client_sampling import (
  FixedSizeSampler,
  build_private_sampler,
)
from tff_clipping.programs.training import training_program
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.training_program import StopReason


def test_a_run_that_was_killed_goes_on_from_its_last_round(tmp_path):
  ledger = small_program.Ledger()

  def stop(metrics):
    if metrics['round_num'] == 3:
      raise ZeroDivisionError  # As a kill would.

  with pytest.raises(ZeroDivisionError):
    small_program.program(tmp_path, ledger=ledger, after=stop).run()
  result = small_program.program(tmp_path, ledger=ledger).run()
  assert result.reason is StopReason.FINISHED
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    6
  )
  assert ledger.charged == [1, 2, 3, 4, 5, 6]


def test_a_round_that_was_charged_and_not_recorded_is_recorded(tmp_path):
  ledger = small_program.Ledger()

  def evaluate(weights):
    if len(ledger.charged) == 3 and not is_again:
      raise SystemExit  # As a kill would.
    return dict(test_accuracy=float(weights.trainable[0]), test_loss=1.0)

  is_again = False
  with pytest.raises(SystemExit):
    small_program.program(tmp_path, ledger=ledger, evaluate=evaluate).run()
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].max() == 2
  is_again = True
  small_program.program(
    tmp_path, ledger=ledger, evaluate=evaluate, num_rounds=3
  ).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == [0, 1, 2, 3]
  assert metrics['test_accuracy'].iloc[-1] == small_program.expected_weight(3)
  assert ledger.charged == [1, 2, 3]


def test_the_charge_is_on_record_before_anything_is_released(tmp_path):
  ledger, released = small_program.Ledger(), []

  def evaluate(weights):
    released.append(len(ledger.charged))
    return dict(test_accuracy=0.0, test_loss=1.0)

  small_program.program(tmp_path, ledger=ledger, evaluate=evaluate).run()
  assert released == [0, 1, 2, 3, 4, 5, 6]


def test_a_run_that_was_stopped_says_which_epsilon_holds(tmp_path):
  result = small_program.program(
    tmp_path,
    ledger=small_program.Ledger(),
    should_stop=lambda metrics: metrics['round_num'] == 3,
  ).run()
  assert 'is no guarantee: count all 6.' in result.message


def test_a_round_that_fails_costs_nothing(tmp_path):
  ledger = small_program.Ledger()
  process = small_program.build_process(
    fail_at=small_program.expected_weight(2)
  )
  with pytest.raises(training_program.RoundError, match='Round 2 failed'):
    small_program.program(tmp_path, process=process, ledger=ledger).run()
  assert ledger.charged == [1]


@pytest.mark.parametrize(
  'settings',
  [dict(exact_metrics=False), dict(ledger=small_program.Ledger())],
)
def test_a_run_without_measured_cohorts_tells_neither_size_nor_time(
  tmp_path, settings
):
  small_program.program(tmp_path, num_rounds=2, **settings).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['num_clients'].isna().all()
  assert metrics['round_seconds'].isna().all()


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
def test_exact_figures_take_a_ledger_that_says_so(tmp_path, sampling):
  plan = small_program.plan(sampling)
  settings = dict(
    sampler=build_private_sampler(plan, small_program.IDS, seed=0),
    exact_metrics=True,
  )
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    with pytest.raises(ValueError, match='`exact_metrics` must be left out'):
      small_program.program(tmp_path, ledger=ledger, **settings)
  with privacy.PrivacyLedger(
    tmp_path / 'other.jsonl', plan, caveats=['cohorts are in the files']
  ) as ledger:
    small_program.program(tmp_path, ledger=ledger, **settings)


def test_a_sampler_that_the_ledger_does_not_charge_for_is_refused(tmp_path):
  plan, other = small_program.plan('poisson'), small_program.plan('fixed_size')
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for sampler in (
      FixedSizeSampler(small_program.IDS, clients_per_round=2, seed=0),
      build_private_sampler(other, small_program.IDS, seed=0),
    ):
      with pytest.raises(ValueError, match='`sampler` must be that of the led'):
        small_program.program(tmp_path, ledger=ledger, sampler=sampler)
    sampler = build_private_sampler(plan, small_program.IDS, seed=0)
    small_program.program(tmp_path, ledger=ledger, sampler=sampler)
    assert ledger.num_releases == 0


def test_what_really_holds_stands_beside_the_papers_epsilon(tmp_path):
  plan = small_program.plan('paper')
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    sampler = build_private_sampler(plan, small_program.IDS, seed=0)
    small_program.program(tmp_path, ledger=ledger, sampler=sampler).run()
    metrics = pd.read_csv(tmp_path / 'metrics.csv')
    assert metrics['epsilon'].iloc[-1] == ledger.epsilon
    assert metrics['actual_epsilon'].iloc[-1] == ledger.actual_epsilon
    assert ledger.actual_epsilon > ledger.epsilon
    with pytest.raises(BudgetExhaustedError, match='as the paper charges'):
      ledger.check_budget(7)


def test_stops_when_the_budget_is_spent(tmp_path):
  result = small_program.program(
    tmp_path, ledger=small_program.Ledger(budget=3)
  ).run()
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert result.round_num == 3
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    3
  )
  assert Checkpoints(tmp_path / 'checkpoints').rounds() == [2, 3]
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['epsilon'].tolist()[1:] == [1, 2, 3]


def test_the_last_model_is_evaluated_when_the_budget_is_spent(tmp_path):
  program = small_program.program(
    tmp_path, ledger=small_program.Ledger(budget=3), rounds_per_evaluation=2
  )
  assert program.run().reason is StopReason.BUDGET_EXHAUSTED
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == [0, 1, 2, 3]
  assert metrics['test_accuracy'].iloc[-1] == small_program.expected_weight(3)


def test_a_ledger_that_shows_less_than_the_outcomes_is_refused(tmp_path):
  ledger = small_program.Ledger()
  small_program.program(tmp_path, ledger=ledger, num_rounds=4).run()
  # That of a backup.
  del ledger.releases[2:]
  before = sorted((tmp_path / 'checkpoints').iterdir())
  with pytest.raises(
    storage_errors.StorageError, match='that the ledger does not have'
  ):
    small_program.program(tmp_path, ledger=ledger).run()
  assert sorted((tmp_path / 'checkpoints').iterdir()) == before
  assert ledger.charged == [1, 2]


def test_a_run_without_its_outcomes_is_refused(tmp_path):
  ledger = small_program.Ledger()
  small_program.program(tmp_path, ledger=ledger, num_rounds=2).run()
  (tmp_path / 'other').mkdir()
  with pytest.raises(storage_errors.StorageError, match='no outcome is left'):
    small_program.program(tmp_path / 'other', ledger=ledger).run()
  assert ledger.charged == [1, 2]


def test_the_checkpoints_of_a_private_run_go_on_with_its_ledger(tmp_path):
  small_program.program(
    tmp_path, ledger=small_program.Ledger(), num_rounds=2
  ).run()
  with pytest.raises(storage_errors.StorageError, match='of a private run'):
    small_program.program(tmp_path).run()


def test_less_noise_than_charged_is_not_released(tmp_path):
  plan = small_program.plan('poisson')
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, noise_multiplier=0.5, clients_per_round=2
    ),
  )
  data = tf.data.Dataset.from_tensors((tf.ones([1, 1]), tf.ones([1, 2])))
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    program = small_program.program(
      tmp_path,
      process=process,
      ledger=ledger,
      sampler=build_private_sampler(plan, small_program.IDS, seed=0),
      client_value=lambda client_id: data,
      evaluate=lambda weights: dict(test_accuracy=0.0, test_loss=0.0),
    )
    with pytest.raises(
      training_program.RoundError,
      match="must have the plan's `noise_multiplier`",
    ):
      program.run()
    assert ledger.num_releases == 0
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].tolist() == [0]
