"""Tests of clipped sums against gradients of single examples, one by one."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import one_client
from tff_clipping.learning import example_gradients

_M = 5
_NORM = 0.5


def _mlp():
  return tf.keras.Sequential(
    [
      tf.keras.Input((4, 3)),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(6, activation='tanh'),
      tf.keras.layers.Dense(4),
    ]
  )


def _layer_twice():
  inputs = tf.keras.Input((4, 3))
  flat = tf.keras.layers.Flatten()(inputs)
  layer = tf.keras.layers.Dense(12, activation='tanh')
  return tf.keras.Model(inputs, tf.keras.layers.Dense(4)(layer(layer(flat))))


def _convolution():
  return tf.keras.Sequential(
    [
      tf.keras.Input((4, 3)),
      tf.keras.layers.Conv1D(3, 2, activation='relu'),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(4),
    ]
  )


def _of_each_position():
  return tf.keras.Sequential(
    [
      tf.keras.Input((4, 3)),
      tf.keras.layers.Dense(2, activation='tanh'),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(4),
    ]
  )


class _ToRowsOfItsOwn(tf.keras.layers.Layer):
  """Multiplies its variable with a constant of as many rows as a batch."""

  def build(self, input_shape):
    self.weight = self.add_weight(name='w', shape=[2, 4])

  def call(self, inputs):
    rows = tf.constant(np.sin(np.arange(2.0 * _M)).reshape([_M, 2]), tf.float32)
    return tf.matmul(inputs, tf.matmul(rows, self.weight))


def _constant_rows():
  return tf.keras.Sequential(
    [
      tf.keras.Input((4, 3)),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(_M),
      _ToRowsOfItsOwn(),
    ]
  )


class _OfTheBatch(tf.keras.losses.Loss):
  """A loss of which the term of an example depends on the others."""

  def call(self, y_true, y_pred):
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    return terms * tf.reduce_sum(terms)


def _model_fn(create, loss):
  return lambda: tff.learning.models.from_keras_model(
    create(),
    loss=loss(),
    input_spec=dict(
      x=tf.TensorSpec([None, 4, 3]), y=tf.TensorSpec([None], tf.int32)
    ),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _batch(seed=0, scale=1.0):
  rng = np.random.default_rng(seed)
  return dict(
    x=(scale * rng.normal(size=(_M, 4, 3))).astype(np.float32),
    y=rng.integers(0, 4, _M).astype(np.int32),
  )


def _xent():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class _Sums(NamedTuple):
  """What one graph computes, for all batches of `_M` examples.

  Attributes:
    of_all: Returns the clipped sum of a batch, of the examples that are used.
    alone: Returns the gradient of each example of a batch.
    is_dense: Whether the sum is one of products.
  """

  of_all: Callable
  alone: Callable
  is_dense: bool


@functools.cache
def _sums(create, loss):
  """Returns a graph of gradients that are clipped to `_NORM`."""
  tf.keras.utils.set_random_seed(7)
  slow = []
  of_all = example_gradients._sum_of_gradients
  with tf.Graph().as_default(), pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      example_gradients,
      '_sum_of_gradients',
      lambda *args: slow.append(1) or of_all(*args),
    )
    session = tf.compat.v1.Session()
    model = _model_fn(create, loss)()
    values = {
      n: tf.compat.v1.placeholder(v.dtype, v.shape) for n, v in _batch().items()
    }
    is_used = tf.compat.v1.placeholder(tf.bool, [_M])
    # In a loop, as local training has it.
    _, *total = tf.while_loop(
      lambda i, *_: i < 1,
      lambda i, *_: (
        i + 1,
        *example_gradients.clipped_sum(model, values, is_used, _NORM),
      ),
      (
        0,
        *(tf.zeros(v.shape, tf.float64) for v in model.trainable_variables),
      ),
    )
    with tf.GradientTape() as tape:
      one = {n: v[:1] for n, v in values.items()}
      found = model.forward_pass(one, training=True).loss
    gradient = tape.gradient(found, model.trainable_variables)
    one_client.initialize(session, model)

  def fed(batch):
    return {values[n]: v for n, v in batch.items()}

  def alone(batch):
    # Each is the first of its batch once.
    turned = [
      {n: np.roll(v, -place, axis=0) for n, v in batch.items()}
      for place in range(_M)
    ]
    return [session.run(gradient, fed(each)) for each in turned]

  return _Sums(
    lambda batch, used: session.run(total, {**fed(batch), is_used: used}),
    alone,
    not slow,
  )


def _norm(tensors):
  return np.sqrt(sum(np.sum(np.square(t, dtype=np.float64)) for t in tensors))


@pytest.mark.parametrize(
  ('create', 'loss', 'is_dense'),
  [
    (_mlp, _xent, True),
    pytest.param(_mlp, _OfTheBatch, True, marks=pytest.mark.slow),
    (_layer_twice, _xent, False),
    (_convolution, _xent, False),
    pytest.param(_of_each_position, _xent, False, marks=pytest.mark.slow),
    (_constant_rows, _xent, False),
  ],
)
def test_sum_is_that_of_clipped_gradients_of_single_examples(
  create, loss, is_dense
):
  sums = _sums(create, loss)
  assert sums.is_dense == is_dense
  is_used = [True, True, False, True, True]
  total, alone = sums.of_all(_batch(), is_used), sums.alone(_batch())
  norms = [_norm(gradient) for gradient in alone]
  # Some are clipped.
  assert max(norms) > _NORM
  scales = [
    used * min(1.0, _NORM / norm)
    for used, norm in zip(is_used, norms, strict=True)
  ]
  for place, found in enumerate(total):
    expected = sum(
      scale * gradient[place].astype(np.float64)
      for scale, gradient in zip(scales, alone, strict=True)
    )
    # The gradients are of `float32`, and clipped to 1e-6 less.
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize('create', [_mlp, _convolution])
@pytest.mark.parametrize('scale', [1.0, 1e15, 1e38, np.nan])
def test_one_example_moves_the_sum_by_the_norm_at_most(create, scale):
  batch = _batch()
  batch['x'][2] *= np.float32(scale)
  sums = [
    _sums(create, _xent).of_all(batch, [True, True, used, True, True])
    for used in (False, True)
  ]
  difference = _norm([a - b for a, b in zip(*sums, strict=True)])
  # Rounding of sums of `float64`.
  assert difference <= _NORM * (1 + 1e-12)
  assert np.isfinite(difference)
  if scale == 1.0:
    assert difference == pytest.approx(_NORM, rel=1e-5)
  if np.isnan(scale):
    assert difference == 0.0
