"""Tests of what a model of a user's own has to be, by what it does.

It gives logits where the loss takes them, TFF trains all of it, and a file has
all of its weights.
"""

import numpy as np
import pytest
import tensorflow as tf

from tasks.models import own_models

_LAYERS = tf.keras.layers
_SHAPE = (8,)


def _create(create_model, num_classes):
  return own_models.create_own_model(
    create_model, _SHAPE, num_classes, output_shape=(num_classes,)
  )


def _ends_with(*layers, dtype='float32', **kwargs):
  """Returns a function of a model whose last layers these functions make."""

  def create_model(input_shape, num_classes):
    return tf.keras.Sequential(
      [
        tf.keras.Input(input_shape),
        _LAYERS.Dense(5, 'relu', dtype=dtype),
        _LAYERS.Dense(num_classes, dtype=dtype, **kwargs),
        *(create_layer() for create_layer in layers),
      ]
    )

  return create_model


def _functional(of_logits):
  def create_model(input_shape, num_classes):
    inputs = tf.keras.Input(input_shape)
    return tf.keras.Model(inputs, of_logits(_LAYERS.Dense(num_classes)(inputs)))

  return create_model


class _Subclass(tf.keras.Model):
  def __init__(self, num_classes, of_logits):
    super().__init__()
    self.dense = _LAYERS.Dense(num_classes)
    self.of_logits = of_logits

  def call(self, inputs):
    return self.of_logits(self.dense(inputs))


def _softmax_by_hand(logits):
  return tf.exp(logits) / tf.reduce_sum(tf.exp(logits), axis=-1, keepdims=True)


@pytest.mark.parametrize(
  'create_model',
  [
    *(
      _ends_with(activation=activation)
      for activation in (
        'softmax',
        'sigmoid',
        tf.nn.softmax,
        lambda z: tf.nn.softmax(z / 5),
        _softmax_by_hand,
      )
    ),
    _ends_with(lambda: _LAYERS.Activation('softmax')),
    _ends_with(activation=tf.nn.softmax, kernel_initializer='zeros'),
    _functional(tf.nn.softmax),
    lambda shape, n: _Subclass(n, _softmax_by_hand),
    *(
      _ends_with(activation=tf.nn.softmax, dtype=dtype)
      for dtype in ('float64', 'float16', 'bfloat16')
    ),
  ],
)
def test_probabilities_are_no_logits(create_model):
  with pytest.raises(ValueError, match='found probabilities'):
    _create(create_model, 40)


@pytest.mark.parametrize(
  'create_model',
  [
    _ends_with(),
    _ends_with(activation='relu'),
    _ends_with(activation='tanh'),
    _ends_with(activation=tf.nn.log_softmax),
    _ends_with(kernel_initializer='zeros'),
    _ends_with(kernel_regularizer='l2'),
    _ends_with(lambda: _LAYERS.Dropout(0.5)),
    lambda shape, n: _Subclass(n, tf.identity),
  ],
)
def test_logits_are_taken(create_model):
  _create(create_model, 4)


def test_the_seed_decides_the_initial_weights():
  first, second, other = (
    own_models.create_own_model(
      _ends_with(), _SHAPE, 4, output_shape=(4,), seed=seed
    ).get_weights()
    for seed in (1, 1, 2)
  )
  for a, b in zip(first, second, strict=True):
    np.testing.assert_array_equal(a, b)
  assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize('dtype', [tf.int32, tf.uint8])
def test_probabilities_of_whole_numbers_are_no_logits(dtype):
  def create_model(input_shape, num_classes):
    return tf.keras.Sequential(
      [
        _LAYERS.Embedding(2, 4, input_length=input_shape[0]),
        _LAYERS.Dense(num_classes, activation=tf.nn.softmax),
      ]
    )

  with pytest.raises(ValueError, match='found probabilities'):
    own_models.create_own_model(
      *(create_model, _SHAPE, 2),
      output_shape=(*_SHAPE, 2),
      input_dtype=dtype,
    )


class _OwnStep(tf.keras.Sequential):
  def train_step(self, data):
    return {}


class _FailsInTraining(_LAYERS.Layer):
  def call(self, inputs, training=False):
    if training:
      raise AttributeError('failed in training')
    return inputs


class _AddsLoss(_LAYERS.Layer):
  def call(self, inputs):
    self.add_loss(tf.reduce_sum(inputs))
    return inputs


def _with_loss_of_outputs(input_shape, num_classes):
  model = _functional(tf.identity)(input_shape, num_classes)
  model.add_loss(tf.reduce_mean(model.outputs[0]))
  return model


@pytest.mark.parametrize(
  ('create_model', 'words'),
  [
    (
      _ends_with(kernel_constraint=tf.keras.constraints.NonNeg()),
      'must not have constraints.* found NonNeg for .*kernel',
    ),
    (
      lambda shape, n: _OwnStep([_LAYERS.Dense(n, input_shape=shape)]),
      'must not need its own `train_step`',
    ),
    (_ends_with(activity_regularizer='l2'), 'losses of its activations'),
    (_ends_with(_AddsLoss), 'losses of its activations'),
    (_with_loss_of_outputs, 'losses of its activations'),
    # What does not fit the data.
    (lambda: None, 'takes 0 positional arguments but 2 were given'),
    (lambda shape, n: 3, 'returns a Model, found that .* returns int'),
    (_ends_with()(_SHAPE, 4), '`model` must be a function that works'),
    (lambda shape, n: _ends_with()((4,), n), r'take examples of float32\[8\]'),
    (_ends_with(_FailsInTraining), r'(?s)float32\[8\].*failed in training'),
    (_functional(lambda x: [x, x]), 'must have one output, .* found 2 of'),
  ],
)
def test_what_would_not_be_trained_as_it_is_is_refused(create_model, words):
  with pytest.raises((TypeError, ValueError), match=words):
    _create(create_model, 4)


def test_labels_may_be_of_another_length_than_the_inputs():
  def create_model(input_shape, num_classes):
    return tf.keras.Sequential(
      [
        _LAYERS.Dense(3 * num_classes, input_shape=input_shape),
        _LAYERS.Reshape([3, num_classes]),
      ]
    )

  own_models.create_own_model(create_model, _SHAPE, 4, output_shape=(3, 4))
  with pytest.raises(ValueError, match=r'shape \[2, 4\] .* found \[2, 3, 4\]'):
    _create(create_model, 4)


class _Keeps(_LAYERS.Layer):
  """Applies dense layers, wherever it keeps them."""

  def __init__(self, keep):
    super().__init__()
    self.kept = keep([_LAYERS.Dense(8) for _ in range(4)])

  def call(self, inputs):
    for layer in tf.nest.flatten(self.kept):
      inputs = layer(inputs)
    return inputs


@pytest.mark.parametrize(
  ('keep', 'is_whole'),
  [
    (list, True),
    (lambda layers: [layers[:2], layers[2:]], False),
    (lambda layers: [tuple(layers[:2]), tuple(layers[2:])], False),
    (lambda layers: {'a': layers[:2], 'b': layers[2:]}, False),
    (lambda layers: {'a': dict(b=layers[0]), 'c': layers[1:]}, False),
  ],
)
def test_a_model_whose_file_would_lack_weights_is_refused(
  tmp_path, keep, is_whole
):
  def create_model(input_shape, num_classes):
    return tf.keras.Sequential(
      [tf.keras.Input(input_shape), _Keeps(keep), _LAYERS.Dense(num_classes)]
    )

  path = tmp_path / 'model.weights.h5'
  if not is_whole:
    with pytest.raises(ValueError, match='Keras can write.* 2 of 10 .*kernel'):
      _create(create_model, 4)
    with pytest.raises(ValueError, match='2 of 10 weights'):
      own_models.save_weights(create_model(_SHAPE, 4), path)
    return
  model = _create(create_model, 4)
  before = model.get_weights()
  own_models.save_weights(model, path)
  other = create_model(_SHAPE, 4)
  other.load_weights(path)
  for each in (model, other):
    for a, b in zip(each.get_weights(), before, strict=True):
      np.testing.assert_array_equal(a, b)
