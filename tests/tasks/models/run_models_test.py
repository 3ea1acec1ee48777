"""Tests of models as TFF trains them."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import group_norm, keras_models, run_models
from tff_clipping import learning
from tff_clipping.programs.clients import client_store

_DIGITS = (28, 28, 1)
_IMAGES = (32, 32, 3)


def _examples(shape, num_classes):
  rng = np.random.default_rng(0)
  if len(shape) == 1:
    tokens = rng.integers(1, num_classes, (6, shape[0] + 1), np.int32)
    return collections.OrderedDict(x=tokens[:, :-1], y=tokens[:, 1:])
  return collections.OrderedDict(
    x=rng.integers(0, 256, (6, *shape), np.uint8),
    y=rng.integers(0, num_classes, 6, np.int32),
  )


def _model_fn(create, examples, num_classes):
  spec = collections.OrderedDict(
    (key, tf.TensorSpec(value.shape[1:], value.dtype))
    for key, value in examples.items()
  )
  return run_models.build_model_fn(
    lambda: create(spec['x'].shape, num_classes), spec
  )


def _check_moved(before, after):
  for old, new in zip(before, after, strict=True):
    assert np.isfinite(new).all()
    assert not np.array_equal(old, new)


@pytest.mark.parametrize(
  ('name', 'shape', 'num_classes'),
  [
    ('mlp', _DIGITS, 10),
    ('alexnet', _DIGITS, 62),
    ('mobilenet_v2', _IMAGES, 100),
    ('resnet18', _IMAGES, 100),
    ('shakespeare_lstm', (80,), 90),
  ],
)
@pytest.mark.slow
def test_a_step_moves_each_weight(name, shape, num_classes):
  examples = _examples(shape, num_classes)
  model = _model_fn(keras_models.MODELS[name], examples, num_classes)()
  before = [v.numpy() for v in model.trainable_variables]
  with tf.GradientTape() as tape:
    loss = model.forward_pass(examples, training=True).loss
  gradients = tape.gradient(loss, model.trainable_variables)
  for variable, gradient in zip(
    model.trainable_variables, gradients, strict=True
  ):
    variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
  _check_moved(before, [v.numpy() for v in model.trainable_variables])


def _create_small(input_shape, num_classes):
  return tf.keras.Sequential(
    [
      tf.keras.layers.Rescaling(1 / 255, input_shape=input_shape),
      tf.keras.layers.Conv2D(4, 3),
      tf.keras.layers.DepthwiseConv2D(3),
      group_norm.GroupNorm(2),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(num_classes),
    ]
  )


@pytest.mark.slow
def test_one_round_trains_a_model_of_sequences(tmp_path):
  examples = _examples((80,), 90)
  store = client_store.write_client_store(
    tmp_path, 'test', examples, [np.arange(3), np.arange(3, 6)]
  )
  process = learning.build_fed_avg(
    _model_fn(keras_models.create_shakespeare_lstm, examples, 90),
    local_steps=1,
    batch_size=2,
    client_learning_rate=0.01,
    client_store=store,
  )
  state = process.initialize()
  before = process.get_model_weights(state).trainable
  state = process.next(state, list(store.client_ids)).state
  _check_moved(before, process.get_model_weights(state).trainable)


@pytest.mark.slow
def test_model_fn_trains_in_stock_tff():
  examples = _examples(_IMAGES, 10)
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn(_create_small, examples, 10),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.01),
  )
  state = process.initialize()
  before = process.get_model_weights(state).trainable
  data = tf.data.Dataset.from_tensor_slices(examples).batch(3)
  state = process.next(state, [data, data]).state
  _check_moved(before, process.get_model_weights(state).trainable)
