"""What TFF trains: a Keras model with its loss."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import losses_and_metrics


def build_model_fn(
  create_model: Callable[[], tf.keras.Model],
  element_spec: Mapping[str, Any],
  *,
  has_padding: bool | None = True,
  loss: tf.keras.losses.Loss | None = None,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Makes the `model_fn` that TFF's algorithms take from a Keras model.

  Without `loss`, it is the cross-entropy of the logits, averaged over the batch
  and, for rows of labels, over their positions; the accuracy is a metric of the
  model.

  Example:
    model_fn = build_model_fn(
      lambda: keras_models.create_mlp((28, 28, 1), 10), task.element_spec
    )
    process = tff.learning.algorithms.build_unweighted_fed_avg(model_fn, ...)

  Args:
    create_model: Returns a new, uncompiled model that gives logits, or what
      `loss` takes.
    element_spec: The specs `x` and `y` of one example, without the batch; by
      name of several inputs or outputs.
    has_padding: Whether the loss and the accuracy of rows of labels leave out
      the label 0. Labels that are not in rows are all counted.
    loss: Takes `y` and what the model gives. The model has no metrics then.

  Returns:
    A function without arguments that returns a new TFF model each time.
  """
  input_spec = collections.OrderedDict(
    (
      key,
      tf.nest.map_structure(
        lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype),
        element_spec[key],
      ),
    )
    for key in ('x', 'y')
  )
  is_masked = (
    loss is None and bool(has_padding) and element_spec['y'].shape.rank > 0
  )

  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      create_model(),
      loss=loss or losses_and_metrics.cross_entropy(is_masked=is_masked),
      input_spec=input_spec,
      metrics=[]
      if loss
      else [
        losses_and_metrics.create_metric('accuracy', is_masked=is_masked)()
      ],
    )

  return model_fn
