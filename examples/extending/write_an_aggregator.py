"""An aggregator of one's own: the code of docs/write_an_aggregator.md."""

import collections

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow as tf
import tensorflow_federated as tff


class LargeElementsFactory(tff.aggregators.UnweightedAggregationFactory):
  """Sets the small elements of each update to zero, then aggregates."""

  def __init__(self, smallest, inner):
    self._smallest, self._inner = smallest, inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.tensorflow.computation(value_type)
    def drop_small(update):
      return tf.nest.map_structure(
        lambda x: tf.where(tf.abs(x) < self._smallest, tf.zeros_like(x), x),
        update,
      )

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, updates):
      return inner.next(state, tff.federated_map(drop_small, updates))

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


runtime.set_default_context()
factory = LargeElementsFactory(0.1, tff.aggregators.UnweightedMeanFactory())
process = factory.create(tff.TensorType(np.float32, [3]))
updates = [
  np.array([1.0, 0.05, -2.0], np.float32),
  np.array([0.05, 0.05, 4.0], np.float32),
]
print(process.next(process.initialize(), updates).result)


private_mean = aggregators.difference_clipping_factory(
  0.5,
  LargeElementsFactory(
    0.01,
    aggregators.fixed_denominator_mean_factory(
      20, aggregators.gaussian_noise_factory(1.1 * 0.5)
    ),
  ),
)
process = private_mean.create(tff.TensorType(np.float32, [3]))
output = process.next(process.initialize(), updates)
print(output.measurements)


class FadingFactory(tff.aggregators.UnweightedAggregationFactory):
  """Multiplies each update by 1, 0.9, 0.81, ... from round to round."""

  def __init__(self, inner):
    self._inner = inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.tensorflow.computation(value_type, np.float32)
    def scale(update, factor):
      return tf.nest.map_structure(
        lambda x: x * tf.cast(factor, x.dtype), update
      )

    @tff.tensorflow.computation(np.float32)
    def fade(factor):
      return 0.9 * factor

    @tff.federated_computation
    def initialize():
      factor = tff.federated_value(np.float32(1), tff.SERVER)
      return tff.federated_zip(
        collections.OrderedDict(factor=factor, inner=inner.initialize())
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, updates):
      factor = state['factor']
      scaled = tff.federated_map(
        scale, (updates, tff.federated_broadcast(factor))
      )
      output = inner.next(state['inner'], scaled)
      new_state = collections.OrderedDict(
        factor=tff.federated_map(fade, factor), inner=output.state
      )
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(new_state), output.result, output.measurements
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


factory = FadingFactory(tff.aggregators.UnweightedMeanFactory())
process = factory.create(tff.TensorType(np.float32, [1]))
state = process.initialize()
for _ in range(2):
  output = process.next(state, [np.array([1.0], np.float32)])
  state = output.state
  print(output.result)
