"""What a local step can read: the model, gradients, a seed."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

# The seed of a step is folded with this, so that no batch is drawn with it.
_STEP_SEED = 0x57E95


class StepContext:
  """What a client's step can read before it moves the model.

  Tensors of the model are lists in the order of its trainable variables, with
  their shapes and types. What a step does not read is not computed.

  The variables of the model hold x_i^{t,q}. A graph orders nothing by itself:
  each write here waits for all reads before it, and each read for the write
  before it.

  Attributes:
    start: x^t, the global model of the round.
    step: q, the number of the step from 0, an `int32` scalar.
    round_num: t, the number of the round from 0, an `int32` scalar.
    kept: A `steps.Kept` for a `KeepingStep`, the same in all steps of a round;
      an empty tuple for other steps.
  """

  def __init__(
    self,
    model: tff.learning.models.VariableModel,
    batch: Any,
    *,
    start: Sequence[tf.Tensor],
    step: tf.Tensor,
    round_num: tf.Tensor,
    kept: Any,
    seed: tf.Tensor,
    has_loss: tf.Tensor | None = None,
  ):
    """Builds the context of a step.

    Args:
      model: The model, whose trainable variables hold x_i^{t,q}.
      batch: The examples of the step, as the model takes them.
      start: See the attribute.
      step: See the attribute.
      round_num: See the attribute.
      kept: See the attribute.
      seed: The stateless seed of the client in the round, shape `[2]`.
      has_loss: A scalar: whether the loss is that of the batch, or 0. `None` if
        it always is that of the batch.
    """
    self.start = start
    self.step = step
    self.round_num = round_num
    self.kept = kept
    self._model = model
    self._batch = batch
    self._seed = seed
    self._has_loss = has_loss
    self._values: list[tf.Tensor] = []
    # What was read since the last write, and the operations of that write.
    self._read: list[tf.Tensor] = []
    self._written: list[tf.Operation] = []

  @property
  def model(self) -> list[tf.Tensor]:
    """x_i^{t,q}, the client's model before this step."""
    if not self._values:
      self._values = [v.read_value() for v in self._model.trainable_variables]
      self._read += self._values
    return self._values

  @property
  def key(self) -> tf.Tensor:
    """A stateless seed of this client, round and step, `int32`, shape `[2]`."""
    key = self._seed
    for data in (_STEP_SEED, self.step):
      key = tf.random.experimental.stateless_fold_in(key, data)
    return key

  def gradient(
    self, point: Sequence[tf.Tensor] | None = None
  ) -> list[tf.Tensor]:
    """Returns the gradient of the mean loss of the step's batch.

    Each call is a pass forward and back through the model. Where the model
    draws random numbers, as in dropout, each call draws anew.

    Args:
      point: The model at which to compute it; x_i^{t,q} if not given, which
        costs no copy.

    Returns:
      The gradient, with zeros for variables that the loss does not depend on.
    """
    if point is None:
      return self._gradient()
    model = self.model
    self._written = self._write(point)
    gradient = self._gradient()
    self._written = self._write(model)
    return gradient

  def descend(
    self, direction: Sequence[tf.Tensor], step_size: float | tf.Tensor
  ) -> list[tf.Operation]:
    """Moves the model against a direction: x ← x − step_size · direction.

    Args:
      direction: Of the shapes and types of the trainable variables.
      step_size: A scalar.

    Returns:
      The operations, which run after all earlier reads of the step.
    """
    # A gradient is there after all that reads its variable.
    is_gradient = len(direction) == len(self._read) and all(
      a is b for a, b in zip(direction, self._read, strict=True)
    )
    # A cast of a Python number rounds it to `float32` first.
    of_type = tf.cast if tf.is_tensor(step_size) else tf.constant
    with after(self._written if is_gradient else self._reads()):
      return [
        tf.raw_ops.ResourceApplyGradientDescent(
          var=variable.handle,
          alpha=of_type(step_size, variable.dtype),
          delta=delta,
        )
        for variable, delta in zip(
          self._model.trainable_variables, direction, strict=True
        )
      ]

  def _gradient(self) -> list[tf.Tensor]:
    """Returns the gradient at what the variables hold."""
    variables = self._model.trainable_variables
    with after(self._written):
      with tf.GradientTape() as tape:
        loss = self._model.forward_pass(self._batch, training=True).loss
        if self._has_loss is not None:
          loss = tf.where(self._has_loss, loss, tf.zeros_like(loss))
      gradient = [
        # Of a table of embeddings it comes as some of the rows.
        tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g
        for g in tape.gradient(
          loss,
          variables,
          unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
      ]
    self._read += gradient
    return gradient

  def _write(self, values: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Puts values into the variables, after all reads."""
    with after(self._reads()):
      self._read = []
      return [
        variable.assign(value, read_value=False)
        for variable, value in zip(
          self._model.trainable_variables, values, strict=True
        )
      ]

  def _reads(self) -> list[tf.Tensor | tf.Operation]:
    """Returns what is there after the last write and all reads since.

    A gradient may come out of a function, whose body takes the function's place
    when a graph is optimized: what waited for the function as a whole waits no
    longer. What waits for its output does.
    """
    return [*self._written, *(tf.identity(tensor) for tensor in self._read)]


def after(operations: Sequence[tf.Tensor | tf.Operation | None]):
  """Returns a context whose operations run after `operations`.

  Args:
    operations: Tensors and operations; `None` stands for nothing.
  """
  return tf.control_dependencies([op for op in operations if op is not None])
