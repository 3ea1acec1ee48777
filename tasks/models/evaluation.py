"""Accuracy and loss on the test set."""

import collections
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_BATCH_SIZE = 256


def build_evaluation_fn(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  test: Mapping[str, np.ndarray],
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
  """Builds the evaluation of model weights on held-out data.

  Where no client has a part in the test set, evaluating on it costs no privacy;
  `Task` says whose the examples are.

  Args:
    model_fn: Returns a new model with an accuracy among its metrics.
    test: The features `x` and `y`.

  Returns:
    A function of model weights that returns `test_accuracy`, from 0 to 1, and
    `test_loss`.
  """
  model = model_fn()

  @tf.function(input_signature=[model.input_spec])
  def evaluate_batch(batch):
    model.forward_pass(batch, training=False)

  # Traced here: a Keras model made outside of a graph can no longer be called
  # once TFF has made another one inside of a graph.
  evaluate_batch = evaluate_batch.get_concrete_function()

  def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
    weights.assign_weights_to(model)
    model.reset_metrics()
    for start in range(0, len(test['y']), _BATCH_SIZE):
      evaluate_batch(
        collections.OrderedDict(
          (name, tf.constant(values[start : start + _BATCH_SIZE]))
          for name, values in test.items()
        )
      )
    totals = model.report_local_unfinalized_metrics()
    return dict(
      test_accuracy=_mean(totals['sparse_categorical_accuracy']),
      test_loss=_mean(totals['loss']),
    )

  return evaluate


def _mean(total_and_count) -> float:
  total, count = total_and_count
  if not count:
    raise ValueError('`test` must have a label that counts, found none.')
  return float(total) / float(count)
