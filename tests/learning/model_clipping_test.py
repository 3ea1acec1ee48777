"""FedAvg with model clipping is its pseudocode; its noise has its record."""

import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs.checks import process_checks, records

_WORK = dict(local_steps=4, batch_size=2, client_learning_rate=0.1)
_SERVER_LEARNING_RATE = 0.7
_CLIPPING_NORM = 0.95
_SEED = 5
_COHORTS = (('00000', '00002'), ('00001', '00000', '00002'), ('00001',))


@pytest.fixture(scope='module')
def process(store):
  """A process without noise, compiled once for all tests."""
  return _build(store, measure_updates=True)


@pytest.fixture(scope='module')
def private(store):
  """One with noise that is not worth mentioning, for two clients a round."""
  return _private(store)


def _build(store, **kwargs):
  settings = dict(
    clipping_norm=_CLIPPING_NORM,
    **_WORK,
    server_learning_rate=_SERVER_LEARNING_RATE,
    client_store=store,
    seed=_SEED,
  )
  return learning.build_model_clipping_fed_avg(
    linear_models.model_fn, **settings | kwargs
  )


def _local_model(x, client_id, t):
  """Returns x_i^{t,Q} as Algorithm 1 makes it, in float64."""
  return x + one_client.descend(
    one_client.sgd,
    start=x,
    rows=linear_models.PARTITION[int(client_id)],
    **_WORK,
    seed=one_client.client_seed(_SEED, t, client_id),
  )


def _pseudocode(cohorts):
  """x^{t+1} = x^t + eta_g (mean of clip(x_i^{t,Q}, c) - x^t), in NumPy."""
  x = np.ones(linear_models.DIMENSION)
  models, norms, updates = [x], [], []
  for t, cohort in enumerate(cohorts):
    local_models = [_local_model(x, client_id, t) for client_id in cohort]
    norms.append([np.linalg.norm(model) for model in local_models])
    updates.append([np.linalg.norm(model - x) for model in local_models])
    clipped = [
      model * min(1, _CLIPPING_NORM / norm)
      for model, norm in zip(local_models, norms[-1], strict=True)
    ]
    x = x + _SERVER_LEARNING_RATE * (np.mean(clipped, axis=0) - x)
    models.append(x)
  return models, norms, updates


@pytest.mark.slow
def test_follows_the_pseudocode(process):
  models, metrics = linear_models.run(process, _COHORTS)
  expected, norms, updates = _pseudocode(_COHORTS)
  np.testing.assert_allclose(models, expected, atol=1e-5)
  for found, of_round, before_clip in zip(metrics, norms, updates, strict=True):
    work = found['client_work']
    np.testing.assert_allclose(work['model_norm'], of_round, rtol=1e-5)
    np.testing.assert_allclose(work['update_norm'], before_clip, rtol=1e-4)
  # Some models are clipped, and others are not.
  norms = np.concatenate(norms)
  assert 0 < np.sum(norms > _CLIPPING_NORM) < len(norms)


def test_an_empty_cohort_changes_nothing(process):
  models, _ = linear_models.run(process, [()])
  np.testing.assert_array_equal(models[0], models[1])


def test_a_model_that_is_not_finite_is_sent_as_zeros(process):
  # Of one of the client's examples the model predicts what is beyond `float32`.
  features = linear_models.examples()['x'][linear_models.PARTITION[1][0]]
  start = 3e38 * np.sign(features)
  assert features @ start.astype(float) > np.finfo(np.float32).max
  state = process.set_model_weights(
    process.initialize(), linear_models.weights(start)
  )
  output = process.next(state, ['00001'])
  (model,) = process.get_model_weights(output.state).trainable
  # x + eta_g (0 - x).
  np.testing.assert_allclose(
    model[:, 0], (1 - _SERVER_LEARNING_RATE) * start, rtol=1e-5
  )
  np.testing.assert_array_equal(output.metrics['client_work']['model_norm'], 0)


def _private(store, noise_multiplier=1e-12):
  """A process with noise on clipped models, by default not worth mentioning."""
  return _build(
    store,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=_CLIPPING_NORM,
      noise_multiplier=noise_multiplier,
      clients_per_round=2,
    ),
  )


def _sum_after(process, cohort, start):
  """Returns the sum of what a cohort sends in a round from a model."""
  state = process.set_model_weights(
    process.initialize(), linear_models.weights(start)
  )
  moved = process.get_model_weights(
    process.next(state, list(cohort)).state
  ).trainable[0]
  mean = start + (moved.ravel() - start) / _SERVER_LEARNING_RATE
  return 2 * mean


@pytest.mark.slow
def test_noise_on_models_changes_nothing_else(private, process):
  cohorts = [('00000', '00002'), ('00001', '00002')]
  expected, _ = linear_models.run(process, cohorts)
  models, _ = linear_models.run(private, cohorts)
  np.testing.assert_allclose(models, expected, atol=1e-6)


@pytest.mark.parametrize(
  'length', [1.0, pytest.param(30.0, marks=pytest.mark.slow)]
)
def test_neighbouring_cohorts_of_models_differ_by_the_norm_at_most(
  private, length
):
  # However long the global model has become by the noise of earlier rounds.
  start = np.full(linear_models.DIMENSION, length / np.sqrt(3), np.float32)
  one, other, alone, nobody = (
    _sum_after(private, cohort, start)
    for cohort in (('00000', '00001'), ('00000', '00002'), ('00000',), ())
  )
  # Models and sums are of `float32`.
  slack = 1e-5 * max(length, 1)
  assert np.linalg.norm(one - other) <= 2 * _CLIPPING_NORM + slack
  for with_one, without in ((one, alone), (other, alone), (alone, nobody)):
    assert np.linalg.norm(with_one - without) <= _CLIPPING_NORM + slack


@pytest.mark.slow
def test_ledgers_take_noise_on_models_with_their_plan(store):
  plan = privacy.PrivacyPlan(
    num_clients=3,
    clients_per_round=2,
    num_rounds=2,
    target_delta=1e-3,
    noise_multiplier=5.0,
    sampling='fixed_size',
  )
  process = _private(store, noise_multiplier=5.0)
  process_checks.check_process(process, plan)
  metrics = process.next(process.initialize(), ['00000', '00001']).metrics
  record = records.check_mechanism(metrics, plan)
  assert record.clipping_norm == _CLIPPING_NORM
  more = dataclasses.replace(plan, noise_multiplier=5.1)
  with pytest.raises(ValueError, match="must have the plan's `noise_multipl"):
    records.check_mechanism(metrics, more)


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    ('clipping_norm', float('nan'), '`clipping_norm` must be positive and'),
    ('clipping_norm', 1e-20, '`clipping_norm` must be from 1e-12 .*1e-20'),
    ('clipping_norm', True, '`clipping_norm` must be a number, found True'),
    ('model_aggregator', 0.4, '`model_aggregator` must be'),
    # Weighted.
    ('model_aggregator', tff.aggregators.MeanFactory(), '`model_aggregator` m'),
  ],
)
def test_bad_arguments_raise(store, name, value, message):
  with pytest.raises((TypeError, ValueError), match=message):
    _build(store, **{name: value})
