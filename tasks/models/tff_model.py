"""What TFF trains: a Keras model with its loss."""

import collections
from collections.abc import Callable, Mapping

import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import losses_and_metrics


def build_model_fn(
  create_model: Callable[[], tf.keras.Model],
  element_spec: Mapping[str, tf.TensorSpec],
  *,
  loss: tf.keras.losses.Loss | None = None,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Makes the `model_fn` that TFF's algorithms take from a Keras model.

  Example:
    model_fn = build_model_fn(
      lambda: keras_models.create_mlp((28, 28, 1), 10), task.element_spec
    )
    process = tff.learning.algorithms.build_unweighted_fed_avg(model_fn, ...)

  Args:
    create_model: Returns a new, uncompiled model that gives logits, or what
      `loss` takes.
    element_spec: The specs `x` and `y` of one example, without the batch.
    loss: Takes `y` and what the model gives. By default the cross-entropy of
      the logits, averaged over the batch and, for rows of labels, over their
      positions.

  Returns:
    A function without arguments that returns a new TFF model each time.
  """
  input_spec = collections.OrderedDict(
    (key, tf.TensorSpec([None, *spec.shape], spec.dtype))
    for key, spec in element_spec.items()
  )

  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      create_model(),
      loss=loss or losses_and_metrics.cross_entropy(),
      input_spec=input_spec,
    )

  return model_fn
