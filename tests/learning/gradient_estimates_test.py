"""Tests of the measurements of gradients, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.learning import linear_models
from tff_clipping import learning
from tff_clipping.learning import client_batches

_IDS = ['00000', '00001', '00002']
_X = np.array([1.0, -2.0, 0.5])
_Y = np.array([0.0, 1.0, 0.0])
_RATE = 0.05
_STEPS = 3
_BATCH = 2
_SEED = 9
_ROUND = 4


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def estimates(store):
  return _build(store)


def _build(store, **kwargs):
  settings = dict(
    local_steps=_STEPS,
    batch_size=_BATCH,
    client_learning_rate=_RATE,
    client_store=store,
    seed=_SEED,
  )
  return learning.build_gradient_estimates(
    linear_models.model_fn, **{**settings, **kwargs}
  )


def _mean_gradient(x):
  return np.mean(
    [linear_models.gradient(x, rows) for rows in linear_models.PARTITION],
    axis=0,
  )


def _expected_row(client):
  """The definitions of the docstring, in float64."""
  rows = linear_models.PARTITION[client]
  gradient = linear_models.gradient
  indices = client_batches.batch_indices(
    tf.constant(len(rows)),
    _STEPS,
    _BATCH,
    client_batches.client_seed(
      _SEED, tf.constant(_ROUND), tf.constant(_IDS[client])
    ),
  ).numpy()
  x, norms, variances, ratios = _X, [], [], []
  for batch in indices:
    drawn = gradient(x, rows[batch])
    norms.append(np.linalg.norm(drawn))
    variances.append(np.sum((drawn - gradient(x, rows)) ** 2))
    stepped = x - _RATE * drawn
    change = gradient(stepped, rows) - gradient(x, rows)
    ratios.append(np.linalg.norm(change) / np.linalg.norm(stepped - x))
    x = stepped
  far = gradient(_X, rows) - gradient(_Y, rows)
  return dict(
    loss=linear_models.loss(_X, rows),
    largest_gradient_norm=max(norms),
    local_variance=np.mean(variances),
    global_deviation=np.linalg.norm(gradient(_X, rows) - _mean_gradient(_X)),
    local_smoothness=max(ratios),
    global_smoothness=np.linalg.norm(far) / np.linalg.norm(_X - _Y),
  )


@pytest.mark.slow
def test_the_mean_gradient_weights_clients_equally(estimates):
  found = estimates.mean_gradient(linear_models.weights(_X), _IDS)
  np.testing.assert_allclose(
    np.ravel(found[0]), _mean_gradient(_X), rtol=1e-5, atol=1e-6
  )


def test_measurements_are_their_definitions(estimates):
  x, y = linear_models.weights(_X), linear_models.weights(_Y)
  mean = estimates.mean_gradient(x, _IDS)
  found = estimates.measure(x, y, mean, _ROUND, _IDS)
  for client in range(len(_IDS)):
    for name, value in _expected_row(client).items():
      # The ratio divides differences of float32 gradients.
      assert found[name][client] == pytest.approx(value, rel=1e-3, abs=1e-6), (
        name
      )


def test_smoothness_is_a_lower_estimate(estimates):
  x, y = linear_models.weights(_X), linear_models.weights(_Y)
  mean = estimates.mean_gradient(x, _IDS)
  found = estimates.measure(x, y, mean, _ROUND, _IDS)
  features = linear_models.examples()['x'].astype(float)
  for client, rows in enumerate(linear_models.PARTITION):
    hessian = 2 * features[rows].T @ features[rows] / len(rows)
    largest = np.linalg.eigvalsh(hessian)[-1]
    for name in ('local_smoothness', 'global_smoothness'):
      assert found[name][client] <= largest * 1.001


def test_one_model_twice_says_nothing_of_smoothness(estimates):
  x = linear_models.weights(_X)
  mean = estimates.mean_gradient(x, _IDS)
  found = estimates.measure(x, x, mean, _ROUND, _IDS)
  np.testing.assert_array_equal(found['global_smoothness'], np.zeros(3))


def test_bad_arguments_raise(store):
  with pytest.raises(ValueError, match='`local_steps` must be at least 1'):
    _build(store, local_steps=0)
