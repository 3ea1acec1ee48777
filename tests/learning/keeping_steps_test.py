"""Tests of local steps whose clients keep something from round to round."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping import aggregators, learning
from tff_clipping.learning import steps

_WAY = one_client.LOCAL_STEPS * one_client.RATE


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def scaffold(store):
  """SCAFFOLD of all clients, with measurements, compiled once."""
  return _build(
    store,
    steps.Scaffold(1.0),
    model_aggregator=tff.aggregators.UnweightedMeanFactory(),
    measure_updates=True,
  )


def _build(store, step, **settings):
  return learning.build_fed_avg(
    linear_models.model_fn,
    client_store=store,
    **dict(
      local_steps=one_client.LOCAL_STEPS,
      batch_size=one_client.BATCH_SIZE,
      client_learning_rate=one_client.RATE,
      local_step=step,
    )
    | settings,
  )


def _zeros():
  return [np.zeros([3, 1], np.float32)]


def _clients(ids, kept):
  return [
    collections.OrderedDict(client=each, kept=kept.get(each, _zeros()))
    for each in ids
  ]


def _run(process, cohorts):
  """Returns the model after each round, the state and what clients keep."""
  state, kept, models = process.initialize(), {}, []
  for cohort in cohorts:
    output = process.next(state, _clients(cohort, kept))
    state = output.state
    (values,) = output.metrics['client_work']['kept']
    kept.update({each: [v] for each, v in zip(cohort, values, strict=True)})
    models.append(process.get_model_weights(state).trainable[0])
  return models, state, kept


def _absolute_error_model():
  inputs = tf.keras.Input((2,))
  outputs = tf.keras.layers.Dense(2, use_bias=False)(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=_SumOfAbsoluteErrors(),
    input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 2])),
  )


class _SumOfAbsoluteErrors(tf.keras.losses.Loss):
  """Of each example."""

  def call(self, y_true, y_pred):
    return tf.reduce_sum(tf.abs(y_true - y_pred), axis=-1)


@pytest.mark.parametrize(
  ('shared', 'update'),
  [
    (0.0, [[0.05, 0.05], [0.1, 0.1]]),
    (0.1, [[0.04, 0.04], [0.09, 0.09]]),
  ],
)
def test_one_step_of_scaffold_is_that_of_pfl_research(shared, update):
  # Its test_scaffold.py, commit 238775c: one step of 0.1, the two examples and
  # weights there. It has 0.5, 1 and 0.3, 0.8 for the control c_i+: of another
  # sign than the gradient that it stands for, and for c = 0.1 without being it.
  own = [np.zeros([2, 2], np.float32)]
  other = [np.full([2, 2], shared, np.float32)]
  found = one_client.train(
    _absolute_error_model,
    (
      np.array([[1, 0], [0, 2]], np.float32),
      np.array([[4, 6], [8, 12]], np.float32),
    ),
    [np.array([[2.0, 4.0], [3.0, 5.0]])],
    steps.Scaffold(0.02),
    local_steps=1,
    batch_size=2,
    rate=0.1,
    kept=steps.Kept(own, other),
  )
  np.testing.assert_allclose(found[0], update, rtol=1e-5)
  # Algebra: with one step, c_i+ is the gradient whatever c and c_i were.
  (control,) = steps.Scaffold(0.02).keep(
    found, found, steps.Kept(own, other), way=0.1
  )
  np.testing.assert_allclose(control, [[-0.5, -0.5], [-1, -1]], rtol=1e-5)


@pytest.mark.slow
def test_scaffold_without_controls_is_fed_avg_to_the_bit(store):
  ids = list(store.client_ids)
  plain = _build(store, steps.Sgd())
  state = plain.next(plain.initialize(), ids).state
  models, _, _ = _run(_build(store, steps.Scaffold(1.0)), [ids])
  np.testing.assert_array_equal(
    models[0], plain.get_model_weights(state).trainable[0]
  )


@pytest.mark.parametrize('clipping_norm', [math.inf, 0.05])
@pytest.mark.slow
def test_scaffold_follows_its_formulas(store, clipping_norm):
  ids = list(store.client_ids)
  mean = None
  if clipping_norm < math.inf:
    mean = aggregators.clipped_mean_factory(clipping_norm=clipping_norm)
  step = steps.Scaffold(2 / 3, clipping_norm)
  process = _build(
    store, step, batch_size=28, local_steps=3, model_aggregator=mean
  )
  cohorts = [ids[:2], ids[1:], [ids[0], ids[2]], ids[:2]]
  models, state, kept = _run(process, cohorts)
  # In NumPy. A batch of 28 has all examples of 4, 2 or 7 equally often.
  rows = dict(zip(ids, linear_models.PARTITION, strict=True))
  way = 3 * one_client.RATE
  model, shared = np.ones(3), np.zeros(3)
  own = {each: np.zeros(3) for each in ids}
  for cohort in cohorts:
    sent = []
    for each in cohort:
      y = model.copy()
      for _ in range(3):
        gradient = linear_models.gradient(y, rows[each])
        y = y - one_client.RATE * (gradient - own[each] + shared)
      update = y - model
      update *= min(1, clipping_norm / np.linalg.norm(update))
      own[each] = own[each] - shared - update / way
      sent.append(update)
    mean_sent = np.mean(sent, axis=0)
    model = model + mean_sent
    shared = shared / 3 - 2 / 3 * mean_sent / way
  np.testing.assert_allclose(models[-1][:, 0], model, rtol=1e-4, atol=1e-5)
  found = state.client_work.made_of_releases[0][:, 0]
  np.testing.assert_allclose(found, shared, rtol=1e-4, atol=1e-4)
  # What the server shares is the mean of what all clients keep.
  np.testing.assert_allclose(
    found, np.mean([kept[each][0][:, 0] for each in ids], axis=0), atol=1e-5
  )


@pytest.mark.slow
def test_scaffold_of_all_clients_is_vrl_sgd(store):
  # Liang et al., eq. (5): Delta_i+ = Delta_i + (mean(x) - x_i)/(k gamma), and
  # the direction is the gradient less Delta_i.
  ids = list(store.client_ids)
  rows = dict(zip(ids, linear_models.PARTITION, strict=True))
  clients = [ids[0], ids[1]]
  settings = dict(local_steps=3, batch_size=4)
  models, _, _ = _run(
    _build(store, steps.Scaffold(1.0), **settings), [clients] * 5
  )
  x = np.ones(3)
  deltas = np.zeros([2, 3])
  for _ in range(5):
    local = []
    for each, delta in zip(clients, deltas, strict=True):
      y = x.copy()
      for _ in range(3):
        # Batches of 4 are all examples of a client of 4, and twice those of 2.
        y = y - one_client.RATE * (
          linear_models.gradient(y, rows[each]) - delta
        )
      local.append(y)
    x = np.mean(local, axis=0)
    deltas = deltas + (x - np.array(local)) / (3 * one_client.RATE)
  np.testing.assert_allclose(models[-1][:, 0], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('clipping_norm', [math.inf, 0.3])
@pytest.mark.slow
def test_fed_pd_of_all_clients_follows_its_formulas(store, clipping_norm):
  # λ_i+ = λ_i + (x_i - x)/η, and clip(x_i + η λ_i+ - x, c) is sent.
  ids, penalty = list(store.client_ids)[:2], 0.2
  models, kept = _run_all_clients(
    store, ids, steps.FedPD(penalty, clipping_norm), clipping_norm
  )
  x, duals = np.ones(3), {each: np.zeros(3) for each in ids}
  for _ in range(4):
    sent = []
    for each, rows in zip(ids, linear_models.PARTITION, strict=False):
      y = x.copy()
      for _ in range(3):
        gradient = linear_models.gradient(y, rows)
        y = y - one_client.RATE * (gradient + duals[each] + (y - x) / penalty)
      duals[each] = duals[each] + (y - x) / penalty
      sent.append(_clip(y + penalty * duals[each] - x, clipping_norm))
    x = x + np.mean(sent, axis=0)
  np.testing.assert_allclose(models[-1][:, 0], x, rtol=1e-4, atol=1e-4)
  for each in ids:
    np.testing.assert_allclose(
      kept[each][0][:, 0], duals[each], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize('clipping_norm', [math.inf, 0.3])
@pytest.mark.slow
def test_error_feedback_of_all_clients_follows_its_formulas(
  store, clipping_norm
):
  # v_i+ = v_i + clip(Δ_i - v_i, c), and the model moves by the mean of v_i+.
  ids = list(store.client_ids)[:2]
  models, kept = _run_all_clients(
    store, ids, steps.ErrorFeedback(1.0, clipping_norm), clipping_norm
  )
  x, sent = np.ones(3), {each: np.zeros(3) for each in ids}
  for _ in range(4):
    for each, rows in zip(ids, linear_models.PARTITION, strict=False):
      y = x.copy()
      for _ in range(3):
        y = y - one_client.RATE * linear_models.gradient(y, rows)
      sent[each] = sent[each] + _clip(y - x - sent[each], clipping_norm)
    x = x + np.mean(list(sent.values()), axis=0)
  np.testing.assert_allclose(models[-1][:, 0], x, rtol=1e-4, atol=1e-4)
  for each in ids:
    np.testing.assert_allclose(
      kept[each][0][:, 0], sent[each], rtol=1e-3, atol=1e-3
    )


def _run_all_clients(store, ids, step, clipping_norm):
  """Models and what clients keep, after four rounds of three steps each."""
  mean = None
  if clipping_norm < math.inf:
    mean = aggregators.clipped_mean_factory(clipping_norm=clipping_norm)
  # Batches of 4 are all examples of a client of 4, and twice those of 2.
  process = _build(
    store, step, local_steps=3, batch_size=4, model_aggregator=mean
  )
  models, _, kept = _run(process, [ids] * 4)
  return models, kept


def _clip(vector, clipping_norm):
  return vector * min(1.0, clipping_norm / np.linalg.norm(vector))


@pytest.mark.slow
def test_error_feedback_of_cohorts_follows_its_formulas(store):
  ids = list(store.client_ids)
  process = _build(
    store,
    steps.ErrorFeedback(2 / 3, 0.1),
    batch_size=28,
    local_steps=1,
    model_aggregator=aggregators.clipped_mean_factory(clipping_norm=0.1),
    server_learning_rate=2.0,
  )
  cohorts = [ids[:2], ids[1:], [ids[0], ids[2]], ids[:2]]
  models, state, kept = _run(process, cohorts)
  rows = dict(zip(ids, linear_models.PARTITION, strict=True))
  model = np.ones(3)
  own = {each: np.zeros(3) for each in ids}
  for cohort in cohorts:
    for each in cohort:
      rest = (
        -one_client.RATE * linear_models.gradient(model, rows[each]) - own[each]
      )
      rest *= min(1, 0.1 / np.linalg.norm(rest))
      own[each] = own[each] + rest
    mean = np.mean([own[each] for each in ids], axis=0)
    model = model + 2 * mean
  np.testing.assert_allclose(models[-1][:, 0], model, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
    state.client_work.made_of_releases[0][:, 0], mean, rtol=1e-5, atol=1e-6
  )
  for each in ids:
    np.testing.assert_allclose(
      kept[each][0][:, 0], own[each], rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_measurements_stand_beside_what_is_kept(store, scaffold):
  ids = list(store.client_ids)
  process = scaffold
  work = process.next(process.initialize(), _clients(ids, {})).metrics[
    'client_work'
  ]
  assert work['kept'][0].shape == (3, 3, 1)
  # From controls of zero, c_i+ is minus the update over the way.
  np.testing.assert_allclose(
    work['update_norm'],
    np.linalg.norm(work['kept'][0][:, :, 0], axis=1) * _WAY,
    rtol=1e-5,
  )
  empty = process.next(process.initialize(), []).metrics['client_work']
  assert empty['kept'][0].shape == (0, 3, 1)


def test_an_aggregate_that_is_not_finite_shares_and_moves_nothing(
  store, scaffold
):
  _check_what_is_not_finite(scaffold, list(store.client_ids))


@pytest.mark.slow
def test_nor_does_it_with_error_feedback(store):
  mean = tff.aggregators.UnweightedMeanFactory()
  process = _build(store, steps.ErrorFeedback(1), model_aggregator=mean)
  _check_what_is_not_finite(process, list(store.client_ids))


def _check_what_is_not_finite(process, ids):
  state = process.next(process.initialize(), _clients(ids, {})).state
  before = state.client_work.made_of_releases[0]
  assert before.any()
  # A mean of no clients is 0/0.
  output = process.next(state, [])
  np.testing.assert_array_equal(
    output.state.client_work.made_of_releases[0], before
  )
  assert output.metrics['finalizer']['update_non_finite'] == 1
  np.testing.assert_array_equal(
    *(process.get_model_weights(s).trainable[0] for s in (state, output.state))
  )


@pytest.mark.parametrize(
  ('build', 'error', 'message'),
  [
    (lambda: steps.Scaffold(0.0), ValueError, '`participation` must be pos'),
    (lambda: steps.Scaffold(1.5), ValueError, '`participation` must be at m'),
    (lambda: steps.Scaffold(0.5, 0.0), ValueError, '`clipping_norm` must be'),
    (lambda: steps.ErrorFeedback(0), ValueError, '`participation` must be pos'),
    (
      lambda: steps.ErrorFeedback(1, step=steps.Scaffold(1)),
      ValueError,
      '`step` must keep nothing',
    ),
    (lambda: steps.FedPD(-1.0), ValueError, '`penalty` must be positive'),
    (
      lambda: steps.Momentum(0.5, steps.Scaffold(0.5)),
      ValueError,
      '`step` must keep nothing from round to round here',
    ),
    (
      lambda: steps.Scaffold(0.5, step=steps.FedPD(1.0)),
      ValueError,
      '`step` must keep nothing',
    ),
  ],
)
def test_bad_keeping_steps_are_refused(build, error, message):
  with pytest.raises(error, match=message):
    build()


def test_builders_without_a_place_for_it_refuse_a_keeping_step(store):
  settings = dict(
    local_steps=1,
    batch_size=1,
    client_learning_rate=0.1,
    local_step=steps.Scaffold(1.0),
    client_store=store,
  )
  with pytest.raises(ValueError, match='`local_step` must keep nothing'):
    learning.build_model_clipping_fed_avg(
      linear_models.model_fn, clipping_norm=1.0, **settings
    )
