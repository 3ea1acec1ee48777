"""An aggregator of one's own: the code of docs/write_an_aggregator.md."""

import collections

import numpy as np
from tff_clipping import aggregators, learning, runtime
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


def model_fn():
  inputs = tf.keras.Input((4,))
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs)),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])),
  )


process = learning.build_fed_avg(
  model_fn,
  local_steps=4,
  batch_size=5,
  client_learning_rate=0.1,
  model_aggregator=LargeElementsFactory(
    0.001, aggregators.clipped_mean_factory(clipping_norm=0.5)
  ),
)
x = np.random.default_rng(0).normal(size=[10, 20, 4]).astype(np.float32)
y = x @ np.array([[1.0], [-2.0], [0.0], [3.0]], np.float32)
clients = [tf.data.Dataset.from_tensor_slices((x[i], y[i])) for i in range(10)]
state = process.initialize()
for _ in range(20):
  state = process.next(state, clients).state
print(np.round(process.get_model_weights(state).trainable[0].ravel(), 1) + 0.0)


class ShrinkingFactory(tff.aggregators.UnweightedAggregationFactory):
  """As `LargeElementsFactory`, with a limit that falls from round to round."""

  def __init__(self, smallest, inner):
    self._smallest, self._inner = smallest, inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.tensorflow.computation(value_type, np.float32)
    def drop_small(update, smallest):
      def keep_large(x):
        is_small = tf.abs(x) < tf.cast(smallest, x.dtype)
        return tf.where(is_small, tf.zeros_like(x), x)

      return tf.nest.map_structure(keep_large, update)

    @tff.tensorflow.computation(np.float32)
    def shrink(smallest):
      return 0.9 * smallest

    @tff.federated_computation
    def initialize():
      smallest = tff.federated_value(np.float32(self._smallest), tff.SERVER)
      return tff.federated_zip(
        collections.OrderedDict(smallest=smallest, inner=inner.initialize())
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, updates):
      smallest = state['smallest']
      kept = tff.federated_map(
        drop_small, (updates, tff.federated_broadcast(smallest))
      )
      output = inner.next(state['inner'], kept)
      new_state = collections.OrderedDict(
        smallest=tff.federated_map(shrink, smallest), inner=output.state
      )
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(new_state), output.result, output.measurements
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


factory = ShrinkingFactory(0.1, tff.aggregators.UnweightedMeanFactory())
process = factory.create(tff.TensorType(np.float32, [1]))
state = process.initialize()
for _ in range(2):
  output = process.next(state, [np.array([0.095], np.float32)])
  state = output.state
  print(output.result)
