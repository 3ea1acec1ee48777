"""Tests of runs with data, a model and an aggregator of a user's own."""

import dataclasses
import functools
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tasks import own_run
from tasks.data import own
from tasks.data.partitions import PartitionConfig
from tff_clipping import aggregators
from tff_clipping.learning import steps
from tff_clipping.programs.checks import records

_SETTINGS = dict(
  algorithm='fed_avg',
  clients_per_round=4,
  num_rounds=2,
  local_steps=1,
  batch_size=4,
  client_learning_rate=0.1,
)
_PRIVATE = dict(
  algorithm='dp_fed_avg',
  clipping_norm=0.5,
  noise_multiplier=1.0,
  target_delta=1e-2,
  sampling='poisson',
)


def _create_task(seed=0, test=True, split=None):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(80, 3))
  y = (x[:, 0] > 0).astype(int)
  x_test = rng.normal(size=(20, 3))
  y_test = (x_test[:, 0] > 0).astype(int)
  held_out = dict(x_test=x_test, y_test=y_test) if test else {}
  return own.create_task(
    'mine',
    split or PartitionConfig('natural'),
    x=x,
    y=y,
    client=np.arange(80) % 10,
    **held_out,
  )


def _create_shards(split):
  """Returns a task that is split by its own mind."""
  del split
  own_split = PartitionConfig('shards', num_clients=8, shards_per_client=5)
  return _create_task(split=own_split)


def _create_model(input_shape, num_classes):
  inputs = tf.keras.Input(input_shape)
  return tf.keras.Model(inputs, tf.keras.layers.Dense(num_classes)(inputs))


def _create_wide_model(input_shape, num_classes):
  inputs = tf.keras.Input(input_shape)
  hidden = tf.keras.layers.Dense(7)(inputs)
  return tf.keras.Model(inputs, tf.keras.layers.Dense(num_classes)(hidden))


def _train(folder, **changes):
  arguments = dict(task=_create_task(), model=_create_model)
  return own_run.train(
    **arguments | _SETTINGS | changes,
    output_dir=folder / 'run',
    cache_dir=str(folder / 'cache'),
  )


def _read(folder, name):
  return json.loads((folder / 'run' / name).read_text())


@pytest.mark.slow
def test_a_run_of_python_objects_goes_on_with_the_same_alone(tmp_path):
  def right(y_true, y_pred):
    return tf.cast(y_true == tf.argmax(y_pred, 1, tf.int32), tf.float32)

  objective = dict(
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[right, 'accuracy'],
    metric_goal='max',
  )
  assert _train(tmp_path, **objective).message == 'Finished 2 rounds.'
  config = _read(tmp_path, 'config.json')
  assert config['experiment']['task'] == 'python:mine'
  assert config['experiment']['partition'] == 'natural'
  assert config['experiment']['model'].endswith(':_create_model')
  assert config['model']['num_parameters'] == 3 * 2 + 2
  assert config['task']['num_clients'] == 10
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert (config['metric'], config['metric_goal']) == ('right', 'max')
  np.testing.assert_allclose(metrics['test_right'], metrics['test_accuracy'])
  assert metrics['update_norm_mean'][1:].notna().all()
  before = (tmp_path / 'run' / 'metrics.csv').read_bytes()
  ended = _read(tmp_path, 'result.json')
  again = _train(tmp_path, **objective)
  assert again.message == 'Nothing was left to do. Finished 2 rounds.'
  assert _read(tmp_path, 'result.json') == ended
  with pytest.raises(ValueError, match='the SHA-256 of the data changed'):
    _train(tmp_path, **objective, task=_create_task(seed=1))
  with pytest.raises(ValueError, match='model was .*_create_model'):
    _train(tmp_path, **objective, model=_create_wide_model)
  # The same name, for another model.
  other = _create_wide_model
  named = (other.__qualname__, other.__name__)
  other.__qualname__ = _create_model.__qualname__
  try:
    with pytest.raises(ValueError, match='parameters .* from 8 to 44'):
      _train(tmp_path, **objective, model=other)
  finally:
    other.__qualname__, other.__name__ = named
  assert (tmp_path / 'run' / 'metrics.csv').read_bytes() == before


@pytest.mark.parametrize(
  'task', [_create_shards(None), f'{__name__}:_create_shards']
)
def test_config_json_has_the_split_of_the_task(tmp_path, task):
  assert _train(tmp_path, task=task).message == 'Finished 2 rounds.'
  experiment = _read(tmp_path, 'config.json')['experiment']
  assert experiment['partition'] == 'shards'
  assert experiment['num_clients'] == 8
  assert experiment['shards_per_client'] == 5
  # It is the same run when it goes on.
  again = _train(tmp_path, task=task).message
  assert again.startswith('Nothing was left to do.')
  assert _read(tmp_path, 'config.json')['experiment'] == experiment


def test_a_cohort_is_of_the_clients_that_the_data_have(tmp_path):
  with pytest.raises(ValueError, match='`clients_per_round` .* 10 clients'):
    _train(tmp_path, clients_per_round=11, sampling='poisson')


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_a_model_and_takes_an_own_step(
  tmp_path,
):
  model = _create_model((3,), 2)
  # Who is above 0 in the first feature is of class 1, which no chance gives.
  model.set_weights([np.array([[-9, 9], [0, 0], [0, 0]]), np.zeros(2)])
  path = tmp_path / 'model.weights.h5'
  model.save_weights(path)

  def create_pretrained(input_shape, num_classes):
    pretrained = _create_model(input_shape, num_classes)
    pretrained.load_weights(path)
    return pretrained

  def create_step(participation):
    return steps.Scaffold(participation)

  changes = dict(
    model=create_pretrained, local_step=create_step, client_learning_rate=1e-6
  )
  _train(tmp_path, **changes)
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert metrics['test_accuracy'].tolist() == [1.0, 1.0, 1.0]
  # And goes on from.
  result = _train(tmp_path, **changes)
  assert result.message.startswith('Nothing was left to do.')
  name = _read(tmp_path, 'config.json')['experiment']['local_step']
  assert name.endswith('create_step')
  # What its clients keep.
  assert (tmp_path / 'run' / 'client_states').is_dir()


def _check_takes_the_plan(folder, result, *, is_checked):
  unchecked = records.UNCHECKED
  assert (unchecked in result.message) != is_checked
  plan = _read(folder, 'privacy.json')
  assert plan['noise_multiplier'] == 1.0
  said = (
    'Its record was compared with the plan; what it does to the result was not.'
    if is_checked
    else 'This was not checked.'
  )
  assert plan['aggregation'].endswith(f"adds the plan's noise. {said}")
  assert any(unchecked in caveat for caveat in plan['caveats']) != is_checked
  ledger = (folder / 'run' / 'ledger.jsonl').read_text()
  assert (unchecked in ledger) != is_checked


@pytest.mark.slow
def test_an_own_private_aggregator_takes_the_plan(tmp_path):
  def create_aggregator(clipping_norm, plan):
    return aggregators.transformed_factory(
      aggregators.dp_mean_factory(
        clipping_norm=clipping_norm,
        **plan.aggregator_parameters._asdict(),
      ),
      before=lambda x: tf.nest.map_structure(tf.sign, x),
    )

  result = _train(tmp_path, **_PRIVATE, aggregator=create_aggregator)
  _check_takes_the_plan(tmp_path, result, is_checked=True)


def test_a_private_run_needs_a_test_set_and_classes_of_its_own(tmp_path):
  with pytest.raises(ValueError, match='`task` must have a test set of its'):
    _train(tmp_path, **_PRIVATE, task=_create_task(test=False))
  task = dataclasses.replace(_create_task(), classes_are_of_clients=True)
  with pytest.raises(ValueError, match='`task` must have `num_classes`'):
    _train(tmp_path, **_PRIVATE, task=task)
  assert not (tmp_path / 'run' / 'config.json').exists()


def _without_noise(clipping_norm, plan):
  del plan
  return aggregators.clipped_mean_factory(clipping_norm=clipping_norm)


def test_an_own_aggregator_without_a_record_is_not_checked(tmp_path):
  result = _train(tmp_path, **_PRIVATE, aggregator=_without_noise)
  _check_takes_the_plan(tmp_path, result, is_checked=False)


def _compiled(input_shape, num_classes):
  model = _create_model(input_shape, num_classes)
  model.compile('sgd', 'mse')
  return model


def _fails(y_true, y_pred):
  return {}[y_pred.dtype]


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(model=_compiled), 'must not be compiled'),
    # One and the same, outside of a graph and within.
    (
      dict(model=functools.cache(_create_model)),
      'must make its variables itself',
    ),
    (dict(model='vgg'), '`model` must be one of mlp, .* found vgg'),
    (dict(loss='mae2'), "`loss` must be a name .* loss function: 'mae2'$"),
    (
      dict(loss='mse', metrics=['maee'], metric_goal='min'),
      "`metrics` must be a name .* found 'maee'",
    ),
    (dict(loss=_fails), '`loss` must .* that .*:_fails failed: KeyError'),
    (
      dict(metrics=[_fails], metric_goal='min'),
      '`metrics` must .* that .*:_fails failed: KeyError',
    ),
  ],
)
def test_what_cannot_be_trained_or_measured_leaves_no_file(
  tmp_path, changes, words
):
  with pytest.raises(ValueError, match=words):
    _train(tmp_path, **_PRIVATE, **changes)
  # It is free for another try.
  assert not [*(tmp_path / 'run').glob('[!.]*')]
