"""Tests of the estimates of clients' expected updates."""

import numpy as np
import pytest
import tensorflow as tf

from tests.learning import linear_models
from tff_clipping import learning
from tff_clipping.learning import update_estimates


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def estimate(store):
  """A computation of three steps and four repeats, compiled once."""
  return _build(store)


def _build(store, **kwargs):
  settings = dict(
    num_repeats=4,
    local_steps=3,
    batch_size=2,
    client_learning_rate=0.1,
    client_store=store,
    seed=1,
  )
  return learning.build_update_estimates(
    linear_models.model_fn, **{**settings, **kwargs}
  )


@pytest.mark.slow
def test_one_step_has_the_gradient_as_its_expectation(store):
  # One step of two examples: its expectation is eta_l times the full gradient.
  estimate = _build(store, num_repeats=2000, local_steps=1)
  x = np.array([1.0, -2.0, 0.5])
  ids = ['00000', '00001', '00002']
  found = estimate(linear_models.weights(x), 7, ids)['expected_norm']
  expected = [
    0.1 * np.linalg.norm(linear_models.gradient(x, rows))
    for rows in linear_models.PARTITION
  ]
  # The seeds are fixed, so that this cannot flake. A draw is off by about as
  # much as it is long: 2000 of them by 1/45 of that.
  np.testing.assert_allclose(found, expected, rtol=0.05)
  # The second client's two examples are one batch: nothing is drawn.
  assert found[1] == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.slow
def test_without_variance_it_is_the_norm_of_the_update(store):
  settings = dict(local_steps=3, batch_size=2, client_learning_rate=0.1, seed=1)
  process = learning.build_fed_avg(
    linear_models.model_fn,
    client_store=store,
    measure_updates=True,
    **settings,
  )
  state = process.initialize()
  output = process.next(state, ['00001'])
  estimate = _build(store, **settings)
  found = estimate(process.get_model_weights(state), 0, ['00001'])
  np.testing.assert_allclose(
    found['expected_norm'],
    output.metrics['client_work']['update_norm'],
    rtol=1e-5,
  )


def test_two_repeats_by_hand():
  draws = tf.constant([[3.0, 0.0], [1.0, 2.0]])
  found = update_estimates.expected_norm(
    lambda number: [draws[number]], [tf.zeros([2])], 2
  )
  # (||sum||^2 - 9 - 5) / 2 = (20 - 14) / 2, the inner product of the two.
  assert float(found) == pytest.approx(np.sqrt(3.0))


def test_opposite_draws_are_taken_for_an_expectation_of_zero():
  draws = tf.constant([[1.0], [-1.0]])
  found = update_estimates.expected_norm(
    lambda number: [draws[number]], [tf.zeros([1])], 2
  )
  assert float(found) == 0.0


def test_the_square_is_right_on_average():
  # E[D] = (2, 0), of variance 1 a coordinate: ||m||^2 would be 4 + 2/3 on
  # average. The seed is fixed. The mean of 400 squares is off by 0.13.
  rng = np.random.default_rng(0)
  draws = rng.normal(size=(400, 3, 2)) + np.array([2.0, 0.0])

  @tf.function(input_signature=[tf.TensorSpec([3, 2], tf.float64)])
  def estimate(of_client):
    return update_estimates.expected_norm(
      lambda number: [of_client[number]], [tf.zeros([2], tf.float64)], 3
    )

  squares = [float(estimate(tf.constant(d))) ** 2 for d in draws]
  assert np.mean(squares) == pytest.approx(4.0, abs=0.4)


def test_values_are_in_cohort_order_and_repeat(estimate):
  weights = linear_models.weights([1, 1, 1])
  ids = ['00002', '00000', '00001']
  found = estimate(weights, 3, ids)['expected_norm']
  again = estimate(weights, 3, ids)['expected_norm']
  np.testing.assert_array_equal(found, again)
  alone = [estimate(weights, 3, [i])['expected_norm'][0] for i in ids]
  np.testing.assert_array_equal(found, alone)
  assert len(set(map(float, found))) == 3
  other_round = estimate(weights, 4, ids)['expected_norm']
  assert (found != other_round).any()


def test_no_clients_have_no_values(estimate):
  found = estimate(linear_models.weights([1, 1, 1]), 0, [])
  assert found['expected_norm'].shape == (0,)


@pytest.mark.parametrize(
  ('kwargs', 'error', 'message'),
  [
    (dict(num_repeats=1), ValueError, '`num_repeats` must be at least 2'),
    (dict(num_repeats=2.0), TypeError, '`num_repeats` must be an integer'),
    (dict(batch_size=0), ValueError, '`batch_size` must be at least 1'),
    (dict(client_learning_rate=0), ValueError, '`client_learning_rate` must'),
  ],
)
def test_bad_arguments_raise(store, kwargs, error, message):
  with pytest.raises(error, match=message):
    _build(store, **kwargs)
