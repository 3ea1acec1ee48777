"""Tests of the private run in one call: it is the five parts by hand."""

import fcntl
import os
import stat
from concurrent import futures

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import processes
from tests.learning import linear_models
from tff_clipping import aggregators, learning, privacy, programs
from tff_clipping.aggregators.noise import keys as noise_keys
from tff_clipping.privacy.ledger import ledger_file
from tff_clipping.programs.training import private_program

_N, _P, _T = 40, 10, 4
_BUDGET = dict(
  target_epsilon=20.0, target_delta=1e-3, num_rounds=_T, clients_per_round=_P
)
_WORK = dict(local_steps=2, batch_size=4, client_learning_rate=0.3)
_CLIPPING_NORM = 0.2


def _examples():
  rng = np.random.default_rng(0)
  x = rng.normal(size=[8 * _N, 3]).astype(np.float32)
  return {'x': x, 'y': (x.sum(axis=1) > 0).astype(np.int32)}


def _layers():
  return [tf.keras.layers.Dense(2, kernel_initializer='zeros')]


def _keras_model():
  return tf.keras.Sequential([tf.keras.Input((3,)), *_layers()])


_MODEL_FN = linear_models.layers_fn(_layers, is_classifier=True)


def _loss():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _evaluate(weights):
  return dict(
    test_accuracy=0.5, test_loss=float(np.square(weights.trainable[0]).sum())
  )


def _ending(round_num, error=KeyboardInterrupt):
  """Returns a watcher that ends the program after a round."""

  def end(metrics):
    if metrics['round_num'] == round_num:
      raise error

  return programs.AfterRounds(end)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return programs.write_client_store(
    tmp_path_factory.mktemp('store'),
    'points',
    _examples(),
    np.split(np.arange(8 * _N), _N),
  )


def _build(folder, clients, model_fn=_MODEL_FN, **kwargs):
  settings = dict(
    **_BUDGET,
    **_WORK,
    clipping_norm=_CLIPPING_NORM,
    folder=folder,
    evaluate=_evaluate,
  )
  return programs.build_private_program(model_fn, clients, **settings | kwargs)


def _build_process(plan, store):
  return learning.build_fed_avg(
    _MODEL_FN,
    **_WORK,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=_CLIPPING_NORM,
      **plan.aggregator_parameters._asdict(),
    ),
    client_store=store,
  )


def _run_by_hand(folder, store, seed):
  """Runs all rounds by the five parts; keeps the state after each."""
  plan = privacy.PrivacyPlan.from_target_epsilon(num_clients=_N, **_BUDGET)
  process = _build_process(plan, store)
  folder.mkdir()
  (folder / 'sampling_seed').write_text(str(seed))
  with privacy.PrivacyLedger(folder / 'ledger.jsonl', plan) as ledger:
    result = programs.TrainingProgram(
      process=process,
      sampler=programs.build_private_sampler(plan, store.client_ids, seed=seed),
      num_rounds=plan.num_rounds,
      evaluate=_evaluate,
      checkpoints=programs.Checkpoints(folder / 'checkpoints'),
      watchers=[programs.MetricsFiles(folder / 'metrics.csv')],
      ledger=ledger,
    ).run()
  return process.get_model_weights(result.state).trainable


def _weights(program, result):
  return program.process.get_model_weights(result.state).trainable


def _assert_equal(weights, others):
  for one, other in zip(weights, others, strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_it_is_the_run_of_the_five_parts_bit_for_bit(
  tmp_path, store, monkeypatch
):
  # With the same noise in both, and in each round.
  monkeypatch.setattr(
    noise_keys, 'fresh_key', lambda: tf.constant([1, 2], tf.int64)
  )
  folder = tmp_path / 'run'
  weights = _run_by_hand(folder, store, seed=5)
  monkeypatch.setattr('secrets.randbits', lambda bits: 5)
  program = _build(tmp_path / 'other', store)
  result = program.run()
  assert result.reason is programs.StopReason.FINISHED
  _assert_equal(_weights(program, result), weights)
  metrics, others = (
    pd.read_csv(tmp_path / name / 'metrics.csv') for name in ('run', 'other')
  )
  pd.testing.assert_frame_equal(metrics, others)


@pytest.fixture(name='process', scope='module')
def _process(store):
  """The process of all programs of these settings, built and compiled once."""
  plan = privacy.PrivacyPlan.from_target_epsilon(num_clients=_N, **_BUDGET)
  return _build_process(plan, store)


@pytest.mark.slow
def test_a_run_that_is_done_does_nothing_and_a_killed_one_goes_on(
  tmp_path, store, process, monkeypatch
):
  monkeypatch.setattr(learning, 'build_fed_avg', lambda *_, **__: process)
  folder = tmp_path / 'run'
  # Before a round was charged, what it is made of may change.
  _build(folder, store, clipping_norm=0.7)
  with pytest.raises(processes.Killed):
    _build(folder, store, watchers=[_ending(3, processes.Killed)]).run()
  program = _build(folder, store)
  first = program.run()
  again = _build(folder, store).run()
  _assert_equal(_weights(program, first), _weights(program, again))
  contents = privacy.read_ledger(folder)
  assert contents.num_releases == _T
  assert contents.epsilon <= _BUDGET['target_epsilon']
  assert not contents.caveats
  # With what it is made of, and nothing else.
  for name, other in dict(
    target_epsilon=10.0,
    num_rounds=5,
    clipping_norm=0.3,
    client_learning_rate=0.1,
    local_step=learning.steps.Momentum(0.5),
  ).items():
    with pytest.raises(ValueError, match=f'`{name}` is .* and was'):
      _build(folder, store, **{name: other})


@pytest.mark.slow
def test_client_data_and_a_keras_model_are_taken_as_they_are(tmp_path):
  examples = _examples()
  data = tff.simulation.datasets.TestClientData(
    {
      f'{client:02d}': {
        name: values[8 * client : 8 * client + 8]
        for name, values in examples.items()
      }
      for client in range(_N)
    }
  )
  program = _build(
    tmp_path / 'run', data, _keras_model, loss=_loss(), evaluate=None
  )
  before = _keras_model()
  result = program.run()
  assert result.reason is programs.StopReason.FINISHED
  assert program.plan.num_clients == _N
  assert list(program.sampler.client_ids) == data.client_ids
  program.process.get_model_weights(result.state).assign_weights_to(before)
  assert np.any(before.predict(np.ones([1, 3]), verbose=0) != 0)


@pytest.mark.slow
def test_what_clients_keep_is_kept_in_the_folder(tmp_path, store):
  step = learning.steps.Scaffold(_P / _N, clipping_norm=_CLIPPING_NORM)
  for watchers in ([_ending(2)], []):
    program = _build(tmp_path, store, local_step=step, watchers=watchers)
    if watchers:
      with pytest.raises(KeyboardInterrupt):
        program.run()
  assert program.run().reason is programs.StopReason.FINISHED
  states = programs.ClientStates(
    tmp_path / 'client_states', program.process, store.client_ids
  )
  (last,) = programs.Checkpoints(tmp_path / 'checkpoints').outcomes()[-1:]
  states.resume(_T, last.id)
  (client_id, *_) = program.sampler.sample(_T)
  assert any(np.any(kept) for kept in states.read(client_id, _T + 1))


@pytest.fixture(name='is_not_built')
def _is_not_built(monkeypatch):
  """Leaves out the process, which takes seconds."""
  monkeypatch.setattr(learning, 'build_fed_avg', lambda *_, **__: None)


@pytest.mark.usefixtures('is_not_built')
def test_its_secrets_are_its_owners(tmp_path, store):
  folder = tmp_path / 'run'
  with _build(folder, store).open_ledger():
    pass
  seed = folder / 'sampling_seed'
  assert stat.S_IMODE(folder.stat().st_mode) == 0o700
  assert stat.S_IMODE(seed.stat().st_mode) == 0o600
  assert int(seed.read_text()).bit_length() > 64
  assert _build(folder, store).seed == int(seed.read_text())
  assert _build(tmp_path / 'other', store).seed != int(seed.read_text())


@pytest.mark.usefixtures('is_not_built')
def test_a_run_whose_ledger_is_lost_does_not_begin_again_on_its_cohorts(
  tmp_path, store, monkeypatch
):
  # A lost run has left its seed, and the new one is killed as it begins.
  (tmp_path / 'sampling_seed').write_text('5')
  create = privacy.PrivacyLedger.__init__

  def create_and_end(*args):
    create(*args)
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, '__init__', create_and_end)
    with pytest.raises(KeyboardInterrupt):
      _build(tmp_path, store).open_ledger()
  assert (tmp_path / 'ledger.jsonl').exists()
  assert _build(tmp_path, store).seed != 5
  with _build(tmp_path, store).open_ledger():
    pass
  kept = _build(tmp_path, store).seed
  assert kept == _build(tmp_path, store).seed
  (tmp_path / 'settings.json').touch()
  (tmp_path / 'ledger.jsonl').unlink()
  (tmp_path / 'checkpoints').mkdir()
  (tmp_path / 'checkpoints' / '00000001_round_1.state').touch()
  (tmp_path / 'metrics.csv').touch()
  for left in ('checkpoints/00000001_round_1.state', 'metrics.csv'):
    with pytest.raises(ValueError, match=f'the ledger of its .*{left} without'):
      _build(tmp_path, store)
    (tmp_path / left).unlink()
  (tmp_path / 'settings.json').unlink()
  assert _build(tmp_path, store).seed != kept


@pytest.mark.usefixtures('is_not_built')
@pytest.mark.parametrize('left', [None, b'', b'{"line":1,"ki'])
def test_a_program_that_is_killed_before_its_ledger_has_a_line_begins_again(
  tmp_path, store, monkeypatch, left
):
  ledger = tmp_path / 'ledger.jsonl'

  def leave(self, content):
    ledger.write_bytes(left or b'')
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(ledger_file.LedgerFile, 'append', leave)
    with pytest.raises(KeyboardInterrupt):
      _build(tmp_path, store).open_ledger()
  if left is None:
    ledger.unlink()
    (tmp_path / 'ledger.jsonl.seal').unlink()
  assert (tmp_path / 'settings.json').exists()
  # What was not begun has no settings that it must keep.
  program = _build(tmp_path, store, clipping_norm=0.3)
  with program.open_ledger() as opened:
    assert opened.num_releases == 0
  assert _build(tmp_path, store).seed == program.seed


@pytest.mark.usefixtures('is_not_built')
def test_a_program_from_before_the_run_began_does_not_go_on_with_it(
  tmp_path, store
):
  first, second = _build(tmp_path, store), _build(tmp_path, store)
  other = _build(tmp_path, store, clipping_norm=0.3)
  with first.open_ledger() as ledger:
    ledger.charge(1, 'an id')
  with pytest.raises(ValueError, match='`clipping_norm` is 0.3 and was 0.2'):
    other.open_ledger()
  # It would draw its cohorts by another seed.
  with pytest.raises(ValueError, match='build the program again'):
    second.open_ledger()
  for program in (first, _build(tmp_path, store)):
    with program.open_ledger() as ledger:
      assert ledger.num_releases == 1


@pytest.mark.usefixtures('is_not_built')
def test_a_program_that_comes_too_late_leaves_the_seed_of_the_run(
  tmp_path, store, monkeypatch
):
  first, second = _build(tmp_path, store), _build(tmp_path, store)
  write, late = private_program.PrivateProgram._write_kept, []

  def write_slowly(self):
    if self is second and not late:
      # It has seen no ledger. Now the first begins too.
      late.append(executor.submit(first.open_ledger))
      futures.wait(late)
    write(self)

  monkeypatch.setattr(
    private_program.PrivateProgram, '_write_kept', write_slowly
  )
  with futures.ThreadPoolExecutor() as executor, second.open_ledger():
    with pytest.raises(privacy.LedgerInUseError):
      late[0].result()
  assert _build(tmp_path, store).seed == second.seed


@pytest.mark.usefixtures('is_not_built')
def test_a_lock_of_ones_own_on_the_folder_is_no_matter(tmp_path, store):
  # As `flock FOLDER python run.py` takes it.
  lock = os.open(tmp_path, os.O_RDONLY)
  fcntl.flock(lock, fcntl.LOCK_EX)
  with _build(tmp_path, store).open_ledger() as ledger:
    assert ledger.num_releases == 0
  os.close(lock)


@pytest.mark.usefixtures('is_not_built')
def test_an_outcome_that_is_not_charged_yet_keeps_the_settings(tmp_path, store):
  program = _build(tmp_path, store)
  with program.open_ledger():
    programs.Checkpoints(tmp_path / 'checkpoints').save([np.float32(1)], 1)
  with pytest.raises(ValueError, match='`clipping_norm` is 0.3 and was 0.2'):
    _build(tmp_path, store, clipping_norm=0.3)
  with _build(tmp_path, store).open_ledger():
    pass
  assert _build(tmp_path, store).seed == program.seed


@pytest.mark.usefixtures('is_not_built')
@pytest.mark.parametrize(
  ('build', 'others'),
  [
    (tff.learning.optimizers.build_adam, (dict(beta_1=0.5),)),
    # Its state has vectors.
    (tff.learning.optimizers.build_adafactor, ()),
  ],
)
def test_the_numbers_of_a_server_optimizer_may_not_change(
  tmp_path, store, build, others
):
  chosen = dict(learning_rate=0.1)
  program = _build(tmp_path, store, server_optimizer=build(**chosen))
  with program.open_ledger() as ledger:
    ledger.charge(1, 'an id')
  _build(tmp_path, store, server_optimizer=build(**chosen))
  for other in (dict(learning_rate=0.2), *others):
    with pytest.raises(ValueError, match='`server_optimizer` is .* and was'):
      _build(tmp_path, store, server_optimizer=build(**chosen | other))


@pytest.mark.usefixtures('is_not_built')
@pytest.mark.parametrize('content', ['', '{}', '[]'])
@pytest.mark.parametrize('name', ['sampling_seed', 'settings.json'])
def test_a_damaged_file_of_the_run_is_named(tmp_path, store, name, content):
  with _build(tmp_path, store).open_ledger() as ledger:
    ledger.charge(1, 'an id')
  (tmp_path / name).write_text(content)
  with pytest.raises(programs.StorageError, match=f'{name} is damaged: resto'):
    _build(tmp_path, store)


@pytest.mark.usefixtures('is_not_built')
def test_a_ledger_that_cannot_be_opened_is_a_storage_error(
  tmp_path, store, monkeypatch
):
  def fail(self, content):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(ledger_file.LedgerFile, 'append', fail)
  with pytest.raises(programs.StorageError, match='The ledger .* No space'):
    _build(tmp_path, store).open_ledger()


@pytest.mark.slow
def test_a_run_whose_outcomes_are_lost_begins_anew_as_its_error_says(
  tmp_path, store, process, monkeypatch
):
  monkeypatch.setattr(learning, 'build_fed_avg', lambda *_, **__: process)

  with pytest.raises(KeyboardInterrupt):
    _build(tmp_path, store, watchers=[_ending(2)]).run()
  for path in (tmp_path / 'checkpoints').iterdir():
    path.unlink()
  with pytest.raises(programs.StorageError, match='with `start_over=True`'):
    _build(tmp_path, store).run()
  (tmp_path / 'metrics.csv').unlink()
  result = _build(tmp_path, store).run(start_over=True)
  assert result.reason is programs.StopReason.BUDGET_EXHAUSTED
  assert result.round_num == _T - 2
  releases = privacy.read_ledger(tmp_path).releases
  assert [release[1:] for release in releases] == [
    *((1, 0), (2, 0), (1, 1), (2, 1))
  ]


@pytest.mark.parametrize(
  ('changed', 'error', 'message'),
  [
    (dict(target_epsilon=-1.0), ValueError, '`target_epsilon` must'),
    (dict(clipping_norm=0.0), ValueError, '`clipping_norm` must'),
    (dict(model_fn=_keras_model), TypeError, 'wrap a Keras model'),
    (dict(clients={'a': [1]}), TypeError, '`clients` must be a client store'),
  ],
)
def test_what_the_parts_refuse_is_refused(
  tmp_path, store, changed, error, message
):
  with pytest.raises(error, match=message):
    _build(tmp_path / 'run', **dict(clients=store) | changed)
