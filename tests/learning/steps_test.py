"""Local steps follow their formulas: alone, put together, and in rounds."""

import collections
import dataclasses
import functools
import math
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from examples import fed_pd
from tests.learning import linear_models, one_client
from tff_clipping import aggregators, learning
from tff_clipping.learning import steps

_START = one_client.START


@dataclasses.dataclass(frozen=True)
class _Uphill(steps.LocalStep):
  """A step of one's own: the gradient a way uphill, as DP-FedSAM takes it."""

  rho: float

  def direction(self, context, memory):
    gradient = context.gradient()
    scale = self.rho / tf.linalg.global_norm(gradient)
    uphill = [
      x + scale * g for x, g in zip(context.model, gradient, strict=True)
    ]
    return context.gradient(uphill), memory


@dataclasses.dataclass(frozen=True)
class _FirstRound(steps.LocalStep):
  """A step of one's own: a rate that falls, and is zero after round 0."""

  step: steps.LocalStep

  def direction(self, context, memory):
    found, memory = self.step.direction(context, memory)
    is_first = tf.cast(context.round_num < 1, tf.float32)
    factor = is_first / tf.cast(1 + context.step, tf.float32)
    return [factor * d for d in found], memory


_ALL = steps.Momentum(0.6, _FirstRound(steps.Proximal(0.5, _Uphill(0.3))))


def _momentum(beta, inner):
  velocity = np.zeros(3)

  def direction(x, rows, q):
    nonlocal velocity
    velocity = beta * velocity + inner(x, rows, q)
    return velocity

  return direction


def _proximal(mu, inner):
  return lambda x, rows, q: inner(x, rows, q) + mu * (x - _START)


def _uphill(rho):
  def direction(x, rows, q):
    gradient = linear_models.gradient(x, rows)
    uphill = x + rho * gradient / np.linalg.norm(gradient)
    return linear_models.gradient(uphill, rows)

  return direction


@pytest.mark.parametrize(
  ('step', 'direction'),
  [
    (steps.Sgd(), one_client.sgd),
    (steps.Momentum(0.8), _momentum(0.8, one_client.sgd)),
    (steps.Momentum(0.0), one_client.sgd),
    (steps.Proximal(2.0), _proximal(2.0, one_client.sgd)),
    (_Uphill(0.4), _uphill(0.4)),
    (
      _ALL,
      _momentum(
        0.6,
        lambda x, rows, q: _proximal(0.5, _uphill(0.3))(x, rows, q) / (1 + q),
      ),
    ),
  ],
)
def test_a_step_follows_its_formula(step, direction):
  found = one_client.train_linear(step, runs=3)
  np.testing.assert_allclose(
    found, one_client.descend(direction), rtol=1e-4, atol=1e-5
  )


@functools.cache
def _build(store, step, **settings):
  return learning.build_fed_avg(
    linear_models.model_fn,
    client_store=store,
    local_step=step,
    **one_client.WORK | settings,
  )


def test_a_round_has_the_steps_of_its_clients(store):
  # The runtime optimizes graphs: what is read and written keeps its order.
  process = _build(store, _ALL, seed=4)
  state = process.set_model_weights(
    process.initialize(), linear_models.weights(_START)
  )
  client = store.client_ids[one_client.CLIENT]
  state = process.next(state, [client]).state
  (weights,) = process.get_model_weights(state).trainable
  seed = one_client.client_seed(4, 0, client)
  update = one_client.train_linear(_ALL, seed=seed)
  np.testing.assert_allclose(
    weights[:, 0] - _START, update, rtol=1e-5, atol=1e-5
  )
  assert np.linalg.norm(update) > 0.01
  # A step has the number of its round, and no velocity goes on: see _ALL.
  state = process.next(state, [client]).state
  np.testing.assert_array_equal(
    process.get_model_weights(state).trainable[0], weights
  )


def _model_in_float64():
  dense = functools.partial(tf.keras.layers.Dense, dtype='float64')
  return linear_models.layers_fn(
    lambda: [dense(1, use_bias=False, kernel_initializer='ones')]
  )()


def test_numbers_of_a_step_have_the_precision_of_the_model(store):
  # The rate, the momentum and mu, none of which is a number of `float32`.
  client = store.client_ids[one_client.CLIENT]
  work = dict(
    model_fn=_model_in_float64,
    client_store=store,
    **one_client.WORK,
  )
  start = np.ones(3)
  update = one_client.descend(
    _momentum(
      0.6,
      lambda x, rows, q: one_client.sgd(x, rows, q) + 0.3 * (x - start),
    ),
    start=start,
    seed=one_client.client_seed(0, 0, client),
  )
  process = learning.build_fed_avg(
    local_step=steps.Momentum(0.6, steps.Proximal(0.3)), **work
  )
  models, _ = linear_models.run(process, [[client]])
  # Rounding in `float64`; numbers of `float32` would be off by 1e-8.
  np.testing.assert_allclose(models[1] - models[0], update, rtol=1e-12)
  process = learning.build_fed_avg(local_step=steps.Scaffold(0.3), **work)
  given = dict(client=client, kept=[np.zeros([3, 1])])
  models, (metrics,) = linear_models.run(process, [[given]])
  way = one_client.LOCAL_STEPS * one_client.RATE
  (kept,) = metrics['client_work']['kept']
  np.testing.assert_allclose(
    kept[0, :, 0] * way, models[0] - models[1], rtol=1e-12
  )


def _clip_models(step, **settings):
  return learning.build_model_clipping_fed_avg(
    linear_models.model_fn,
    clipping_norm=100.0,
    local_step=step,
    **linear_models.WORK,
    **settings,
  )


@pytest.mark.slow
def test_model_clipping_takes_a_step(store):
  process = _clip_models(
    _FirstRound(steps.Sgd()), client_store=store, measure_updates=True
  )
  _, metrics = linear_models.run(process, [store.client_ids] * 2)
  norms = [each['client_work']['update_norm'] for each in metrics]
  assert [norm.any() for norm in norms] == [True, False]


@pytest.mark.parametrize(
  ('build', 'arguments', 'message'),
  [
    (steps.Momentum, (1.0,), '`momentum` must be below 1'),
    (steps.Momentum, (-0.1,), '`momentum` must be'),
    (steps.Momentum, ('high',), '`momentum` must be'),
    (steps.Momentum, (0.5, steps.Sgd), '`step` must be a `tff_clipping'),
    (steps.Momentum, (0.5, steps.Scaffold(0.5)), '`step` must keep nothing'),
    (steps.Proximal, (0.0,), '`mu` must be positive'),
    (steps.Proximal, (0.1, 5), '`step` must be a .*found 5'),
    (steps.Scaffold, (0.0,), '`participation` must be positive'),
    (steps.Scaffold, (1.5,), '`participation` must be at most 1'),
    (steps.Scaffold, (0.5, 0.0), '`clipping_norm` must be'),
    (steps.Scaffold, (0.5, 1.0, fed_pd.FedPD(1.0)), '`step` must keep nothing'),
    (_build, (None, tf.keras.optimizers.SGD), '`local_step` must be a `tff_'),
    (_clip_models, (steps.Scaffold(1.0),), '`local_step` must keep nothing'),
  ],
)
def test_bad_steps_are_refused(build, arguments, message):
  with pytest.raises((TypeError, ValueError), match=message):
    build(*arguments)


# Steps whose clients keep something from round to round.


@pytest.fixture(scope='module')
def scaffold(store):
  """SCAFFOLD of all clients, with measurements, compiled once."""
  return _build(
    store,
    steps.Scaffold(1.0),
    model_aggregator=tff.aggregators.UnweightedMeanFactory(),
    measure_updates=True,
  )


def _clients(ids, kept):
  zeros = [np.zeros([3, 1], np.float32)]
  return [
    collections.OrderedDict(client=each, kept=kept.get(each, zeros))
    for each in ids
  ]


def _run(process, cohorts):
  """Returns the last model, the state and what clients keep."""
  state, kept = process.initialize(), {}
  for cohort in cohorts:
    output = process.next(state, _clients(cohort, kept))
    state = output.state
    (values,) = output.metrics['client_work']['kept']
    kept.update({each: [v] for each, v in zip(cohort, values, strict=True)})
  return (
    process.get_model_weights(state).trainable[0][:, 0],
    state,
    {each: value[:, 0] for each, (value,) in kept.items()},
  )


class _SumOfAbsoluteErrors(tf.keras.losses.Loss):
  def call(self, y_true, y_pred):
    return tf.reduce_sum(tf.abs(y_true - y_pred), axis=-1)


def _absolute_error_model():
  inputs = tf.keras.Input((2,))
  outputs = tf.keras.layers.Dense(2, use_bias=False)(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=_SumOfAbsoluteErrors(),
    input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 2])),
  )


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
  kept = steps.Kept(
    [np.zeros([2, 2], np.float32)], [np.full([2, 2], shared, np.float32)]
  )
  found = one_client.train(
    _absolute_error_model,
    (np.float32([[1, 0], [0, 2]]), np.float32([[4, 6], [8, 12]])),
    [np.array([[2.0, 4.0], [3.0, 5.0]])],
    steps.Scaffold(0.02),
    local_steps=1,
    batch_size=2,
    client_learning_rate=0.1,
    kept=kept,
  )
  np.testing.assert_allclose(found[0], update, rtol=1e-5)
  # Algebra: with one step, c_i+ is the gradient whatever c and c_i were.
  (control,) = steps.Scaffold(0.02).keep(found, found, kept, way=0.1)
  np.testing.assert_allclose(control, [[-0.5, -0.5], [-1, -1]], rtol=1e-5)


@pytest.mark.slow
def test_scaffold_without_controls_is_fed_avg_to_the_bit(store):
  ids = list(store.client_ids)
  plain, _ = linear_models.run(_build(store, steps.Sgd()), [ids])
  model, _, _ = _run(_build(store, steps.Scaffold(1.0)), [ids])
  np.testing.assert_array_equal(model, plain[-1])


def _clip(vector, clipping_norm):
  return vector / max(1.0, np.linalg.norm(vector) / clipping_norm)


def _numpy_scaffold(rows, cohorts, participation, clipping_norm=math.inf):
  """SCAFFOLD of three steps in NumPy, each of which takes all examples.

  Returns the model, what the server shares, what clients keep, and the updates
  of the last round.
  """
  way = 3 * one_client.RATE
  model, shared = np.ones(3), np.zeros(3)
  own = dict.fromkeys(rows, np.zeros(3))
  for cohort in cohorts:
    sent = []
    for each in cohort:
      y = model
      for _ in range(3):
        gradient = linear_models.gradient(y, rows[each])
        y = y - one_client.RATE * (gradient - own[each] + shared)
      update = _clip(y - model, clipping_norm)
      own[each] = own[each] - shared - update / way
      sent.append(update)
    mean_sent = np.mean(sent, axis=0)
    model = model + mean_sent
    shared = (1 - participation) * shared - participation * mean_sent / way
  return model, shared, own, sent


def test_scaffold_follows_its_formulas(store):
  ids = list(store.client_ids)
  clipping_norm = 0.05
  process = _build(
    store,
    steps.Scaffold(2 / 3, clipping_norm),
    batch_size=28,
    local_steps=3,
    model_aggregator=aggregators.clipped_mean_factory(
      clipping_norm=clipping_norm
    ),
  )
  cohorts = [ids[:2], ids[1:], [ids[0], ids[2]], ids[:2]]
  found, state, kept = _run(process, cohorts)
  # A batch of 28 has all examples of 4, 2 or 7 equally often.
  rows = dict(zip(ids, linear_models.PARTITION, strict=True))
  model, shared, _, _ = _numpy_scaffold(rows, cohorts, 2 / 3, clipping_norm)
  np.testing.assert_allclose(found, model, rtol=1e-4, atol=1e-5)
  found_shared = state.client_work.made_of_releases[0][:, 0]
  np.testing.assert_allclose(found_shared, shared, rtol=1e-4, atol=1e-4)
  # What the server shares is the mean of what all clients keep.
  np.testing.assert_allclose(
    found_shared, np.mean([kept[each] for each in ids], axis=0), atol=1e-5
  )


def test_a_client_without_examples_has_the_loss_zero():
  # Without a step its control would move against all other clients, and the
  # rest would depend on where the model began.
  process = _build(
    None, steps.Scaffold(1.0), batch_size=28, local_steps=3, seed=1
  )
  rows = dict(enumerate([*linear_models.PARTITION[:2], np.arange(0)]))
  clients = [
    tf.data.Dataset.from_tensor_slices(linear_models.examples(each))
    for each in rows.values()
  ]
  state, kept = process.initialize(), [np.zeros([3, 1], np.float32)] * 3
  for _ in range(4):
    given = [
      collections.OrderedDict(client=client, kept=[each])
      for client, each in zip(clients, kept, strict=True)
    ]
    output = process.next(state, given)
    state, (kept,) = output.state, output.metrics['client_work']['kept']
  model, _, own, sent = _numpy_scaffold(rows, [rows] * 4, 1.0)
  (found,) = process.get_model_weights(state).trainable
  np.testing.assert_allclose(found[:, 0], model, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    kept[:, :, 0], [*own.values()], rtol=1e-4, atol=1e-4
  )
  assert np.linalg.norm(sent[2]) > 1e-3


# Batches of 4 are all examples of a client of 4, and twice those of 2.
_FULL_BATCHES = dict(local_steps=3, batch_size=4)


@pytest.mark.slow
def test_a_keeping_step_of_ones_own_sends_and_keeps_what_it_says(store):
  # FedPD: λ_i+ = λ_i + (x_i - x)/η, and clip(x_i + η λ_i+ - x, c) is sent.
  clients, penalty, norm = list(store.client_ids)[:2], 0.2, 0.3
  process = _build(
    store,
    fed_pd.FedPD(penalty, norm),
    model_aggregator=aggregators.clipped_mean_factory(clipping_norm=norm),
    **_FULL_BATCHES,
  )
  found, _, kept = _run(process, [clients] * 4)
  x, duals = np.ones(3), {each: np.zeros(3) for each in clients}
  for _ in range(4):
    sent = []
    for each, rows in zip(clients, linear_models.PARTITION, strict=False):
      y = x.copy()
      for _ in range(3):
        gradient = linear_models.gradient(y, rows)
        y = y - one_client.RATE * (gradient + duals[each] + (y - x) / penalty)
      duals[each] = duals[each] + (y - x) / penalty
      sent.append(_clip(y + penalty * duals[each] - x, norm))
    x = x + np.mean(sent, axis=0)
  np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-4)
  for each in clients:
    np.testing.assert_allclose(kept[each], duals[each], rtol=1e-3, atol=1e-3)


def test_a_round_that_diverges_does_not_change_what_a_client_keeps():
  process = _build(
    None,
    fed_pd.FedPD(0.2, 0.3),
    model_aggregator=aggregators.clipped_mean_factory(clipping_norm=0.3),
  )

  def run(state, feature, kept):
    examples = dict(x=tf.fill([1, 3], feature), y=tf.ones([1, 1]))
    data = tf.data.Dataset.from_tensor_slices(examples)
    given = collections.OrderedDict(client=data, kept=kept)
    output = process.next(state, [given])
    (kept,) = output.metrics['client_work']['kept']
    return output.state, [kept[0]]

  state, before = run(process.initialize(), 1.0, [np.zeros([3, 1], np.float32)])
  assert before[0].all()
  state, after = run(state, 1e30, before)
  np.testing.assert_array_equal(after, before)


def test_measurements_stand_beside_what_is_kept(store, scaffold):
  ids = list(store.client_ids)
  state = scaffold.initialize()
  work = scaffold.next(state, _clients(ids, {})).metrics['client_work']
  assert work['kept'][0].shape == (3, 3, 1)
  # From controls of zero, c_i+ is minus the update over Q η_l.
  np.testing.assert_allclose(
    work['update_norm'],
    np.linalg.norm(work['kept'][0][:, :, 0], axis=1)
    * (one_client.LOCAL_STEPS * one_client.RATE),
    rtol=1e-5,
  )


def test_an_aggregate_that_is_not_finite_changes_nothing(store, scaffold):
  ids = list(store.client_ids)
  state = scaffold.next(scaffold.initialize(), _clients(ids, {})).state
  before = state.client_work.made_of_releases[0]
  assert before.any()
  # A mean of no clients is 0/0.
  output = scaffold.next(state, [])
  np.testing.assert_array_equal(
    output.state.client_work.made_of_releases[0], before
  )
  assert output.metrics['finalizer']['update_non_finite'] == 1
  assert output.metrics['client_work']['kept'][0].shape == (0, 3, 1)
  np.testing.assert_array_equal(
    *(scaffold.get_model_weights(s).trainable[0] for s in (state, output.state))
  )


@pytest.mark.slow
def test_fed_pd_rests_at_the_optimum_where_fed_avg_does_not(capsys):
  fed_pd.main()
  # Those of docs/theory.md, "Table 1, extended": Q = 10 and no clip.
  rests = re.findall(r'rests at (.*)', capsys.readouterr().out)
  np.testing.assert_allclose([float(x) for x in rests], [0.366, 0], atol=1e-3)
