"""A Keras model and an aggregator of one's own."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators


def create_model(input_shape, num_classes):
  return tf.keras.Sequential(
    [
      tf.keras.layers.Dense(16, activation='relu', input_shape=input_shape),
      tf.keras.layers.Dense(num_classes),
    ]
  )


class SignFactory(tff.aggregators.UnweightedAggregationFactory):
  """Aggregates the signs of the updates by another factory."""

  def __init__(self, inner):
    self._inner = inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.tensorflow.computation(value_type)
    def sign(update):
      return tf.nest.map_structure(tf.sign, update)

    @tff.federated_computation(
      inner.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      return inner.next(state, tff.federated_map(sign, value))

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def create_aggregator():
  return SignFactory(aggregators.realized_mean_factory())


def create_private_aggregator(clipping_norm, plan):
  return SignFactory(
    aggregators.dp_mean_factory(
      clipping_norm=clipping_norm,
      **plan.aggregator_parameters._asdict(),
      noise_key='drawn',
    )
  )
