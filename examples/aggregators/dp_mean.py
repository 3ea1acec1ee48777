"""Differentially private federated averaging with TFF's own algorithm."""

import collections

import numpy as np
from tff_clipping import aggregators, runtime
import tensorflow as tf
import tensorflow_federated as tff

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32),
  y=tf.TensorSpec([None, 1], tf.float32),
)


def _model_fn() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
  )


def _client(seed: int) -> tf.data.Dataset:
  x = np.random.default_rng(seed).normal(size=(20, 2)).astype(np.float32)
  y = x @ np.array([[1.0], [-2.0]], np.float32)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=y)
  ).batch(5)


def main() -> None:
  runtime.set_default_context()
  # A noise multiplier this small protects nobody; a plan for real data takes it
  # from the accountant (`tff-clipping-budget`).
  model_aggregator = aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=0.01, clients_per_round=4
  )
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.2),
    model_aggregator=model_aggregator,
  )
  state = process.initialize()
  clients = [_client(seed) for seed in range(4)]
  for _ in range(8):
    state = process.next(state, clients).state
  kernel = process.get_model_weights(state).trainable[0]
  print('weights', np.round(np.ravel(kernel)))


if __name__ == '__main__':
  main()
