"""FedAvg with model clipping is its pseudocode; its noise has its record."""

import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs.checks import process_checks, records

_LOCAL_STEPS = 4
_BATCH_SIZE = 2
_CLIENT_LEARNING_RATE = 0.1
_SERVER_LEARNING_RATE = 0.7
_SEED = 5
_COHORTS = (('00000', '00002'), ('00001', '00000', '00002'), ('00001',))


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def clipping_all(store):
  """A process that clips every model, compiled once for all tests."""
  return _build(store, clipping_norm=0.4, measure_updates=True)


@pytest.fixture(scope='module')
def private(store):
  """One with noise that is not worth mentioning, for two clients a round."""
  return _private(store, clients_per_round=2)


def _settings(store):
  return dict(
    local_steps=_LOCAL_STEPS,
    batch_size=_BATCH_SIZE,
    client_learning_rate=_CLIENT_LEARNING_RATE,
    server_learning_rate=_SERVER_LEARNING_RATE,
    client_store=store,
    seed=_SEED,
  )


def _build(store, **kwargs):
  return learning.build_model_clipping_fed_avg(
    linear_models.model_fn, **{**_settings(store), **kwargs}
  )


def _local_model(x, client_id, t):
  """Returns x_i^{t,Q} as Algorithm 1 makes it, in float64."""
  return x + one_client.descend(
    one_client.sgd,
    start=x,
    rows=linear_models.PARTITION[int(client_id)],
    local_steps=_LOCAL_STEPS,
    batch_size=_BATCH_SIZE,
    rate=_CLIENT_LEARNING_RATE,
    seed=one_client.client_seed(_SEED, t, client_id),
  )


def _pseudocode(cohorts, clipping_norm):
  """x^{t+1} = x^t + eta_g (mean of clip(x_i^{t,Q}, c) - x^t), in NumPy."""
  x = np.ones(linear_models.DIMENSION)
  models, norms, updates = [x], [], []
  for t, cohort in enumerate(cohorts):
    local_models = [_local_model(x, client_id, t) for client_id in cohort]
    norms.append([np.linalg.norm(model) for model in local_models])
    updates.append([np.linalg.norm(model - x) for model in local_models])
    clipped = [
      model * min(1, clipping_norm / norm)
      for model, norm in zip(local_models, norms[-1], strict=True)
    ]
    x = x + _SERVER_LEARNING_RATE * (np.mean(clipped, axis=0) - x)
    models.append(x)
  return models, norms, updates


@pytest.mark.slow
@pytest.mark.parametrize('clipping_norm', [0.4, 0.95])
def test_follows_the_pseudocode(store, clipping_all, clipping_norm):
  process = clipping_all
  if clipping_norm != 0.4:
    process = _build(store, clipping_norm=clipping_norm, measure_updates=True)
  models, metrics = linear_models.run(process, _COHORTS)
  norms = _assert_follows_the_pseudocode(models, metrics, clipping_norm)
  # All are clipped by the first, and some by the second.
  assert (norms > 0.4).all()
  assert 0 < np.sum(norms > 0.95) < len(norms)


def _assert_follows_the_pseudocode(models, metrics, clipping_norm):
  """Returns the norms of all local models."""
  expected, norms, updates = _pseudocode(_COHORTS, clipping_norm)
  np.testing.assert_allclose(models, expected, atol=1e-5)
  for found, of_round, before_clip in zip(metrics, norms, updates, strict=True):
    work = found['client_work']
    np.testing.assert_allclose(work['model_norm'], of_round, rtol=1e-5)
    np.testing.assert_allclose(work['update_norm'], before_clip, rtol=1e-4)
  return np.concatenate(norms)


@pytest.mark.slow
def test_a_large_threshold_is_fed_avg(store):
  plain = learning.build_fed_avg(linear_models.model_fn, **_settings(store))
  expected, _ = linear_models.run(plain, _COHORTS)
  models, _ = linear_models.run(_build(store, clipping_norm=1e3), _COHORTS)
  np.testing.assert_allclose(models, expected, atol=1e-6)


def test_an_empty_cohort_changes_nothing(clipping_all):
  models, _ = linear_models.run(clipping_all, [()])
  np.testing.assert_array_equal(models[0], models[1])


def test_a_model_that_is_not_finite_is_sent_as_zeros(clipping_all):
  # Of one of the client's examples the model predicts what is beyond `float32`.
  features = linear_models.examples()['x'][linear_models.PARTITION[1][0]]
  start = 3e38 * np.sign(features)
  assert features @ start.astype(float) > np.finfo(np.float32).max
  state = clipping_all.set_model_weights(
    clipping_all.initialize(), linear_models.weights(start)
  )
  output = clipping_all.next(state, ['00001'])
  (model,) = clipping_all.get_model_weights(output.state).trainable
  # x + eta_g (0 - x).
  np.testing.assert_allclose(
    model[:, 0], (1 - _SERVER_LEARNING_RATE) * start, rtol=1e-5
  )
  np.testing.assert_array_equal(output.metrics['client_work']['model_norm'], 0)


@pytest.mark.parametrize(
  ('clipping_norm', 'error', 'message'),
  [
    (float('nan'), ValueError, '`clipping_norm` must be positive and finite'),
    (1e-20, ValueError, '`clipping_norm` must be from 1e-12 .* found 1e-20'),
    (True, TypeError, '`clipping_norm` must be a number, found True'),
  ],
)
def test_bad_thresholds_raise(store, clipping_norm, error, message):
  with pytest.raises(error, match=message):
    _build(store, clipping_norm=clipping_norm)


def _private(store, clients_per_round, noise_multiplier=1e-12, **kwargs):
  """A process with noise on clipped models, by default not worth mentioning."""
  return _build(
    store,
    clipping_norm=0.4,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=0.4,
      noise_multiplier=noise_multiplier,
      clients_per_round=clients_per_round,
    ),
    **kwargs,
  )


def _sum_after(process, cohort, start, clients_per_round):
  """Returns the sum of what a cohort sends in a round from a model."""
  state = process.set_model_weights(
    process.initialize(), linear_models.weights(start)
  )
  moved = process.get_model_weights(
    process.next(state, list(cohort)).state
  ).trainable[0]
  mean = start + (moved.ravel() - start) / _SERVER_LEARNING_RATE
  return clients_per_round * mean


@pytest.mark.slow
def test_noise_on_models_changes_nothing_else(private, clipping_all):
  cohorts = [('00000', '00002'), ('00001', '00002')]
  expected, _ = linear_models.run(clipping_all, cohorts)
  models, _ = linear_models.run(private, cohorts)
  np.testing.assert_allclose(models, expected, atol=1e-6)


@pytest.mark.parametrize(
  'length',
  [1.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.1, 30.0))],
)
def test_neighbouring_cohorts_of_models_are_charged_for(private, length):
  # However long the global model has become by the noise of earlier rounds.
  start = np.full(linear_models.DIMENSION, length / np.sqrt(3), np.float32)
  one, other, alone, nobody = (
    _sum_after(private, cohort, start, 2)
    for cohort in (('00000', '00001'), ('00000', '00002'), ('00000',), ())
  )
  # Models and sums are of `float32`.
  slack = 1e-5 * max(length, 1)
  assert np.linalg.norm(one - other) <= 2 * 0.4 + slack
  for with_one, without in ((one, alone), (other, alone), (alone, nobody)):
    assert np.linalg.norm(with_one - without) <= 0.4 + slack


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
  process = _private(store, 2, noise_multiplier=5.0)
  process_checks.check_process(process, plan)
  metrics = process.next(process.initialize(), ['00000', '00001']).metrics
  assert records.check_mechanism(metrics, plan).clipping_norm == 0.4
  more = dataclasses.replace(plan, noise_multiplier=5.1)
  with pytest.raises(ValueError, match="must have the plan's `noise_multipl"):
    records.check_mechanism(metrics, more)


def test_weighted_aggregators_of_models_are_refused(store):
  for other in (0.4, tff.aggregators.MeanFactory()):
    with pytest.raises(TypeError, match='`model_aggregator` must be'):
      _build(store, clipping_norm=0.4, model_aggregator=other)
