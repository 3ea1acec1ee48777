"""Tests of each local step against its formula, and in the processes."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping import learning
from tff_clipping.learning import client_batches, steps


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


def _check(step, direction, **settings):
  found = one_client.train_linear(step, runs=3, **settings)
  np.testing.assert_allclose(
    found, one_client.descend(direction), rtol=1e-4, atol=1e-5
  )


def test_sgd_goes_along_the_gradient():
  _check(steps.Sgd(), lambda x, rows, _: linear_models.gradient(x, rows))


def test_momentum_adds_up_what_was_before():
  velocity = np.zeros(3)

  def direction(x, rows, _):
    nonlocal velocity
    velocity = 0.8 * velocity + linear_models.gradient(x, rows)
    return velocity

  _check(steps.Momentum(0.8), direction)


@pytest.mark.slow
def test_momentum_of_zero_has_the_bits_of_sgd():
  np.testing.assert_array_equal(
    one_client.train_linear(steps.Momentum(0.0)),
    one_client.train_linear(steps.Sgd()),
  )


def test_proximal_pulls_towards_the_global_model():
  _check(
    steps.Proximal(2.0),
    lambda x, rows, _: (
      linear_models.gradient(x, rows) + 2.0 * (x - one_client.START)
    ),
  )


def test_sharpness_aware_takes_the_gradient_uphill():
  def direction(x, rows, _):
    gradient = linear_models.gradient(x, rows)
    uphill = x + 0.4 * gradient / np.linalg.norm(gradient)
    return linear_models.gradient(uphill, rows)

  _check(steps.SharpnessAware(0.4), direction)


def test_sharpness_aware_stays_where_the_gradient_is_zero():
  # A loss of zero everywhere: 0/0 must not be seen.
  def model_fn():
    inputs = tf.keras.Input((3,))
    return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs)),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])),
    )

  update = one_client.train(
    model_fn,
    (np.ones([2, 3], np.float32), np.full([2, 1], 3.0, np.float32)),
    [np.ones([3, 1]), np.zeros([1])],
    steps.SharpnessAware(0.1),
  )
  assert not update[0].any()
  assert not update[1].any()


@pytest.mark.parametrize(
  'round_num', [pytest.param(0, marks=pytest.mark.slow), 3]
)
def test_scheduled_multiplies_by_a_factor_of_step_and_round(round_num):
  step = steps.Scheduled(
    lambda q, t: tf.where(q < 2, 1.0, 0.25) / (1.0 + tf.cast(t, tf.float32))
  )
  _check(
    step,
    lambda x, rows, q: (
      linear_models.gradient(x, rows)
      * (1.0 if q < 2 else 0.25)
      / (1 + round_num)
    ),
    round_num=round_num,
  )


def test_steps_are_put_together():
  velocity = np.zeros(3)

  def direction(x, rows, q):
    nonlocal velocity
    gradient = linear_models.gradient(x, rows)
    uphill = x + 0.3 * gradient / np.linalg.norm(gradient)
    pulled = linear_models.gradient(uphill, rows) + 0.5 * (x - one_client.START)
    velocity = 0.6 * velocity + pulled / (1 + q)
    return velocity

  _check(_ALL, direction)


@functools.cache
def _fed_avg(store, step, **settings):
  return learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=one_client.LOCAL_STEPS,
    batch_size=one_client.BATCH_SIZE,
    client_learning_rate=one_client.RATE,
    local_step=step,
    client_store=store,
    **settings,
  )


@pytest.mark.slow
def test_a_round_knows_its_number_and_begins_its_memory_anew(store):
  # From the second round on the rate is zero, and no velocity goes on.
  process = _fed_avg(store, _ALL, seed=4)
  models = []
  state = process.initialize()
  for _ in range(3):
    models.append(process.get_model_weights(state).trainable[0])
    state = process.next(state, list(store.client_ids)).state
  assert np.linalg.norm(models[1] - models[0]) > 0.01
  np.testing.assert_array_equal(models[2], models[1])


@pytest.mark.slow
def test_each_builder_takes_a_step(store):
  still = steps.Scheduled(lambda q, t: 0.0)
  settings = dict(
    local_steps=2,
    batch_size=2,
    client_learning_rate=0.1,
    local_step=still,
    client_store=store,
  )
  ids = list(store.client_ids)
  for process in (
    learning.build_fed_avg(
      linear_models.model_fn, measure_updates=True, **settings
    ),
    learning.build_model_clipping_fed_avg(
      linear_models.model_fn,
      clipping_norm=100.0,
      measure_updates=True,
      **settings,
    ),
  ):
    metrics = process.next(process.initialize(), ids).metrics
    assert not metrics['client_work']['update_norm'].any()


# The rate is zero from the second round on.
_ALL = steps.Momentum(
  0.6,
  steps.Scheduled(
    lambda q, t: tf.cast(t < 1, tf.float32) / tf.cast(1 + q, tf.float32),
    steps.Proximal(0.5, steps.SharpnessAware(0.3)),
  ),
)


@pytest.mark.parametrize(
  'step',
  [
    *(
      pytest.param(step, marks=pytest.mark.slow)
      for step in (
        steps.Sgd(),
        steps.Momentum(),
        steps.Proximal(0.1),
        steps.SharpnessAware(0.3),
      )
    ),
    _ALL,
  ],
)
def test_a_round_has_the_steps_of_its_clients(store, step):
  # The runtime optimizes graphs: what is read and written keeps its order.
  process = _fed_avg(store, step, seed=4)
  state = process.set_model_weights(
    process.initialize(), linear_models.weights(one_client.START)
  )
  client = store.client_ids[one_client.CLIENT]
  state = process.next(state, [client]).state
  (weights,) = process.get_model_weights(state).trainable
  seed = client_batches.client_seed(4, tf.constant(0), tf.constant(client))
  update = one_client.train_linear(step, seed=tuple(seed.numpy()))
  np.testing.assert_allclose(
    weights[:, 0] - one_client.START, update, rtol=1e-5, atol=1e-5
  )
  assert np.linalg.norm(update) > 0.01


@pytest.mark.parametrize(
  ('build', 'error', 'message'),
  [
    (lambda: steps.Momentum(1.0), ValueError, '`momentum` must be below 1'),
    (lambda: steps.Momentum(-0.1), ValueError, '`momentum` must be'),
    (lambda: steps.Momentum('high'), TypeError, '`momentum` must be'),
    (lambda: steps.Proximal(0.0), ValueError, '`mu` must be positive'),
    (lambda: steps.SharpnessAware(-1), ValueError, '`rho` must be positive'),
    (lambda: steps.SharpnessAware(None), TypeError, '`rho` must be'),
    (lambda: steps.Proximal(0.1, 5), TypeError, '`step` must be a .*found 5'),
    (
      lambda: steps.Momentum(0.5, steps.Sgd),
      TypeError,
      '`step` must be a `tff_clipping.learning.steps.LocalStep`',
    ),
    (lambda: steps.Scheduled(0.5), TypeError, '`factor` must be a function'),
    (
      lambda: steps.Scheduled(lambda q, t: [1.0, 2.0]),
      ValueError,
      r'`factor` must return a real scalar, found float32\(2,\)',
    ),
    (
      lambda: steps.Scheduled(lambda q, t: tf.less(q, 2)),
      ValueError,
      '`factor` must return a real scalar, found bool',
    ),
  ],
)
def test_bad_steps_are_refused(build, error, message):
  with pytest.raises(error, match=message):
    build()


def test_what_is_no_step_is_refused(store):
  with pytest.raises(TypeError, match='`local_step` must be a `tff_clipping'):
    _fed_avg(store, tf.keras.optimizers.SGD(0.1))
