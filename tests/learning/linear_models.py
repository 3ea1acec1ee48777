"""A small linear regression whose gradients NumPy knows, for the tests here.

f_i(w) is the mean over client i's examples of (features . w - target)^2.
"""

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.programs.clients import client_store

# What a client does, where it does not matter.
WORK = dict(local_steps=2, batch_size=2, client_learning_rate=0.1)
DIMENSION = 3
PARTITION = [np.arange(0, 4), np.arange(4, 6), np.arange(6, 13)]


def examples(rows: Any = slice(None)) -> collections.OrderedDict:
  """Returns 13 examples of three features and a target, or some of them."""
  rng = np.random.default_rng(3)
  return collections.OrderedDict(
    x=rng.normal(size=(13, DIMENSION)).astype(np.float32)[rows],
    y=rng.normal(size=(13, 1)).astype(np.float32)[rows],
  )


def write_store(folder) -> client_store.ClientStore:
  """Writes the examples of three clients, of 4, 2 and 7 examples."""
  return client_store.write_client_store(folder, 'lin', examples(), PARTITION)


def model_fn() -> tff.learning.models.VariableModel:
  """Returns the model, with weights of ones."""
  dense = tf.keras.layers.Dense
  return layers_fn(
    lambda: [dense(1, use_bias=False, kernel_initializer='ones')]
  )()


def layers_fn(
  build_layers: Callable[[], Sequence[tf.keras.layers.Layer]],
  *,
  num_features: int = DIMENSION,
  is_classifier: bool = False,
  **settings,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Returns a `model_fn` of Keras layers: of classes y, or of numbers."""
  target = tf.TensorSpec([None, 1])
  build_loss = tf.keras.losses.MeanSquaredError
  if is_classifier:
    target = tf.TensorSpec([None], tf.int32)
    build_loss = functools.partial(
      tf.keras.losses.SparseCategoricalCrossentropy, from_logits=True
    )

  def build():
    inputs = tf.keras.Input((num_features,))
    outputs = inputs
    for layer in build_layers():
      outputs = layer(outputs)
    return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, outputs),
      loss=build_loss(),
      input_spec=collections.OrderedDict(
        x=tf.TensorSpec([None, num_features]), y=target
      ),
      **settings,
    )

  return build


def weights(values) -> tff.learning.models.ModelWeights:
  """Returns the model weights with these values."""
  return tff.learning.models.ModelWeights(
    [np.asarray(values, np.float32).reshape(DIMENSION, 1)], []
  )


def run(
  process: tff.learning.templates.LearningProcess,
  cohorts: Sequence[Sequence],
) -> tuple[np.ndarray, list]:
  """Returns the models before and after each round, and the rounds' metrics."""
  states, metrics = [process.initialize()], []
  for cohort in cohorts:
    output = process.next(states[-1], list(cohort))
    states.append(output.state)
    metrics.append(output.metrics)
  models = [process.get_model_weights(state).trainable[0] for state in states]
  return np.array(models)[:, :, 0], metrics


def loss(w: np.ndarray, rows: np.ndarray) -> float:
  """Returns the mean loss of some examples, in float64."""
  data = examples(rows)
  residual = data['x'].astype(float) @ w - data['y'][:, 0]
  return float(np.mean(residual**2))


def gradient(w: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """Returns the gradient of `loss`, in float64; zero of no examples."""
  data = examples(rows)
  features = data['x'].astype(float)
  residual = features @ w - data['y'][:, 0]
  return 2 * features.T @ residual / max(len(rows), 1)
