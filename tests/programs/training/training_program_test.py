"""Tests of the training program, on a process that is small and real."""

import collections
import dataclasses
import errno
import math
import os
import signal
from concurrent import futures

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tests.programs import small_program
from tff_clipping import runtime, storage_errors
from tff_clipping.programs.training import training_program
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.training_program import (
  RoundError,
  StopReason,
)


def test_runs_all_rounds_and_releases_each(tmp_path):
  result = small_program.program(tmp_path).run()
  assert result.reason is StopReason.FINISHED
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    6
  )
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
  small_program.program(tmp_path, num_rounds=5, rounds_per_evaluation=2).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  evaluated = metrics['round_num'][metrics['test_accuracy'].notna()]
  assert evaluated.tolist() == [0, 2, 4, 5]


def test_what_is_measured_has_columns_of_its_name_alone(tmp_path):
  small_program.program(
    tmp_path,
    num_rounds=2,
    rounds_per_evaluation=2,
    evaluate=lambda weights: dict(
      test_error=weights.trainable[0], test_loss=1.0
    ),
    test_metrics=['test_error'],
  ).run()
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert 'test_accuracy' not in metrics
  assert metrics['test_error'].isna().tolist() == [False, True, False]
  assert metrics['test_error'].iloc[2] == small_program.expected_weight(2)
  # What was not measured is said.
  assert (tmp_path / 'metrics.csv').read_text().splitlines()[2].count('nan') > 1
  with pytest.raises(TypeError, match='`test_metrics` must be a list'):
    small_program.program(tmp_path, test_metrics='test_error')


def test_a_metric_that_evaluate_does_not_return_ends_the_run(tmp_path):
  program = small_program.program(
    tmp_path,
    evaluate=lambda weights: dict(test_loss=1.0),
    test_metrics=['test_error'],
  )
  with pytest.raises(RoundError, match='a dict with test_error and test_loss,'):
    program.run()


def test_a_run_without_evaluation_has_all_rounds_and_no_loss(tmp_path):
  result = small_program.program(
    tmp_path,
    evaluate=None,
    should_stop=lambda metrics: metrics['round_num'] == 4,
  ).run()
  assert (result.reason, result.round_num) == (StopReason.STOPPED, 4)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(5))
  assert metrics['test_loss'].isna().all()


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
  assert second.state['weights'].trainable[0] == small_program.expected_weight(
    6
  )
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


def test_a_finished_run_does_nothing_more(tmp_path):
  ledger = small_program.Ledger()
  small_program.program(tmp_path, ledger=ledger).run()
  result = small_program.program(tmp_path, ledger=ledger).run()
  assert result.reason is StopReason.FINISHED
  assert ledger.charged == [1, 2, 3, 4, 5, 6]


def test_the_rounds_before_one_that_fails_are_kept(tmp_path):
  process = small_program.build_process(
    fail_at=small_program.expected_weight(4)
  )
  with pytest.raises(training_program.RoundError, match='Round 4 failed'):
    small_program.program(
      tmp_path, process=process, rounds_per_checkpoint=100
    ).run()
  assert Checkpoints(tmp_path / 'checkpoints', keep=2).rounds()[-1] == 3


def test_stops_on_divergence_with_the_last_finite_state(tmp_path):
  result = small_program.program(
    tmp_path, process=small_program.build_process(scale=1e38)
  ).run()
  assert result.reason is StopReason.DIVERGED
  assert np.isfinite(result.state['weights'].trainable[0])
  assert 'not finite after round' in result.message


@pytest.mark.parametrize(
  ('rejected_rounds', 'last_round'), [((2, 3), 2), ((1, 3, 5), 6)]
)
def test_stops_on_two_updates_in_a_row_that_tff_does_not_apply(
  tmp_path, rejected_rounds, last_round
):
  process = small_program.build_process()

  class Rejecting:
    initialize = process.initialize
    get_model_weights = process.get_model_weights
    rounds = 0

    def next(self, state, values):
      self.rounds += 1
      output = process.next(state, values)
      rejected = np.int32(self.rounds in rejected_rounds)
      return tff.learning.templates.LearningProcessOutput(
        output.state, dict(finalizer=dict(update_non_finite=rejected))
      )

  result = small_program.program(tmp_path, process=Rejecting()).run()
  if last_round < 6:
    assert result.reason is StopReason.DIVERGED
    assert 'updates is not finite after round 3' in result.message
  else:
    assert result.reason is StopReason.FINISHED
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    last_round
  )


@pytest.mark.parametrize(
  ('found', 'message'),
  [
    ({'epsilon': 0.1}, '`evaluate` must not return `epsilon`'),
    ({'round_num': 5}, '`evaluate` must not return `round_num`'),
    ({'test_accuracy': 'high'}, "must return numbers, found `test_accuracy` '"),
  ],
)
def test_what_evaluation_must_not_return_is_refused(tmp_path, found, message):
  figures = {'test_accuracy': 0.5, 'test_loss': 1.0} | found
  program = small_program.program(tmp_path, evaluate=lambda weights: figures)
  with pytest.raises(training_program.RoundError, match=message):
    program.run()


def test_a_program_ends_where_it_is_told_to_and_can_go_on(tmp_path):
  stopped = small_program.program(
    tmp_path,
    rounds_per_evaluation=2,
    should_stop=lambda metrics: metrics['round_num'] == 3,
  ).run()
  assert stopped.reason is StopReason.STOPPED
  assert stopped.message == 'Stopped after round 3, as `should_stop` asked for.'
  assert stopped.round_num == 3
  # The last model is evaluated, though round 3 was not to be.
  evaluated = pd.read_csv(tmp_path / 'metrics.csv')['test_loss'].notna()
  assert evaluated.tolist() == [True, False, True, True]
  result = small_program.program(tmp_path).run()
  assert result.reason is StopReason.FINISHED
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    6
  )


@pytest.mark.parametrize('loss', [math.nan, math.inf])
def test_stops_on_a_loss_that_is_not_finite(tmp_path, loss):
  losses = iter([1.0, 1.0, 1.0, loss])

  def evaluate(weights):
    return dict(test_accuracy=0.0, test_loss=next(losses))

  result = small_program.program(tmp_path, evaluate=evaluate).run()
  assert result.reason is StopReason.DIVERGED
  assert 'The test loss is not finite after round 3' in result.message
  assert result.round_num == 2
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    2
  )
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].max() == 2


def test_stops_on_an_initial_loss_that_is_not_finite(tmp_path):
  result = small_program.program(
    tmp_path, evaluate=lambda w: dict(test_accuracy=0, test_loss=math.nan)
  ).run()
  assert result.reason is StopReason.DIVERGED
  assert 'initial model is not finite, found nan' in result.message
  assert Checkpoints(tmp_path / 'checkpoints').rounds() == []


def test_a_signal_in_a_checkpoint_comes_after_it(tmp_path):
  class Signalled(Checkpoints):
    """Is asked to stop while it is written."""

    def save(self, state, round_num, **kwargs):
      if round_num == 3:
        os.kill(os.getpid(), signal.SIGTERM)
      return super().save(state, round_num, **kwargs)

  checkpoints = Signalled(tmp_path / 'checkpoints', keep=2)
  result = small_program.program(
    tmp_path, checkpoints=checkpoints, rounds_per_checkpoint=1
  ).run()
  assert result.reason is StopReason.INTERRUPTED
  assert result.round_num == 3
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    3
  )
  assert checkpoints.rounds() == [2, 3]
  assert pd.read_csv(tmp_path / 'metrics.csv')['round_num'].max() == 3


@pytest.mark.parametrize('damage', ['cut', 'flip', 'header'])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
  tmp_path, caplog, damage
):
  small_program.program(tmp_path).run()
  *_, last = sorted((tmp_path / 'checkpoints').iterdir())
  _damage(last, damage)
  result = small_program.program(tmp_path, num_rounds=7).run()
  assert result.reason is StopReason.FINISHED
  assert result.state['weights'].trainable[0] == small_program.expected_weight(
    7
  )
  assert f'The checkpoint {last.name} is damaged' in caplog.text
  assert len([*(tmp_path / 'checkpoints').glob('damaged_*round_6*')]) == 1


def test_a_damaged_outcome_makes_a_new_draw_that_is_charged(tmp_path):
  ledger = small_program.Ledger()
  small_program.program(tmp_path, ledger=ledger, num_rounds=4).run()
  *_, last = sorted((tmp_path / 'checkpoints').iterdir())
  _damage(last, 'flip')
  small_program.program(tmp_path, ledger=ledger, num_rounds=4).run()
  assert ledger.charged == [1, 2, 3, 4, 4]
  assert ledger.releases[-1].draw == 1


def test_nothing_is_done_if_all_checkpoints_are_damaged(tmp_path):
  small_program.program(tmp_path).run()
  files = sorted((tmp_path / 'checkpoints').iterdir())
  assert [f.name.split('_')[-1] for f in files] == ['4.state', '6.state']
  for file in files:
    _damage(file, 'flip')
  with pytest.raises(
    storage_errors.StorageError, match='No checkpoint .*round_4.*round_6'
  ):
    small_program.program(tmp_path, num_rounds=8).run()
  assert sorted((tmp_path / 'checkpoints').iterdir()) == files


def _damage(file, how):
  content = file.read_bytes()
  if how == 'cut':
    file.write_bytes(content[:-1])
  elif how == 'flip':
    # Of the last array.
    place = len(content) - 6
    flipped = bytes([content[place] ^ 1])
    file.write_bytes(content[:place] + flipped + content[place + 1 :])
  else:
    file.write_bytes(b'[]\n' + content)


def test_a_state_is_its_owners_alone_in_a_folder_that_others_may_read(tmp_path):
  folder = tmp_path / 'checkpoints'
  folder.mkdir(mode=0o755)
  small_program.program(tmp_path).run()
  assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_a_checkpoint_of_another_process_is_refused(tmp_path):
  checkpoints = Checkpoints(tmp_path / 'checkpoints', keep=2)
  checkpoints.save([np.zeros(3, np.float32)], 4)
  with pytest.raises(ValueError, match='round 4 is of another process'):
    small_program.program(tmp_path).run()


@pytest.mark.parametrize('keep', [1, 3])
def test_the_last_checkpoints_are_kept(tmp_path, keep):
  checkpoints = Checkpoints(tmp_path / 'checkpoints', keep=keep)
  small_program.program(
    tmp_path, checkpoints=checkpoints, rounds_per_checkpoint=1
  ).run()
  assert checkpoints.rounds() == list(range(7 - keep, 7))


@pytest.mark.parametrize(
  ('keep', 'error'), [(0, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_no_checkpoints_cannot_be_kept(tmp_path, keep, error):
  with pytest.raises(error, match='`keep` must be'):
    Checkpoints(tmp_path, keep=keep)


def test_what_a_killed_program_left_is_removed(tmp_path):
  small_program.program(tmp_path, num_rounds=2).run()
  unfinished = tmp_path / 'checkpoints' / '.unfinished'
  unfinished.write_bytes(b'{')
  (tmp_path / 'metrics.csv_temp1234').write_text('round_num,')
  small_program.program(tmp_path).run()
  assert not unfinished.exists()
  assert not (tmp_path / 'metrics.csv_temp1234').exists()


def test_a_checkpoint_that_cannot_be_written_leaves_the_others(
  tmp_path, monkeypatch
):
  checkpoints = Checkpoints(tmp_path / 'checkpoints', keep=2)
  first = checkpoints.save([np.float32(1)], 1)

  def fail(*args, **kwargs):
    raise OSError(errno.ENOSPC, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', fail)
    with pytest.raises(
      storage_errors.StorageError,
      match='The checkpoint of round 2 could not be written: No space left.',
    ):
      checkpoints.save([np.float32(2)], 2)
  assert [*(tmp_path / 'checkpoints').iterdir()] == [first.path]
  assert checkpoints.load(first, [np.float32(0)]) == [np.float32(1)]


@pytest.mark.parametrize(
  'leaf',
  [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.zeros([0, 3], np.float64),
    np.int64(-1),
    True,
    tf.constant([1.5, 2.5], tf.bfloat16).numpy(),
    np.array([[1, 2], [3, 4]])[:, 1],
    b'text',
  ],
)
def test_a_state_is_read_as_it_was_written(tmp_path, leaf):
  checkpoints = Checkpoints(tmp_path)
  state = {'a': leaf, 'b': [np.float32(1)]}
  found = checkpoints.load(checkpoints.save(state, 1), state)
  assert found['a'].dtype == np.asarray(leaf).dtype
  np.testing.assert_array_equal(found['a'], leaf)


def test_checkpoints_of_an_earlier_version_are_named(tmp_path):
  (tmp_path / 'round_3').mkdir()
  with pytest.raises(storage_errors.StorageError, match='are of version 0.2'):
    Checkpoints(tmp_path)
  assert (tmp_path / 'round_3').is_dir()


def test_metrics_of_something_else_are_refused(tmp_path):
  (tmp_path / 'metrics.csv').write_text('time,value\n1,2\n')
  with pytest.raises(
    storage_errors.StorageError, match='are damaged. Move the file'
  ):
    small_program.program(tmp_path)


def test_the_tensorboard_log_holds_every_round(tmp_path):
  def stop(metrics):
    if metrics['round_num'] == 3:
      os.kill(os.getpid(), signal.SIGTERM)

  for after in (stop, None):
    program = small_program.program(
      tmp_path, after=after, rounds_per_evaluation=2
    )
    program.run()
    del program  # Closes its file.
  found = collections.defaultdict(dict)
  for path in sorted((tmp_path / 'tensorboard').iterdir()):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        found[value.tag][event.step] = float(tf.make_ndarray(value.tensor))
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert set(found) == set(metrics.columns) - {'round_num'}
  # What the process measures begins with the first round.
  assert sorted(found['metrics']) == list(range(1, 7))
  for tag, values in found.items():
    np.testing.assert_allclose(
      [values[t] for t in sorted(values)],
      metrics.set_index('round_num').loc[sorted(values), tag].astype(float),
      rtol=1e-6,
    )


def test_the_log_shows_the_metrics(tmp_path, caplog):
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.INFO)
  try:
    small_program.program(tmp_path, num_rounds=1).run()
  finally:
    logging.set_verbosity(verbosity)
  assert 'num_clients' in caplog.text
  assert 'key: 1' in caplog.text


def test_a_failed_evaluation_names_the_round(tmp_path):
  def evaluate(weights):
    raise ArithmeticError('no test set')

  with pytest.raises(
    training_program.RoundError,
    match='`evaluate` failed after round 0: no test set',
  ):
    small_program.program(tmp_path, evaluate=evaluate).run()


def test_metrics_have_one_row_shape(tmp_path):
  seen = []
  small_program.program(tmp_path, num_rounds=2, after=seen.append).run()
  assert isinstance(seen[0], collections.OrderedDict)
  assert list(seen[0]) == list(seen[1])


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    (
      'sampler',
      tff.simulation.build_uniform_sampling_fn(['1', '2']),
      '`sampler` must be a `ClientSampler`, found function',
    ),
    ('ledger', small_program.plan('poisson'), '`ledger` must be a `Privacy'),
    ('checkpoints', '/tmp', '`checkpoints` must be a `Checkpoints`, found str'),
    (
      'checkpoints',
      tff.program.FileProgramStateManager('/tmp'),
      '`checkpoints` must be a `Checkpoints`, found FileProgramStateManager',
    ),
    (
      'initial_weights',
      [np.float32(5.0)],
      '`initial_weights` must be .*ModelWeights`, found list; `ModelWeights.fr',
    ),
    ('process', None, '`process` must be a `tff.learning.*`, found NoneType'),
    ('evaluate', 1.0, '`evaluate` must be a `function of model weights`, fou'),
    ('client_value', {}, '`client_value` must be a `function of .*found dict'),
    ('watchers', None, '`watchers` must be a list of .* None'),
    (
      'watchers',
      [tff.program.LoggingReleaseManager()],
      "`watchers` must be a list of .* makes one of TFF's release managers",
    ),
    ('watchers', [print], '`watchers` must be a list of'),
    ('should_stop', True, '`should_stop` must be a `function of metrics`'),
    ('exact_metrics', 'no', "`exact_metrics` must be True, .* found 'no'"),
    ('num_rounds', '3', '`num_rounds` must be an integer'),
    ('rounds_per_evaluation', 0, '`rounds_per_evaluation` must be at least 1'),
    ('rounds_per_checkpoint', 0, '`rounds_per_checkpoint` must be at least 1'),
  ],
)
def test_arguments_of_another_kind_raise_at_once(
  tmp_path, name, value, message
):
  program = small_program.program(tmp_path)
  with pytest.raises((TypeError, ValueError), match=message):
    dataclasses.replace(program, **{name: value})


@pytest.mark.parametrize(
  'found', [None, dict(test_loss=0.0), dict(loss=0.0, accuracy=0.0)]
)
def test_an_evaluation_that_lacks_its_figures_is_no_divergence(tmp_path, found):
  program = small_program.program(tmp_path, evaluate=lambda weights: found)
  with pytest.raises(
    RoundError, match='`evaluate` must return a dict with test_accuracy and te'
  ):
    program.run()


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


def test_what_tensorflow_says_of_an_evaluation_is_a_line(tmp_path):
  @tf.function
  def look_up(rows):
    return tf.gather(tf.zeros([3, 2]), rows)

  def evaluate(weights):
    del weights
    look_up(tf.constant([7]))

  words = r'failed after round 0: [^{\n]*7 is not in \[0, 3\)$'
  with pytest.raises(RoundError, match=words):
    small_program.program(tmp_path, evaluate=evaluate).run()
