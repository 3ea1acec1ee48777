"""What TFF trains: a Keras model with its loss and its metric."""

import collections
from collections.abc import Callable, Mapping

import tensorflow as tf
import tensorflow_federated as tff


def build_model_fn(
  create_model: Callable[[], tf.keras.Model],
  element_spec: Mapping[str, tf.TensorSpec],
  *,
  has_padding: bool | None = True,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Makes the `model_fn` that TFF's algorithms take from a Keras model.

  The loss is the cross-entropy of the logits, averaged over the batch and, for
  rows of labels, over their positions.

  Example:
    model_fn = build_model_fn(
      lambda: keras_models.create_mlp((28, 28, 1), 10), task.element_spec
    )
    process = tff.learning.algorithms.build_unweighted_fed_avg(model_fn, ...)

  Args:
    create_model: Returns a new, uncompiled model that gives logits.
    element_spec: The specs `x` and `y` of one example, without the batch.
    has_padding: Whether the loss and the accuracy of rows of labels leave out
      the label 0. Labels that are not in rows are all counted.

  Returns:
    A function without arguments that returns a new TFF model each time.
  """
  input_spec = collections.OrderedDict(
    (key, tf.TensorSpec([None, *spec.shape], spec.dtype))
    for key, spec in ((key, element_spec[key]) for key in ('x', 'y'))
  )
  is_masked = bool(has_padding) and element_spec['y'].shape.rank > 0

  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      create_model(),
      loss=(
        _MaskedCrossEntropy()
        if is_masked
        else tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
      ),
      input_spec=input_spec,
      metrics=[
        _MaskedAccuracy()
        if is_masked
        else tf.keras.metrics.SparseCategoricalAccuracy()
      ],
    )

  return model_fn


class _MaskedCrossEntropy(tf.keras.losses.Loss):
  """Mean cross-entropy of the logits over the tokens that are not padding.

  A batch of nothing but padding has a loss of 0. Keras's own masks do not reach
  the loss through `tff.learning.models.from_keras_model`.
  """

  def call(self, y_true, y_pred):
    """Returns terms [batch, length] that have the loss as their mean."""
    terms = tf.keras.losses.sparse_categorical_crossentropy(
      y_true, y_pred, from_logits=True
    )
    weights = tf.cast(tf.not_equal(y_true, 0), terms.dtype)
    num_tokens = tf.maximum(tf.reduce_sum(weights), 1)
    size = tf.cast(tf.size(weights), terms.dtype)
    return terms * weights * (size / num_tokens)


class _MaskedAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
  """Share of right next tokens among those that are not padding (token 0)."""

  def __init__(self, name: str = 'sparse_categorical_accuracy', **kwargs):
    """Builds the metric; the arguments are those of any Keras metric."""
    super().__init__(name=name, **kwargs)

  def update_state(self, y_true, y_pred, sample_weight=None):
    """Counts the labels other than 0, by `sample_weight` where given."""
    weight = tf.cast(tf.not_equal(y_true, 0), tf.float32)
    if sample_weight is not None:
      weight *= tf.cast(sample_weight, tf.float32)
    return super().update_state(y_true, y_pred, weight)
