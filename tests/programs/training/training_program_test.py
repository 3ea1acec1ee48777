"""Tests of the training program, on a process that is small and real."""

import dataclasses
import errno
import fcntl
import math
import os
import signal
from concurrent import futures

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.programs import small_program
from tff_clipping import privacy, runtime, storage_errors
from tff_clipping.programs.checks import process_checks, records
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  RoundError,
  StopReason,
)
from tff_clipping.programs.training.watchers import AfterRounds, RoundWatcher


def _weight(result):
  return result.state['weights'].trainable[0]


def test_runs_all_rounds_and_releases_each(tmp_path):
  result = small_program.program(tmp_path).run()
  assert result.reason is StopReason.FINISHED
  assert _weight(result) == small_program.expected_weight(6)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(7))
  assert metrics['test_accuracy'].tolist() == [
    small_program.expected_weight(t) for t in range(7)
  ]
  assert metrics['num_clients'].tolist() == [0] + [2] * 6


@pytest.mark.parametrize('has_context', [False, True])
def test_another_thread_needs_a_context_of_its_own(tmp_path, has_context):
  program = small_program.program(tmp_path)

  def run():
    if has_context:
      runtime.set_default_context()
    return program.run()

  with futures.ThreadPoolExecutor() as pool:
    result = pool.submit(run)
    if has_context:
      assert result.result().reason is StopReason.FINISHED
    else:
      with pytest.raises(
        RuntimeError, match='set_default_context.* in the thr'
      ):
        result.result()


def test_evaluates_as_often_as_asked_and_at_the_end(tmp_path):
  small_program.program(
    tmp_path,
    num_rounds=5,
    rounds_per_evaluation=2,
    evaluate=lambda weights: dict(
      test_error=weights.trainable[0], test_loss=1.0
    ),
    test_metrics=['test_error'],
  ).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  # Columns of the names that are given, and no other.
  assert 'test_accuracy' not in metrics
  errors = metrics['test_error'].dropna()
  assert errors.to_dict() == {
    t: small_program.expected_weight(t) for t in (0, 2, 4, 5)
  }
  # What was not measured is said.
  assert (tmp_path / 'metrics.csv').read_text().splitlines()[2].count('nan') > 1


def test_a_keras_model_that_tff_broke_is_named_with_the_remedy(tmp_path):
  def keras_model():
    return tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])

  model = keras_model()
  with tf.Graph().as_default():  # As the builders of TFF do.
    keras_model()

  def evaluate(weights):
    del weights
    return dict(test_accuracy=0.0, test_loss=float(model(tf.ones([1, 1]))))

  program = small_program.program(tmp_path, evaluate=evaluate)
  with pytest.raises(
    RoundError,
    match='after round 0: a Keras model that was made before a process of TFF',
  ):
    program.run()
  keras_model()
  assert program.run().reason is StopReason.FINISHED


@pytest.mark.parametrize('stop_after', [1, 2, 3, 5])
def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path, stop_after):
  def stop(metrics):
    if metrics['round_num'] == stop_after:
      os.kill(os.getpid(), signal.SIGTERM)

  first = small_program.program(tmp_path, after=stop).run()
  assert first.reason is StopReason.INTERRUPTED
  assert first.interrupted.exit_code == 143
  second = small_program.program(tmp_path).run()
  assert second.reason is StopReason.FINISHED
  assert _weight(second) == small_program.expected_weight(6)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(7))


@pytest.mark.parametrize(
  ('where', 'becomes', 'rounds_done'),
  [
    # A lost one ends the run after the round, another one in its midst.
    ('client_value', None, 4),
    ('client_value', RuntimeError, 3),
    ('evaluate', None, 4),
    ('evaluate', RuntimeError, 3),
  ],
)
def test_a_signal_ends_the_run_though_its_exception_does_not(
  tmp_path, where, becomes, rounds_done
):
  """Python loses it in a destructor, and TensorFlow makes another one of it."""
  calls = []

  def call(name):
    calls.append(name)
    if (calls.count('evaluate'), name) != (4 + (where == 'evaluate'), where):
      return
    try:
      os.kill(os.getpid(), signal.SIGINT)
    except BaseException as e:
      if becomes is not None:
        raise becomes('an error of another kind') from e

  def evaluate(weights):
    # Of round 0 first.
    call('evaluate')
    return dict(test_accuracy=0.0, test_loss=1.0)

  def client_value(client_id):
    call('client_value')
    return float(client_id)

  result = small_program.program(
    tmp_path, evaluate=evaluate, client_value=client_value
  ).run()
  assert result.reason is StopReason.INTERRUPTED
  assert result.interrupted.exit_code == 130
  assert result.round_num == rounds_done
  assert small_program.program(tmp_path).run().reason is StopReason.FINISHED


def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(
  tmp_path, monkeypatch
):
  save = Checkpoints.save

  def interrupt(metrics):
    if metrics['round_num'] == 3:
      # From here on a checkpoint is one of the interrupted program.
      monkeypatch.setattr(Checkpoints, 'save', interrupt_again)
      os.kill(os.getpid(), signal.SIGINT)

  def interrupt_again(self, *args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    save(self, *args, **kwargs)

  # A shell's own background jobs ignore Ctrl-C.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    with pytest.raises(KeyboardInterrupt):
      small_program.program(tmp_path, after=interrupt).run()
  finally:
    signal.signal(signal.SIGINT, before)
  assert Checkpoints(tmp_path / 'checkpoints').rounds()[-1] == 2


class _FailsAfterRound4(RoundWatcher):
  def measure(self, done):
    return {'x': 1 / (4 - done.round_num)}


@pytest.mark.parametrize(
  ('fails', 'message'),
  [
    (
      dict(
        process=small_program.build_process(
          fail_at=small_program.expected_weight(4)
        )
      ),
      'Round 4 failed',
    ),
    (
      dict(watchers=[_FailsAfterRound4()]),
      '`_FailsAfterRound4.measure` failed after round 4: division',
    ),
  ],
)
@pytest.mark.parametrize('is_private', [False, True])
def test_the_rounds_before_one_that_fails_are_kept(
  tmp_path, is_private, fails, message
):
  ledger = small_program.open_ledger(tmp_path) if is_private else None
  with pytest.raises(RoundError, match=message):
    small_program.program(
      tmp_path, rounds_per_checkpoint=100, ledger=ledger, **fails
    ).run()
  # A private round is saved and charged before it is measured.
  last = 4 if is_private and 'watchers' in fails else 3
  assert Checkpoints(tmp_path / 'checkpoints').rounds()[-1] == last
  if is_private:
    assert ledger.rounds == [*range(1, last + 1)]


@pytest.mark.parametrize('is_private', [False, True])
def test_stops_on_divergence_with_the_last_finite_state(tmp_path, is_private):
  ledger = small_program.open_ledger(tmp_path) if is_private else None
  # A private run that is started again has the outcome of the bad round.
  for _ in range(2):
    result = small_program.program(
      tmp_path, process=small_program.build_process(scale=1e38), ledger=ledger
    ).run()
    assert result.reason is StopReason.DIVERGED
    assert np.isfinite(result.state['weights'].trainable[0])
    assert 'not finite after round' in result.message
    assert ('no guarantee: count all 6.' in result.message) == is_private
  if is_private:
    assert ledger.rounds == [*range(1, result.round_num + 2)]


@pytest.mark.parametrize(
  ('rejected_rounds', 'last_round'), [((2, 3), 1), ((1, 3, 5), 6)]
)
def test_stops_on_two_updates_in_a_row_that_tff_does_not_apply(
  tmp_path, rejected_rounds, last_round
):
  process = small_program.build_process()

  class Rejecting:
    initialize = process.initialize
    get_model_weights = process.get_model_weights

    def next(self, state, values):
      output = process.next(state, values)
      weight = output.state['weights'].trainable[0]
      rejected = np.int32(
        weight in map(small_program.expected_weight, rejected_rounds)
      )
      return tff.learning.templates.LearningProcessOutput(
        output.state, dict(finalizer=dict(update_non_finite=rejected))
      )

  # A run that is started again ends so again.
  for _ in range(2):
    result = small_program.program(tmp_path, process=Rejecting()).run()
    if last_round < 6:
      assert result.reason is StopReason.DIVERGED
      assert 'updates is not finite after round 3' in result.message
      assert 'The state after round 1 is kept.' in result.message
    else:
      assert result.reason is StopReason.FINISHED
    assert _weight(result) == small_program.expected_weight(last_round)


@pytest.mark.parametrize('is_private', [False, True])
def test_a_program_ends_where_it_is_told_to_and_can_go_on(tmp_path, is_private):
  ledger = small_program.open_ledger(tmp_path) if is_private else None
  stopped = small_program.program(
    tmp_path,
    rounds_per_evaluation=2,
    should_stop=lambda metrics: metrics['round_num'] == 3,
    ledger=ledger,
  ).run()
  assert stopped.reason is StopReason.STOPPED
  assert stopped.message.startswith('Stopped after round 3, as `should_stop`')
  assert ('no guarantee: count all 6.' in stopped.message) == is_private
  assert stopped.round_num == 3
  # The last model is evaluated, though round 3 was not to be.
  evaluated = pd.read_csv(tmp_path / 'metrics.csv')['test_loss'].notna()
  assert evaluated.tolist() == [True, False, True, True]
  result = small_program.program(tmp_path, ledger=ledger).run()
  assert result.reason is StopReason.FINISHED
  assert _weight(result) == small_program.expected_weight(6)


def test_without_evaluation_there_is_no_loss(tmp_path):
  small_program.program(tmp_path, evaluate=None, num_rounds=2).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == [0, 1, 2]
  assert metrics['test_loss'].isna().all()


@pytest.mark.parametrize('loss', [math.nan, math.inf])
def test_stops_on_a_loss_that_is_not_finite(tmp_path, loss):
  losses = iter([1.0, 1.0, 1.0, loss])

  def evaluate(weights):
    return dict(test_accuracy=0.0, test_loss=next(losses))

  result = small_program.program(tmp_path, evaluate=evaluate).run()
  assert result.reason is StopReason.DIVERGED
  assert 'The test loss is not finite after round 3' in result.message
  assert result.round_num == 2
  assert _weight(result) == small_program.expected_weight(2)
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].max() == 2
  initial = small_program.program(
    tmp_path / 'other', evaluate=lambda w: dict(test_accuracy=0, test_loss=loss)
  ).run()
  assert initial.reason is StopReason.DIVERGED
  assert f'initial model is not finite, found {loss}' in initial.message
  assert Checkpoints(tmp_path / 'other' / 'checkpoints').rounds() == []


def _fail(weights):
  raise ArithmeticError('no test set')


_FIGURES = {'test_accuracy': 0.5, 'test_loss': 1.0}


class _Measures(RoundWatcher):
  """Measures what it is told."""

  def __init__(self, found):
    self._found = found

  def measure(self, done):
    return self._found


@pytest.mark.parametrize(
  ('evaluate', 'message'),
  [
    (_fail, '`evaluate` failed after round 0: no test set'),
    (
      lambda w: {'test_loss': 1.0},
      '`evaluate` must return a dict of test_accuracy and test_loss, found {',
    ),
    (lambda w: None, '`evaluate` must return a dict of .*, found None'),
    (lambda w: _FIGURES | {'epsilon': 1}, '`evaluate` must not return `epsilo'),
    (lambda w: _FIGURES | {'round_num': 5}, '`evaluate` must not return `roun'),
    (
      lambda w: _FIGURES | {'test_accuracy': 'high'},
      "must return numbers, found `test_accuracy` 'high'",
    ),
    (
      _Measures(5),
      '`_Measures.measure` must return a dict of numbers, found 5',
    ),
    (_Measures({'test_loss': 0.0}), 'measure` must not return `test_loss`'),
    (_Measures({'way': 'far'}), "must return numbers, found `way` 'far'"),
  ],
)
def test_what_cannot_be_in_a_row_ends_the_run(tmp_path, evaluate, message):
  settings = dict(evaluate=evaluate)
  if isinstance(evaluate, RoundWatcher):
    settings = dict(watchers=[evaluate])
  with pytest.raises(RoundError, match=message):
    small_program.program(tmp_path, **settings).run()


@pytest.mark.parametrize('has_locks', [True, False])
def test_two_programs_do_not_run_at_one_place(tmp_path, monkeypatch, has_locks):
  def lock(descriptor, operation):
    raise OSError(errno.ENOLCK, 'No locks available')

  if not has_locks:
    monkeypatch.setattr(fcntl, 'flock', lock)
  seen = []

  def run_another(metrics):
    if metrics['round_num'] == 3 and has_locks:
      with pytest.raises(storage_errors.StorageError) as raised:
        small_program.program(tmp_path).run()
      seen.append(str(raised.value))

  result = small_program.program(tmp_path, after=run_another).run()
  assert result.reason is StopReason.FINISHED
  assert len(seen) == has_locks
  assert all('in use by another program' in text for text in seen)
  # It has ended.
  again = small_program.program(tmp_path, num_rounds=7).run()
  assert again.round_num == 7


def test_a_signal_in_a_checkpoint_comes_after_it(tmp_path):
  class Signalled(Checkpoints):
    """Is asked to stop while it is written."""

    def save(self, state, round_num, **kwargs):
      if round_num == 3:
        os.kill(os.getpid(), signal.SIGTERM)
      return super().save(state, round_num, **kwargs)

  checkpoints = Signalled(tmp_path / 'checkpoints')
  result = small_program.program(
    tmp_path, checkpoints=checkpoints, rounds_per_checkpoint=1
  ).run()
  assert result.reason is StopReason.INTERRUPTED
  assert result.round_num == 3
  assert _weight(result) == small_program.expected_weight(3)
  assert checkpoints.rounds() == [2, 3]
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].max() == 3


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    (
      'sampler',
      tff.simulation.build_uniform_sampling_fn(['1', '2']),
      '`sampler` must be ClientSampler, found function',
    ),
    ('ledger', small_program.plan('poisson'), '`ledger` must be .*PrivacyL'),
    ('checkpoints', '/tmp', '`checkpoints` must be Checkpoints, found str'),
    ('initial_weights', [np.float32(5)], '`initial_weights` must .*ModelWei'),
    ('evaluate', 1.0, '`evaluate` must be .*, found float'),
    ('client_value', {}, '`client_value` must be Callable, found dict'),
    ('watchers', None, '`watchers` must be list'),
    ('watchers', [print], '`watchers` must be .* `AfterRounds` one of a func'),
    ('test_metrics', 'test_error', '`test_metrics` must be list'),
    ('should_stop', True, '`should_stop` must be Callable'),
    ('exact_metrics', 'no', '`exact_metrics` must be bool'),
    ('client_states', 'states', '`client_states` must be .*ClientStates'),
    ('num_rounds', '3', '`num_rounds` must be an integer'),
    ('rounds_per_evaluation', 0, '`rounds_per_evaluation` must be at least 1'),
    ('rounds_per_checkpoint', 0, '`rounds_per_checkpoint` must be at least 1'),
    (
      'client_value',
      process_checks.take_id,
      '`client_value` must be given for a process that takes .* float32, found',
    ),
  ],
)
def test_arguments_of_another_kind_raise_at_once(
  tmp_path, name, value, message
):
  program = small_program.program(tmp_path)
  with pytest.raises((TypeError, ValueError), match=message):
    dataclasses.replace(program, **{name: value})


def test_a_client_without_a_value_is_named(tmp_path):
  program = small_program.program(tmp_path, client_value={}.__getitem__)
  with pytest.raises(
    RoundError, match=r"Round 1 failed: .* for the client '\d': KeyError: '\d'"
  ):
    program.run()


def test_a_run_begins_from_the_weights_that_it_is_given(tmp_path):
  weights = tff.learning.models.ModelWeights([np.float32(5.0)], [])
  for num_rounds in (2, 4):
    result = small_program.program(
      tmp_path, num_rounds=num_rounds, initial_weights=weights
    ).run()
    # The second program goes on, and does not begin anew.
    assert result.state['weights'].trainable[0] == (
      5.0 + small_program.expected_weight(num_rounds)
    )
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['test_accuracy'].iloc[0] == 5.0


def test_fewer_rounds_than_were_run_are_refused(tmp_path):
  small_program.program(tmp_path, num_rounds=4).run()
  with pytest.raises(ValueError, match='`num_rounds` must be .* 4 by the last'):
    small_program.program(tmp_path, num_rounds=2).run()


@pytest.mark.parametrize('is_private', [False, True])
def test_a_run_without_measured_cohorts_tells_neither_size_nor_time(
  tmp_path, is_private
):
  settings = dict(exact_metrics=False)
  if is_private:
    settings = dict(ledger=small_program.open_ledger(tmp_path))
  small_program.program(tmp_path, num_rounds=2, **settings).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['num_clients'].isna().all()
  assert metrics['round_seconds'].isna().all()


def test_the_last_model_is_evaluated_when_the_budget_is_spent(tmp_path):
  program = small_program.program(
    tmp_path,
    ledger=small_program.open_ledger(tmp_path, 3),
    rounds_per_evaluation=2,
  )
  assert program.run().reason is StopReason.BUDGET_EXHAUSTED
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == [0, 1, 2, 3]
  assert metrics['test_accuracy'].iloc[-1] == small_program.expected_weight(3)


def test_the_checkpoints_of_a_private_run_go_on_with_its_ledger(tmp_path):
  small_program.program(
    tmp_path, ledger=small_program.open_ledger(tmp_path), num_rounds=2
  ).run()
  with pytest.raises(storage_errors.StorageError, match='of a private run'):
    small_program.program(tmp_path).run()


@pytest.mark.filterwarnings('ignore:`target_delta` should be at least')
@pytest.mark.parametrize('name', ['exact_metrics', '_Watcher'])
def test_exact_figures_take_a_ledger_that_says_so(tmp_path, name):
  settings = dict(exact_metrics=True)
  if name == '_Watcher':
    settings = dict(watchers=[_Watcher(sees_clients=True)])
  # So small a delta is a caveat of the plan.
  plan = dataclasses.replace(
    small_program.plan('fixed_size'), noise_multiplier=30.0, target_delta=1e-20
  )
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    assert ledger.caveats
    # The caveats of plans and rounds say nothing of files.
    ledger.add_caveats([records.UNCHECKED, private_rounds.GIVEN_NOISE])
    with pytest.raises(ValueError, match=f'`{name}` must be left out, or the'):
      small_program.program(tmp_path, ledger=ledger, **settings)
    ledger.add_caveats(['exact figures are in the files'])
    small_program.program(tmp_path, ledger=ledger, **settings)


class _Watcher(RoundWatcher):
  """Notes what it is shown, and when."""

  def __init__(self, sees_clients=False):
    self.sees_clients = sees_clients
    self.seen = []

  def measure(self, done):
    self.seen.append(('measure', done))
    return {'share': done.round_num / 2}

  def record(self, done):
    self.seen.append(('record', done))

  def sync(self):
    self.seen.append(('sync', self.seen[-1][1]))

  def after(self, done):
    self.seen.append(('after', done))


def _program(folder, *watchers, **kwargs):
  files = MetricsFiles(folder / 'metrics.csv')
  return small_program.program(folder, watchers=[*watchers, files], **kwargs)


def test_a_watcher_is_shown_each_moment_of_each_round(tmp_path):
  watcher, checkpoints = _Watcher(), Checkpoints(tmp_path / 'c')
  saved, synced = [], []

  class Syncs(RoundWatcher):
    def sync(self):
      synced.append(max(checkpoints.rounds(), default=None))

  _program(
    tmp_path,
    watcher,
    Syncs(),
    AfterRounds(lambda metrics: saved.append(max(checkpoints.rounds()))),
    num_rounds=3,
    checkpoints=checkpoints,
    rounds_per_checkpoint=2,
  ).run()
  measured = [
    (moment, done.round_num) for moment, done in watcher.seen if done.round_num
  ]
  assert measured == [
    *(('measure', 1), ('record', 1), ('after', 1)),
    *(('measure', 2), ('record', 2), ('sync', 2), ('after', 2)),
    *(('measure', 3), ('record', 3), ('after', 3), ('sync', 3)),
  ]
  # All is synced before each checkpoint; what is called after a round is called
  # after its checkpoint.
  assert synced == [None, 0, 2]
  assert saved == [0, 2, 2]
  for _, done in watcher.seen:
    expected = small_program.expected_weight(done.round_num)
    assert done.model.trainable[0] == expected
    assert done.metrics['test_accuracy'] == expected
  # What it measured is in the metrics, which others wrote.
  table = pd.read_csv(tmp_path / 'metrics.csv')
  assert table['share'].tolist()[1:] == [0.5, 1.0, 1.5]


def test_clients_are_shown_to_those_alone_that_say_so(tmp_path):
  blind, seeing = _Watcher(), _Watcher(sees_clients=True)
  _program(tmp_path, blind, seeing, num_rounds=2).run()
  assert all(done.work is None for _, done in blind.seen)
  initial, *rest = [done for moment, done in seeing.seen if moment != 'sync']
  assert initial.work is None
  for done in rest:
    total = sum(map(float, done.work.cohort))
    assert done.work.measured['aggregator']['total'] == total
    before = done.model_before().trainable[0]
    assert before == small_program.expected_weight(done.round_num - 1)
    assert done.model.trainable[0] == before + total


def test_what_cannot_be_shown_does_not_end_a_run(tmp_path, caplog):
  errors = [
    BrokenPipeError(32, 'Broken pipe'),
    UnicodeEncodeError('ascii', 'ε', 0, 1, 'no'),
  ]

  def show(metrics):
    if errors:
      raise errors.pop()

  result = small_program.program(tmp_path, num_rounds=3, after=show).run()
  assert result.reason is StopReason.FINISHED
  assert 'Round 2 was not shown: [Errno 32] Broken pipe' in caplog.text
