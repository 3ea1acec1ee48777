"""Local steps in bfloat16 have weights and updates in float32."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.learning import linear_models
from tff_clipping import aggregators, learning
from tff_clipping.learning import compute_dtype
from tff_clipping.learning.local_work import LocalWork


def _dense(units, seed, **settings):
  return tf.keras.layers.Dense(
    units,
    kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
    **settings,
  )


def _model_of(build_layers):
  return linear_models.layers_fn(
    build_layers, num_features=6, is_classifier=True
  )


_model_fn = _model_of(lambda: [_dense(8, 1, activation='relu'), _dense(3, 2)])
_head_in_float32 = _model_of(
  lambda: [_dense(8, 1, activation='relu'), _dense(3, 2, dtype='float32')]
)


def _data(seed):
  rng = np.random.default_rng(seed)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(
      x=rng.normal(size=(9, 6)).astype(np.float32),
      y=rng.integers(0, 3, 9).astype(np.int32),
    )
  )


def _train(model_fn, model_aggregator=None, *, num_rounds=2, num_clients=3):
  """Returns how far rounds of one local step move the model."""
  process = learning.build_fed_avg(
    model_fn,
    local_steps=1,
    batch_size=5,
    client_learning_rate=0.3,
    model_aggregator=model_aggregator,
  )
  start = state = process.initialize()
  for _ in range(num_rounds):
    cohort = [_data(seed) for seed in range(num_clients)]
    state = process.next(state, cohort).state
  after, before = (
    process.get_model_weights(each).trainable for each in (state, start)
  )
  return [a - b for a, b in zip(after, before, strict=True)]


def _vector(leaves):
  return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.mark.slow
def test_a_step_is_near_that_in_float32_and_not_the_same():
  one_step = dict(num_rounds=1, num_clients=1)
  plain = _train(_head_in_float32, **one_step)
  in_bfloat16 = learning.with_compute_dtype(_head_in_float32, 'bfloat16')
  found = _train(in_bfloat16, **one_step)
  assert all(leaf.dtype == np.float32 for leaf in found)
  difference = _vector(found) - _vector(plain)
  # A rounding is at most 2^-9 of a number, and there is one of the input, of
  # both kernels, of the hidden layer and of its gradient: 5, so less than 2^-6.
  relative = np.linalg.norm(difference) / np.linalg.norm(_vector(plain))
  assert 0 < relative < 2**-6


def test_float32_is_the_model_itself():
  assert learning.with_compute_dtype(_model_fn, 'float32') is _model_fn


@pytest.mark.slow
def test_weights_and_updates_are_float32_and_the_clip_holds():
  model_fn = learning.with_compute_dtype(_head_in_float32, 'bfloat16')
  work = LocalWork(
    model_fn=model_fn, local_steps=1, batch_size=1, client_learning_rate=0.1
  )
  with tf.Graph().as_default():
    variables = work.create_model().trainable_variables
    assert {v.dtype for v in variables} == {tf.float32}
  aggregator = aggregators.clipped_mean_factory(clipping_norm=0.125)
  moved = _train(model_fn, aggregator)
  # Two rounds, each of a mean of clipped updates.
  assert np.linalg.norm(_vector(moved)) <= 2 * 0.125


@pytest.mark.slow
def test_the_policy_is_as_before_also_after_an_error():
  before = tf.keras.mixed_precision.global_policy().name

  def broken():
    raise RuntimeError('none')

  with pytest.raises(RuntimeError, match='none'):
    learning.with_compute_dtype(broken, 'bfloat16')
  assert tf.keras.mixed_precision.global_policy().name == before
  learning.with_compute_dtype(_model_fn, 'bfloat16')
  assert tf.keras.mixed_precision.global_policy().name == before


def test_a_model_that_would_not_follow_is_refused():
  layer = tf.keras.layers.Dense(3)  # Made before, and so in float32.
  with pytest.raises(ValueError, match='nothing is computed in bfloat16'):
    learning.with_compute_dtype(_model_of(lambda: [layer]), 'bfloat16')


def test_other_types_are_refused():
  with pytest.raises(ValueError, match="`compute_dtype` .* found 'float16'"):
    learning.with_compute_dtype(_model_fn, 'float16')


def test_a_processor_without_the_instructions_is_warned_of(monkeypatch):
  monkeypatch.setattr(compute_dtype, 'has_instructions', lambda: False)
  with pytest.warns(compute_dtype.SlowDtypeWarning, match='slower than'):
    learning.with_compute_dtype(_model_fn, 'bfloat16')
