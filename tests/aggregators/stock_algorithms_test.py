"""Tests of the factories inside TFF's own learning algorithms."""

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import l2_norm
from tests.learning import linear_models
from tff_clipping import aggregators
from tff_clipping.mechanism import MECHANISM, Mechanism


def _sgd():
  return tff.learning.optimizers.build_sgdm(1.0)


def _clients():
  return [
    tf.data.Dataset.from_tensor_slices(linear_models.examples(rows)).batch(2)
    for rows in linear_models.PARTITION[:2]
  ]


_NOISE = dict(clipping_norm=0.1, clients_per_round=2, noise_multiplier=1e-3)


def _dp_mean():
  return aggregators.dp_mean_factory(**_NOISE)


def _fed_avg(model_aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    linear_models.model_fn, _sgd(), model_aggregator=model_aggregator
  )


_ALGORITHMS = {
  'dp_mean': lambda: _fed_avg(_dp_mean()),
  # Integers, by a secure sum.
  'distributed': lambda: _fed_avg(
    aggregators.distributed_gaussian_mean_factory(**_NOISE)
  ),
  'fed_sgd': lambda: tff.learning.algorithms.build_fed_sgd(
    linear_models.model_fn,
    _sgd(),
    model_aggregator=tff.aggregators.as_weighted_aggregator(_dp_mean()),
  ),
  'weighted': lambda: tff.learning.algorithms.build_weighted_fed_avg(
    linear_models.model_fn,
    _sgd(),
    model_aggregator=aggregators.difference_clipping_factory(
      0.1, tff.aggregators.MeanFactory()
    ),
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', _ALGORITHMS)
def test_a_round_moves_the_model_by_at_most_the_norm(name):
  process = _ALGORITHMS[name]()
  state = process.initialize()
  output = process.next(state, _clients())
  before, after = (
    process.get_model_weights(each).trainable for each in (state, output.state)
  )
  # The noise, which all but one have, is below 1e-3 of the norm.
  most = 0.1 * (1.001 if name == 'weighted' else 1.02)
  moved = l2_norm([a - b for a, b in zip(after, before, strict=True)])
  assert 0.0 < moved <= most
  measured = output.metrics['aggregator']
  assert (MECHANISM in measured) == (name != 'weighted')
  if name != 'weighted':
    assert Mechanism.from_json(measured[MECHANISM]).clipping_norm == 0.1


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
      linear_models.model_fn, _sgd(), model_aggregator=factory
    )
