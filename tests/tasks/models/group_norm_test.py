"""Tests for tasks.models.group_norm."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.models import group_norm

_KERAS = tf.keras.layers.GroupNormalization


def _values_and_gradients(layer, images, weights):
  layer.build(images.shape)
  layer.set_weights(weights)
  with tf.GradientTape() as tape:
    tape.watch(images)
    normalized = layer(images)
    # Another derivative for each value.
    total = tf.reduce_sum(tf.sin(tf.cast(normalized, tf.float64)))
  variables = [images, *layer.trainable_variables]
  return [normalized, *tape.gradient(total, variables)]


def _images_and_weights(shape, mean=0.0):
  rng = np.random.default_rng(0)
  images = tf.constant(rng.normal(mean, 2, shape), tf.float32)
  return images, [rng.normal(size=shape[-1:]).astype('f') for _ in range(2)]


@pytest.mark.parametrize('groups', [1, 2, 6])
@pytest.mark.parametrize('shape', [(4, 7, 5, 6), (1, 1, 1, 12), (3, 2, 8, 18)])
def test_is_kerass_layer_with_its_gradients(shape, groups):
  images, weights = _images_and_weights(shape)
  ours = _values_and_gradients(group_norm.GroupNorm(groups), images, weights)
  keras = _values_and_gradients(_KERAS(groups), images, weights)
  for found, expected in zip(ours, keras, strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_mean_of_many_standard_deviations_costs_few_digits():
  # The square of the mean is 2,500 times the variance.
  images, weights = _images_and_weights((4, 16, 16, 8), mean=100.0)
  ours = _values_and_gradients(group_norm.GroupNorm(2), images, weights)
  exact = _values_and_gradients(
    _KERAS(2, dtype='float64'), tf.cast(images, tf.float64), weights
  )
  np.testing.assert_allclose(ours[0], exact[0], atol=2e-3)


def test_constant_images_are_the_offset():
  images, weights = tf.fill([2, 3, 3, 4], 7.0), [np.ones(4), np.arange(4)]
  normalized, *_ = _values_and_gradients(
    group_norm.GroupNorm(2), images, weights
  )
  expected = np.broadcast_to(np.arange(4), images.shape)
  np.testing.assert_allclose(normalized, expected, atol=1e-4)


def test_bfloat16_images_are_normalized_in_float32():
  images, weights = _images_and_weights((4, 7, 5, 6))
  images = tf.cast(images, tf.bfloat16)
  layer = group_norm.GroupNorm(2, dtype='mixed_bfloat16')
  found = _values_and_gradients(layer, images, weights)
  exact = _values_and_gradients(
    group_norm.GroupNorm(2), tf.cast(images, tf.float32), weights
  )
  assert found[0].dtype == tf.bfloat16
  assert found[2].dtype == tf.float32
  # Rounded once, at the end.
  np.testing.assert_array_equal(found[0], tf.cast(exact[0], tf.bfloat16))


def test_a_graph_takes_any_number_of_images_of_any_size():
  made = group_norm.GroupNorm(2)
  layer = group_norm.GroupNorm.from_config(made.get_config())
  call = tf.function(
    layer, input_signature=[tf.TensorSpec([None, None, None, 4])]
  )
  for shape in ((2, 3, 5, 4), (7, 1, 1, 4), (0, 3, 3, 4)):
    images, _ = _images_and_weights(shape)
    np.testing.assert_allclose(call(images), made(images), atol=1e-6)


@pytest.mark.parametrize(
  ('groups', 'shape', 'words'),
  [
    (4, (1, 2, 2, 6), 'GroupNorm.*channels'),
    (2, (1, 2, 4), 'GroupNorm.*channels'),
    (0, (1, 2, 2, 6), '`groups` .* found 0'),
  ],
)
def test_channels_that_the_groups_do_not_divide_are_refused(
  groups, shape, words
):
  with pytest.raises(ValueError, match=words):
    group_norm.GroupNorm(groups).build(shape)
