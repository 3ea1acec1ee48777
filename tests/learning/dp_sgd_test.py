"""DP-SGD is DP-FedAvg of clients with one example each that take one step."""

import numpy as np
import pytest

from tests.learning import linear_models
from tff_clipping import aggregators, learning
from tff_clipping.programs.clients import client_store

_NUM_EXAMPLES = 13
_CLIENT_LEARNING_RATE = 0.25
_SERVER_LEARNING_RATE = 2.0
_CLIPPING_NORM = 0.2
_LOT = 4
_LOTS = ((0, 3, 7, 11), (1,), (2, 3, 4, 5, 12), ())


def _dp_sgd(lots, clip, lot_size, learning_rate):
  """Abadi et al. 2016, Algorithm 1, without noise."""
  w = np.ones(linear_models.DIMENSION)
  models = [w]
  for lot in lots:
    total = np.zeros_like(w)
    for example in lot:
      gradient = linear_models.gradient(w, np.array([example]))
      total += gradient / max(1, np.linalg.norm(gradient) / clip)
    w = w - learning_rate * total / lot_size
    models.append(w)
  return np.array(models)


@pytest.mark.slow
def test_is_dp_sgd_where_each_client_has_one_example_and_takes_one_step(
  tmp_path,
):
  store = client_store.write_client_store(
    tmp_path,
    'examples',
    linear_models.examples(),
    [np.array([i]) for i in range(_NUM_EXAMPLES)],
  )
  process = learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=1,
    batch_size=1,
    client_learning_rate=_CLIENT_LEARNING_RATE,
    server_learning_rate=_SERVER_LEARNING_RATE,
    client_store=store,
    # Without noise worth mentioning.
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=_CLIPPING_NORM,
      noise_multiplier=1e-12,
      clients_per_round=_LOT,
    ),
  )
  state = process.initialize()
  models = [process.get_model_weights(state).trainable[0].ravel()]
  for lot in _LOTS:
    state = process.next(state, [store.client_ids[i] for i in lot]).state
    models.append(process.get_model_weights(state).trainable[0].ravel())
  expected = _dp_sgd(
    _LOTS,
    clip=_CLIPPING_NORM / _CLIENT_LEARNING_RATE,
    lot_size=_LOT,
    learning_rate=_SERVER_LEARNING_RATE * _CLIENT_LEARNING_RATE,
  )
  np.testing.assert_allclose(models, expected, atol=1e-6)
  # Some gradients were clipped, and some were not.
  norms = [
    np.linalg.norm(linear_models.gradient(expected[0], np.array([i])))
    for i in range(_NUM_EXAMPLES)
  ]
  assert min(norms) < _CLIPPING_NORM / _CLIENT_LEARNING_RATE < max(norms)


def test_is_not_dp_sgd_where_a_client_has_two_examples():
  # For Q = 1, difference clipping clips the mean gradient of a client's batch,
  # and DP-SGD the gradient of each example.
  w = np.ones(linear_models.DIMENSION)
  gradients = [linear_models.gradient(w, np.array([i])) for i in (0, 1)]
  clip = min(map(np.linalg.norm, gradients)) / 2

  def cut(g):
    return g / max(1, np.linalg.norm(g) / clip)

  of_mean = cut(np.mean(gradients, axis=0))
  mean_of = np.mean([cut(g) for g in gradients], axis=0)
  assert np.linalg.norm(of_mean - mean_of) > 0.1 * clip
  assert of_mean != pytest.approx(mean_of)
