"""Tests of our models.

They have the paper's sizes, weights that the seed alone decides, images that
are scaled, and a data format and a type that no keras.json changes.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import keras_models

_DIGITS = (28, 28, 1)
_IMAGES = (32, 32, 3)
_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
  ('name', 'shape', 'expected', 'num_layers'),
  [
    # Tables 3 and 4 of the paper: 159K, 3.3M, 2.3M, 11.1M and 616K; 2, 7 and 18
    # layers, which do not count the three convs of ResNet-18's shortcuts.
    ('mlp', _DIGITS, 159_010, 2),
    ('mlp', _IMAGES, 616_610, 2),
    ('alexnet', _DIGITS, 3_310_282, 7),
    ('alexnet', _IMAGES, 3_311_434, 7),
    pytest.param('mobilenet_v2', _DIGITS, 2_296_346, None, marks=_SLOW),
    # What docs/data.md says.
    pytest.param('mobilenet_v2', _IMAGES, 2_296_922, None, marks=_SLOW),
    pytest.param('resnet18', _DIGITS, 11_172_810, 18 + 3, marks=_SLOW),
    pytest.param('resnet18', _IMAGES, 11_173_962, 18 + 3, marks=_SLOW),
    # Embedding 90·8; LSTM 4·256·(8 + 256 + 1) and 4·256·(256 + 256 + 1);
    # dense 256·90 + 90.
    pytest.param(
      *('shakespeare_lstm', (5,)),
      *(720 + 271_360 + 525_312 + 23_130, None),
      marks=_SLOW,
    ),
  ],
)
def test_the_size_is_the_papers_and_the_seed_alone_decides_the_weights(
  name, shape, expected, num_layers
):
  classes = 90 if name == 'shakespeare_lstm' else 10
  create = keras_models.MODELS[name]
  model = create(shape, classes, seed=5)
  assert model.count_params() == expected
  kinds = tf.keras.layers.Conv2D | tf.keras.layers.Dense
  if num_layers is not None:
    assert sum(isinstance(la, kinds) for la in model.layers) == num_layers
  assert not model.non_trainable_variables
  assert model.output_shape[-1] == classes
  other = create(shape, classes, seed=6)
  kernels = zip(model.get_weights(), other.get_weights(), strict=True)
  assert not any(np.array_equal(a, b) for a, b in kernels if a.ndim > 1)

  # The user's keras.json changes nothing.
  x = np.random.default_rng(0).integers(1, 90, (2, *shape))
  x = x.astype(np.int32 if name == 'shakespeare_lstm' else np.uint8)
  backend = tf.keras.backend
  before = backend.floatx(), backend.image_data_format()
  try:
    backend.set_floatx('float64')
    if name != 'shakespeare_lstm':  # Keras's LSTM fails with the other.
      backend.set_image_data_format('channels_first')
    again = create(shape, classes, seed=5)
    found = again(x)
  finally:
    backend.set_floatx(before[0])
    backend.set_image_data_format(before[1])
  assert found.dtype == tf.float32
  for a, b in zip(again.weights, model.weights, strict=True):
    assert a.dtype == b.dtype == tf.float32
    np.testing.assert_array_equal(a, b)
  np.testing.assert_array_equal(found, model(x))


@pytest.mark.slow
def test_shakespeare_lstm_is_tffs_baseline():
  model = keras_models.create_shakespeare_lstm()
  assert model.output_shape == (None, 80, 90)
  baseline = (
    tff.simulation.baselines.shakespeare.create_character_prediction_task(
      tff.simulation.baselines.ClientSpec(num_epochs=1, batch_size=1),
      use_synthetic_data=True,
    )
  )
  with tf.Graph().as_default():
    shapes = [v.shape for v in baseline.model_fn().trainable_variables]
  assert [v.shape for v in model.trainable_variables] == shapes


def test_layers_of_one_shape_start_from_different_weights():
  weights = keras_models.create_resnet18(_DIGITS, 10).get_weights()
  same = [w for w in weights if w.shape == (3, 3, 64, 64)]
  assert len(same) == 4
  assert not any(np.array_equal(same[0], w) for w in same[1:])


@pytest.mark.parametrize(
  ('shape', 'scaled'),
  [(_DIGITS, lambda x: x / 255), (_IMAGES, lambda x: x / 127.5 - 1)],
)
def test_bytes_are_scaled_by_the_model_or_beforehand(shape, scaled):
  images = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
  from_bytes = keras_models.create_mlp(shape, 10)(images)
  from_floats = keras_models.create_mlp(shape, 10, input_dtype=tf.float32)
  expected = from_floats(scaled(images).astype(np.float32))
  np.testing.assert_allclose(from_bytes, expected, rtol=1e-3, atol=1e-5)
  # To the same bits, for all steps of a client at once.
  examples = keras_models.scale_images(
    collections.OrderedDict(x=tf.constant(images), y=tf.constant([1, 2]))
  )
  assert examples['x'].dtype == tf.float32
  np.testing.assert_array_equal(examples['y'], [1, 2])
  np.testing.assert_array_equal(from_bytes, from_floats(examples['x']))
  # What are no bytes is not scaled.
  tokens = collections.OrderedDict(x=tf.constant([[3, 4]]))
  assert keras_models.scale_images(tokens)['x'] is tokens['x']


@pytest.mark.parametrize(
  ('build', 'words'),
  [
    (
      lambda: keras_models.create_mlp((28, 28), 10),
      r'\[height, width, channels\] .*, found \[28, 28\]',
    ),
    (
      lambda: keras_models.create_shakespeare_lstm(_DIGITS),
      r'\[characters\] .*, found \[28, 28, 1\]',
    ),
    (lambda: keras_models.create_mlp(_DIGITS, 1), '`num_classes` .* found 1'),
    (
      lambda: keras_models.create_mlp(_DIGITS, 10, seed=-1),
      '`seed`.* found -1',
    ),
  ],
)
def test_wrong_argument_is_refused(build, words):
  with pytest.raises(ValueError, match=words):
    build()
