"""Tests of the training program, on a process that is small and real."""

import collections
import math
import os
import signal

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.privacy.ledger import BudgetExhaustedError
from tff_clipping.programs import training
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.client_sampling import FixedSizeSampler
from tff_clipping.programs.training import StopReason, TrainingProgram

_IDS = ('1', '2', '3')


def _build_process(scale=1.0, fail_at=None):
  weights_type = tff.to_type(tff.learning.models.ModelWeights([np.float32], []))

  @tff.tensorflow.computation
  def initial():
    return tff.learning.models.ModelWeights([tf.constant(0.0)], [])

  @tff.tensorflow.computation(weights_type, np.float32)
  def add(weights, total):
    value = weights.trainable[0] + total * scale
    if fail_at is not None:
      with tf.control_dependencies([tf.debugging.assert_less(value, fail_at)]):
        value = tf.identity(value)
    return tff.learning.models.ModelWeights([value], [])

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def next_fn(state, values):
    total = tff.federated_sum(values)
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_map(add, (state, total)), total
    )

  @tff.tensorflow.computation(weights_type)
  def get_model_weights(state):
    return state

  @tff.tensorflow.computation(weights_type, weights_type)
  def set_model_weights(state, weights):
    del state
    return weights

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


class _Ledger:
  """Charges 1 a round, up to a budget, and writes down what it charged."""

  def __init__(self, budget=math.inf):
    self.charged = []
    self._budget = budget

  @property
  def epsilon(self):
    return float(len(self.charged))

  def charge(self, round_num):
    if len(self.charged) >= self._budget:
      raise BudgetExhaustedError('The budget is spent.')
    self.charged.append(round_num)


def _program(folder, *, process=None, num_rounds=6, **kwargs):
  settings = dict(
    process=process or _build_process(),
    sampler=FixedSizeSampler(_IDS, clients_per_round=2, seed=0),
    client_value=float,
    num_rounds=num_rounds,
    evaluate=lambda w: dict(test_accuracy=float(w.trainable[0]), test_loss=1.0),
    checkpoints=Checkpoints(folder / 'checkpoints', keep=2),
    rounds_per_checkpoint=2,
    release_managers=[
      tff.program.CSVFileReleaseManager(
        str(folder / 'metrics.csv'),
        save_mode=tff.program.CSVSaveMode.WRITE,
        key_fieldname='round_num',
      )
    ],
  )
  settings.update(kwargs)
  return TrainingProgram(**settings)


def _expected_weight(num_rounds):
  sampler = FixedSizeSampler(_IDS, clients_per_round=2, seed=0)
  return sum(
    float(c) for t in range(1, num_rounds + 1) for c in sampler.sample(t)
  )


def test_runs_all_rounds_and_releases_each(tmp_path):
  result = _program(tmp_path).run()
  assert result.reason is StopReason.FINISHED
  assert result.state.trainable[0] == _expected_weight(6)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(7))
  assert metrics['test_accuracy'].tolist() == [
    _expected_weight(t) for t in range(7)
  ]
  assert metrics['num_clients'].tolist() == [0] + [2] * 6


def test_evaluates_as_often_as_asked_and_at_the_end(tmp_path):
  _program(tmp_path, num_rounds=5, rounds_per_evaluation=2).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  evaluated = metrics['round_num'][metrics['test_accuracy'].notna()]
  assert evaluated.tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize('stop_after', [1, 2, 3, 5])
def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path, stop_after):
  def stop(metrics):
    if metrics['round_num'] == stop_after:
      os.kill(os.getpid(), signal.SIGTERM)

  first = _program(tmp_path, on_round=stop).run()
  assert first.reason is StopReason.INTERRUPTED
  assert first.interrupted.exit_code == 143
  second = _program(tmp_path).run()
  assert second.reason is StopReason.FINISHED
  assert second.state.trainable[0] == _expected_weight(6)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(7))


def test_a_finished_run_does_nothing_more(tmp_path):
  _program(tmp_path).run()
  ledger = _Ledger()
  result = _program(tmp_path, ledger=ledger).run()
  assert result.reason is StopReason.FINISHED
  assert ledger.charged == []


def test_repeated_rounds_are_charged_again(tmp_path):
  ledger = _Ledger()

  def stop(metrics):
    if metrics['round_num'] == 3:
      raise ZeroDivisionError  # As a kill would: without a checkpoint.

  with pytest.raises(ZeroDivisionError):
    _program(tmp_path, ledger=ledger, on_round=stop).run()
  _program(tmp_path, ledger=ledger).run()
  assert ledger.charged == [1, 2, 3, 3, 4, 5, 6]


def test_the_charge_is_on_record_before_the_round_runs(tmp_path):
  ledger = _Ledger()
  process = _build_process(fail_at=_expected_weight(2))
  with pytest.raises(training.RoundError, match='Round 2 failed'):
    _program(tmp_path, process=process, ledger=ledger).run()
  assert ledger.charged == [1, 2]


def test_stops_when_the_budget_is_spent(tmp_path):
  result = _program(tmp_path, ledger=_Ledger(budget=3)).run()
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert result.round_num == 3
  assert result.state.trainable[0] == _expected_weight(3)
  assert Checkpoints(tmp_path / 'checkpoints', keep=2).latest() == 3
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['epsilon'].tolist()[1:] == [1, 2, 3]


def test_stops_on_divergence_with_the_last_finite_state(tmp_path):
  result = _program(tmp_path, process=_build_process(scale=1e38)).run()
  assert result.reason is StopReason.DIVERGED
  assert np.isfinite(result.state.trainable[0])
  assert 'not finite after round' in result.message


def test_a_damaged_checkpoint_is_named(tmp_path):
  _program(tmp_path).run()
  folder = tmp_path / 'checkpoints' / 'round_6'
  for file in folder.rglob('*'):
    if file.is_file():
      file.write_bytes(file.read_bytes()[:20])
  with pytest.raises(ValueError, match='checkpoint of round 6 cannot be read'):
    _program(tmp_path, num_rounds=8).run()


def test_a_failed_evaluation_names_the_round(tmp_path):
  def evaluate(weights):
    raise ArithmeticError('no test set')

  with pytest.raises(
    training.RoundError, match='Evaluation after round 0 failed: no test set'
  ):
    _program(tmp_path, evaluate=evaluate).run()


def test_metrics_have_one_row_shape(tmp_path):
  seen = []
  _program(tmp_path, num_rounds=2, on_round=seen.append).run()
  assert isinstance(seen[0], collections.OrderedDict)
  assert list(seen[0]) == list(seen[1])
