"""Tests of the factories inside TFF's own learning algorithms."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators
from tff_clipping.mechanism import MECHANISM, Mechanism

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)


def _model_fn():
  model = tf.keras.Sequential(
    [tf.keras.layers.Dense(1, kernel_initializer='ones', input_shape=(2,))]
  )
  return tff.learning.models.from_keras_model(
    model, loss=tf.keras.losses.MeanSquaredError(), input_spec=_SPEC
  )


def _sgd(learning_rate=1.0):
  return tff.learning.optimizers.build_sgdm(learning_rate)


def _clients():
  generator = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=generator.normal(size=(4, 2)).astype(np.float32),
        y=generator.normal(size=(4, 1)).astype(np.float32),
      )
    ).batch(2)
    for _ in range(2)
  ]


_NOISE = dict(clipping_norm=0.1, clients_per_round=2)


def _dp_mean():
  return aggregators.dp_mean_factory(**_NOISE, noise_multiplier=1e-3)


def _moved(process):
  """Returns how far a round moves the trainable weights."""
  state = process.initialize()
  before = process.get_model_weights(state).trainable
  after = process.get_model_weights(
    process.next(state, _clients()).state
  ).trainable
  return np.sqrt(
    sum(np.sum(np.square(a - b)) for a, b in zip(after, before, strict=True))
  )


def _fed_avg(model_aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn, _sgd(), model_aggregator=model_aggregator
  )


_ALGORITHMS = {
  'dp_mean': lambda: _fed_avg(_dp_mean()),
  'local_noise': lambda: _fed_avg(
    aggregators.local_gaussian_mean_factory(
      **_NOISE,
      noise_multiplier=1e-4,
      sum_factory=aggregators.secure_sum_factory(0.1, local_noise_stddev=1e-5),
    )
  ),
  'distributed': lambda: _fed_avg(
    aggregators.distributed_gaussian_mean_factory(
      **_NOISE, noise_multiplier=1e-3
    )
  ),
  'per_layer': lambda: _fed_avg(
    aggregators.per_layer_clipping_factory(
      [0.08, 0.06], tff.aggregators.UnweightedMeanFactory()
    )
  ),
  'fed_prox': lambda: tff.learning.algorithms.build_unweighted_fed_prox(
    _model_fn, 0.1, _sgd(), model_aggregator=_dp_mean()
  ),
  'fed_sgd': lambda: tff.learning.algorithms.build_fed_sgd(
    _model_fn,
    _sgd(),
    model_aggregator=tff.aggregators.as_weighted_aggregator(_dp_mean()),
  ),
  'weighted': lambda: tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn,
    _sgd(),
    model_aggregator=aggregators.difference_clipping_factory(
      0.1, tff.aggregators.MeanFactory()
    ),
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', _ALGORITHMS)
def test_a_round_moves_the_model_by_at_most_the_norm(name):
  # The noise, which all but one have, is below 1e-3 of the norm.
  most = 0.1 * (1.001 if name == 'weighted' else 1.02)
  assert 0.0 < _moved(_ALGORITHMS[name]()) <= most


@pytest.mark.parametrize(
  'factory',
  [
    _dp_mean(),
    aggregators.difference_clipping_factory(
      1.0, aggregators.gaussian_noise_factory(1.0)
    ),
    aggregators.add_update_norm_measurements(_dp_mean()),
  ],
)
def test_weighted_algorithms_refuse_private_factories(factory):
  message = f'WeightedAggregationFactory, found .*{type(factory).__name__}'
  with pytest.raises(TypeError, match=message):
    tff.learning.algorithms.build_weighted_fed_avg(
      _model_fn, _sgd(), model_aggregator=factory
    )


def test_a_record_survives_an_algorithm_of_tff():
  process = _fed_avg(_dp_mean())
  output = process.next(process.initialize(), _clients())
  record = Mechanism.from_json(output.metrics['aggregator'][MECHANISM])
  assert (record.kind, record.clipping_norm) == ('gaussian', 0.1)
