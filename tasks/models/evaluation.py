"""The metrics and the loss on the test set."""

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.checks import check
from tasks.models.objective import TestMetric

_BATCH_SIZE = 256


def build_evaluation_fn(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  test: Mapping[str, Any],
  metrics: Sequence[TestMetric],
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
  """Builds the evaluation of model weights on the examples `x` and `y`.

  Where no client has a part in the test set, evaluating on it costs no privacy;
  `Task` says whose the examples are. The function of model weights that is
  returned gives `test_loss`, and a `test_` for each metric, an accuracy from 0
  to 1; NaN for a metric that has no value on the test set, such as a recall
  without positives.
  """
  model = model_fn()
  counting = [
    metric
    for metric in metrics
    if isinstance(metric.counted, tf.keras.metrics.Metric)
  ]

  @tf.function(input_signature=[model.input_spec])
  def evaluate_batch(batch):
    predictions = model.forward_pass(batch, training=False).predictions
    mask = tf.cast(batch['y'] != 0, tf.float32)
    for metric in counting:
      metric.counted.update_state(
        *(batch['y'], predictions),
        sample_weight=mask if metric.is_masked else None,
      )
    return predictions

  @tf.function
  def reset():
    model.reset_metrics()
    for metric in counting:
      metric.counted.reset_state()

  @tf.function
  def results():
    return {metric.name: metric.counted.result() for metric in counting}

  # Traced here: what Keras made outside of a graph can no longer be called once
  # TFF has made another one inside of a graph.
  evaluate_batch = evaluate_batch.get_concrete_function()
  reset = reset.get_concrete_function()
  results = results.get_concrete_function()

  def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
    weights.assign_weights_to(model)
    reset()
    outputs = []
    for start in range(0, len(test['y']), _BATCH_SIZE):
      predictions = evaluate_batch(
        collections.OrderedDict(
          (key, tf.constant(array[start : start + _BATCH_SIZE]))
          for key, array in test.items()
        )
      )
      if len(counting) < len(metrics):
        outputs.append(predictions.numpy())
    found, counts = {}, results()
    for metric in metrics:
      counted = metric.counted
      if metric.name not in counts:
        labels, found_outputs = test['y'], np.concatenate(outputs)
        shape = found_outputs.shape
        must = f'must give the shape {labels.shape} of `y` for {metric.name}'
        check('model', shape == labels.shape, must, shape)
        with np.errstate(all='ignore'):
          value = counted(labels.astype(float), found_outputs.astype(float))
      elif type(counted).result is tf.keras.metrics.Mean.result:
        value = _mean(counted.total, counted.count)
      else:
        value = counts[metric.name]
      shape = f'the shape {list(np.shape(value))} of {metric.name}'
      check('metrics', tf.size(value) == 1, 'must be single numbers', shape)
      found[f'test_{metric.name}'] = float(np.reshape(value, ()))
    loss = _mean(*model.report_local_unfinalized_metrics()['loss'])
    return {**found, 'test_loss': loss}

  return evaluate


def _mean(total, count) -> float:
  """Returns a mean with the digits of float64, NaN of nothing."""
  return float(total) / float(count) if count else math.nan
