"""A Keras model and an aggregator of one's own."""

import tensorflow as tf

from tff_clipping import aggregators


def create_model(input_shape, num_outputs):
  return tf.keras.Sequential(
    [
      tf.keras.layers.Dense(16, activation='relu', input_shape=input_shape),
      tf.keras.layers.Dense(num_outputs),
    ]
  )


def signs(update):
  return tf.nest.map_structure(tf.sign, update)


def create_aggregator():
  return aggregators.transformed_factory(
    aggregators.realized_mean_factory(), before=signs
  )


def create_private_aggregator(clipping_norm, plan):
  return aggregators.transformed_factory(
    aggregators.dp_mean_factory(
      clipping_norm=clipping_norm,
      **plan.aggregator_parameters._asdict(),
      noise_key='drawn',
    ),
    before=signs,
  )
