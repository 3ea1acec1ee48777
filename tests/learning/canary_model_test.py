"""Canaries as clients go into their directions; clients train as without."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tff_clipping import aggregators, learning
from tff_clipping.learning import steps
from tff_clipping.privacy.audit import Canaries

pytestmark = pytest.mark.slow

_NUM_FEATURES, _NUM_CLASSES = 32, 4
_CANARIES = Canaries(num_canaries=16, num_parameters=33 * 4, seed=0)


_model_fn = linear_models.layers_fn(
  lambda: [tf.keras.layers.Dense(_NUM_CLASSES)],
  num_features=_NUM_FEATURES,
  is_classifier=True,
)


def _dataset(seed, num_examples=8):
  rng = np.random.default_rng(seed)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(
      x=rng.normal(size=[num_examples, _NUM_FEATURES]).astype(np.float32),
      y=rng.integers(_NUM_CLASSES, size=num_examples).astype(np.int32),
    )
  ).batch(4)


def _canary(mark, num_batches=2):
  return learning.canary_dataset(_model_fn, mark, num_batches=num_batches)


def _build(model_fn, optimizer=None, model_aggregator=None):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn,
    optimizer or tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=model_aggregator,
  )


def _audited(gradient_norm=100.0):
  return learning.add_canaries(
    _model_fn, _CANARIES, gradient_norm=gradient_norm
  )


def _step(process, data):
  """Returns by what a round moves the model, and its metrics."""
  state = process.initialize()
  before = process.get_model_weights(state).trainable
  output = process.next(state, data)
  after = process.get_model_weights(output.state).trainable
  return np.concatenate(
    [np.ravel(b - a) for a, b in zip(before, after, strict=True)]
  ), output.metrics


def test_other_optimizers_go_into_the_direction_too():
  adam = tff.learning.optimizers.build_adam(0.1)
  update, _ = _step(_build(_audited(), adam), [_canary(5)])
  cosine = update @ _CANARIES.direction(5) / np.linalg.norm(update)
  assert cosine == pytest.approx(1, abs=1e-4)


def test_canary_goes_through_the_clip_of_clients():
  update, metrics = _step(
    _build(
      _audited(),
      model_aggregator=aggregators.clipped_mean_factory(clipping_norm=0.5),
    ),
    [_canary(3)],
  )
  np.testing.assert_allclose(update, _CANARIES.direction(3) / 2, atol=1e-5)
  assert metrics['aggregator']['clipped_count'] == 1


def test_metrics_are_of_clients_alone():
  _, metrics = _step(
    _build(_audited()), [learning.mark_dataset(_dataset(0)), _canary(3)]
  )
  assert metrics['client_work']['train']['num_examples'] == 8


@pytest.mark.parametrize(
  ('step', 'length'),
  [
    (steps.Sgd(), 20),
    # 10, and then 10 + 0.9 * 10.
    (steps.Momentum(0.9), 29),
    # 10, and then 10 less 0.1 * 10.
    (steps.Proximal(1.0), 19),
  ],
)
def test_a_canary_takes_the_local_steps_of_our_fed_avg(step, length):
  process = learning.build_fed_avg(
    _audited(), local_step=step, **linear_models.WORK
  )
  update, _ = _step(process, [_canary(-2).unbatch()])
  expected = length * _CANARIES.direction(-2)
  np.testing.assert_allclose(update, expected, atol=1e-4)


def test_clients_of_our_fed_avg_train_as_without_canaries():
  weights, models = None, []
  for model_fn, mark in (
    (_model_fn, lambda dataset: dataset),
    (_audited(), learning.mark_dataset),
  ):
    # All examples in each batch: the order is drawn from the data.
    process = learning.build_fed_avg(
      model_fn, local_steps=3, batch_size=8, client_learning_rate=0.1
    )
    state = process.initialize()
    weights = weights or process.get_model_weights(state)
    state = process.set_model_weights(state, weights)
    state = process.next(state, [mark(_dataset(0)).unbatch()]).state
    models.append(process.get_model_weights(state).trainable)
  for plain, audited in zip(*models, strict=True):
    np.testing.assert_allclose(plain, audited, rtol=1e-5, atol=1e-6)
  assert not np.allclose(models[0][0], weights.trainable[0])


def test_canaries_of_another_model_and_gradients_of_none_raise():
  canaries = Canaries(num_canaries=16, num_parameters=131, seed=0)
  with pytest.raises(ValueError, match='model, which has 132, found 131'):
    learning.add_canaries(_model_fn, canaries, gradient_norm=1.0)()
  with pytest.raises(ValueError, match='`gradient_norm` must be positive'):
    _audited(gradient_norm=0)
