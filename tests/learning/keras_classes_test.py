"""Tests that building a process leaves Keras models whole."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tff_clipping import learning

_X = np.ones([2, linear_models.DIMENSION], np.float32)
_Y = np.ones([2, 1], np.float32)


class _Subclassed(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self._dense = tf.keras.layers.Dense(1)

  def call(self, inputs):
    return self._dense(inputs)


def _functional():
  inputs = tf.keras.Input((linear_models.DIMENSION,))
  return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))


def _model_fn(keras_model):
  return tff.learning.models.from_keras_model(
    keras_model(),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(
      tf.TensorSpec([None, linear_models.DIMENSION]),
      tf.TensorSpec([None, 1]),
    ),
    metrics=[tf.keras.metrics.MeanAbsoluteError()],
  )


_WORK = linear_models.WORK


def _use(model):
  model(_X)
  model.predict(_X, verbose=0)
  model.evaluate(_X, _Y, verbose=0)
  model.fit(_X, _Y, verbose=0)
  model.set_weights(model.get_weights())


@pytest.mark.slow
@pytest.mark.parametrize(
  ('build', 'keras_model'),
  [
    (
      functools.partial(
        learning.build_model_clipping_fed_avg, clipping_norm=1.0
      ),
      _functional,
    ),
    (learning.build_fed_avg, _Subclassed),
  ],
)
def test_models_made_before_a_process_can_be_used_after_it(build, keras_model):
  def built():
    model = keras_model()
    model.build((None, linear_models.DIMENSION))
    return model

  called, uncalled = built(), built()
  for model in (called, uncalled):
    model.compile(loss='mse', metrics=['mae'])
  _use(called)
  process = build(lambda: _model_fn(built), **_WORK)
  _use(called)
  _use(uncalled)
  data = tf.data.Dataset.from_tensor_slices((_X, _Y))
  state = process.next(process.initialize(), [data]).state
  process.get_model_weights(state).assign_weights_to(called)
  _use(called)


@pytest.mark.slow
def test_a_builder_of_tff_breaks_them_and_one_more_model_repairs_them():
  """What docs/runtime.md says; where it fails, Keras has changed."""
  model = _functional()
  tff.learning.algorithms.build_weighted_fed_avg(
    lambda: _model_fn(_functional), tff.learning.optimizers.build_sgdm(0.1)
  )
  with pytest.raises(ValueError, match='is in an invalid state'):
    model(_X)
  _functional()
  model(_X)


def test_models_are_whole_after_a_builder_that_refuses():
  model = _functional()
  with pytest.raises(ValueError, match='`local_steps` must'):
    learning.build_fed_avg(
      lambda: _model_fn(_functional), **{**_WORK, 'local_steps': 0}
    )
  with pytest.raises(TypeError, match='`model_aggregator` must'):
    learning.build_fed_avg(
      lambda: _model_fn(_functional), model_aggregator='mean', **_WORK
    )
  model(_X)


def test_models_are_whole_after_a_model_was_looked_at():
  model = _functional()
  learning.canary_dataset(lambda: _model_fn(_functional), 1, num_batches=1)
  model(_X)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Of a processor without bfloat16.
    learning.with_compute_dtype(lambda: _model_fn(_functional), 'bfloat16')
  model(_X)
