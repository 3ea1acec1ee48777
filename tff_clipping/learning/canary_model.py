"""A model that clients train, and canaries push in their direction.

In an audit canaries pass through the whole pipeline: local training, clip,
noise, sums. So a canary is a client of the cohort like all others, and only its
data differ. Beside each example stands a mark: 0 for a client, the canary's
number for a canary. On a canary's data the model's loss is linear, and its
gradient points against the canary's direction. So SGD, with or without
momentum, and optimizers that scale each element of the gradient, such as Adam,
go straight into the canary's direction.
"""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import canary_products
from tff_clipping.learning import keras_classes
from tff_clipping.privacy.audit import Canaries

_EXAMPLES = 'examples'
_MARK = 'canary'


def add_canaries(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  canaries: Canaries,
  *,
  gradient_norm: float,
) -> Callable[[], tff.learning.models.VariableModel]:
  """Returns a model for clients and canaries alike.

  It takes the batches of `mark_dataset` and `canary_dataset`. On batches of
  clients it does what the model of `model_fn` does; metrics are of clients
  only.

  Args:
    model_fn: Returns a new model.
    canaries: A `tff_clipping.privacy.audit.Canaries` for the elements of the
      model's trainable variables.
    gradient_norm: The norm of the gradient that a canary's data have. Under SGD
      a canary's update is this times the learning rate times the steps. Choose
      it so that this is far above the clipping norm, ten times for example: the
      canary is then clipped to the norm, and seen where no clip is.

  Returns:
    A function that returns a new model, whose trainable variables are those of
    the model of `model_fn`.

  Raises:
    TypeError: If `gradient_norm` is not a number.
    ValueError: If it is not positive and finite. By the function that is
      returned, if the model has another number of elements than the canaries'
      directions.
  """
  argument_checks.check_positive('gradient_norm', gradient_norm)
  return lambda: _CanaryModel(model_fn(), canaries, float(gradient_norm))


def mark_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Returns the batches of a client with the mark 0.

  Args:
    dataset: Batches of examples, as the model without canaries takes them.
  """

  def mark(*batch):
    batch = batch[0] if len(batch) == 1 else batch
    num_examples = tf.shape(tf.nest.flatten(batch)[0])[:1]
    return _marked(batch, tf.zeros(num_examples, tf.int32))

  return dataset.map(mark)


@keras_classes.kept
def canary_dataset(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  mark: int,
  *,
  num_batches: int,
) -> tf.data.Dataset:
  """Returns the data of a canary: batches of an example of zeros and a mark.

  Args:
    model_fn: Returns a new model, without canaries.
    mark: Of `tff_clipping.privacy.audit.Canaries.marks`, not 0.
    num_batches: How many batches: as many steps as a client takes.

  Raises:
    TypeError: If a number is not an integer.
    ValueError: If `num_batches` is not positive.
  """
  argument_checks.check_integer('num_batches', num_batches, at_least=1)
  with tf.Graph().as_default():
    spec = model_fn().input_spec
  zeros = tf.nest.map_structure(
    lambda s: tf.zeros([1, *s.shape[1:]], s.dtype), spec
  )
  batch = _marked(zeros, tf.constant([mark], tf.int32))
  return tf.data.Dataset.from_tensors(batch).repeat(num_batches)


class _CanaryModel(tff.learning.models.VariableModel):
  """The model of `add_canaries`."""

  def __init__(self, model, canaries, gradient_norm):
    found = sum(v.shape.num_elements() for v in model.trainable_variables)
    if found != canaries.num_parameters:
      raise ValueError(
        '`canaries` must have the `num_parameters` of the model, which has '
        f'{found}, found {canaries.num_parameters}.'
      )
    self._model = model
    self._canaries = canaries
    self._gradient_norm = gradient_norm

  @property
  def trainable_variables(self):
    return self._model.trainable_variables

  @property
  def non_trainable_variables(self):
    return self._model.non_trainable_variables

  @property
  def local_variables(self):
    return self._model.local_variables

  @property
  def input_spec(self):
    return _marked(
      self._model.input_spec, tf.TensorSpec([None], dtype=tf.int32)
    )

  def has_linear_loss(self, batch_input) -> tf.Tensor:
    """Returns whether it is a canary's data: all gradients are the same."""
    return tf.reduce_any(tf.not_equal(batch_input[_MARK], 0))

  def forward_pass(self, batch_input, training=True):
    mark = batch_input[_MARK][0]

    def train_client():
      output = self._model.forward_pass(batch_input[_EXAMPLES], training)
      return tf.cast(output.loss, tf.float32), tf.cast(
        output.num_examples, tf.int32
      )

    def train_canary():
      # Minus the product with the direction: descent goes along it.
      variables = self.trainable_variables
      direction = canary_products.draw_direction(
        self._canaries, mark, variables
      )
      products = [
        tf.cast(tf.reduce_sum(v * d), tf.float32)
        for v, d in zip(variables, direction, strict=True)
      ]
      return -self._gradient_norm * tf.add_n(products), tf.constant(1)

    loss, num_examples = tf.cond(tf.equal(mark, 0), train_client, train_canary)
    return tff.learning.models.BatchOutput(
      loss=loss, predictions=(), num_examples=num_examples
    )

  def predict_on_batch(self, batch_input, training=True):
    return self._model.predict_on_batch(batch_input[_EXAMPLES], training)

  def report_local_unfinalized_metrics(self):
    return self._model.report_local_unfinalized_metrics()

  def metric_finalizers(self):
    return self._model.metric_finalizers()

  def reset_metrics(self):
    self._model.reset_metrics()


def _marked(examples: Any, mark: Any) -> collections.OrderedDict:
  """Returns examples, or their specification, beside a mark for each."""
  return collections.OrderedDict([(_EXAMPLES, examples), (_MARK, mark)])
