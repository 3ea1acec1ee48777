"""What a client does in a round: Q local steps on full batches.

Plain TensorFlow functions, without TFF.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.learning import client_batches
from tff_clipping.learning.steps.local_step import LocalStep, StepContext

# What a step's key is folded with, so that no batch is drawn with it.
_KEYS_OF_STEPS = 0x57E95


def build_local_training(
  model: tff.learning.models.VariableModel,
  *,
  local_steps: int,
  batch_size: int,
  learning_rate: float,
  local_step: LocalStep,
) -> Callable[..., Sequence[tf.Tensor]]:
  """Returns a function that makes a client's update.

  Source: Alg. 1 (FedAvg), lines 4-9: the local steps
  `x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q}` for `q = 0, ..., Q-1`, with the
  gradient for the direction `d_i^{t,q}` in the paper, and the update
  `x_i^{t,Q} - x^t`.

  Args:
    model: The model. Its trainable variables hold `x_i^{t,q}`, in place. Where
      it has `has_linear_loss`, a function of the examples, and that is true,
      all steps have one gradient: one step that is Q times as long takes their
      place, if the directions of `local_step` add up to it.
    local_steps: The number of steps, Q.
    batch_size: The number of examples in every batch.
    learning_rate: The local step size, eta_l.
    local_step: Finds the direction of each step.

  Returns:
    A function of the global model (`tff.learning.models.ModelWeights` of
    tensors), the client's examples (a structure of tensors with a leading
    dimension of examples), the client's seed (shape `[2]`), the number of the
    round (an `int32` scalar) and what the client keeps or was sent for its
    steps (nothing if not given), that returns the update (a list of tensors).
    A client without examples has an update of zeros. In a graph only what the
    update depends on runs, and so not the model's metrics.
  """
  variables = model.trainable_variables

  # Not a `tf.function`, which would run everything that changes a variable, the
  # metrics as well. So the order of reads and writes is given here.
  def train(weights, examples, seed, round_num, kept=()):
    start = list(weights.trainable)
    leaves = tf.nest.flatten(examples)
    num_examples = tf.shape(leaves[0])[0]
    indices = client_batches.batch_indices(
      tf.maximum(num_examples, 1), local_steps, batch_size, seed
    )
    num_steps = tf.where(num_examples > 0, local_steps, 0)
    step_size = learning_rate
    if local_step.adds_up and hasattr(model, 'has_linear_loss'):
      is_linear = (num_examples > 0) & model.has_linear_loss(examples)
      num_steps = tf.where(is_linear, 1, num_steps)
      step_size = tf.where(is_linear, local_steps * step_size, step_size)

    def take_step(step, memory):
      with _after([step]):
        place = _Place(
          model,
          leaves,
          indices,
          start=start,
          step=step,
          round_num=round_num,
          kept=kept,
          seed=seed,
        )
        direction, memory = local_step.direction(place, memory)
        taken = place.descend(direction, step_size)
      with _after(taken):
        return step + 1, memory

    started = [
      variable.assign(value, read_value=False)
      for variable, value in zip(
        [*variables, *model.non_trainable_variables],
        [*start, *weights.non_trainable],
        strict=True,
      )
    ]
    with _after(started):
      first = tf.identity(0)
    done, _ = tf.while_loop(
      lambda step, _: step < num_steps,
      take_step,
      (first, local_step.begin(start)),
    )
    with _after([done]):
      return [
        variable.read_value() - value
        for variable, value in zip(variables, start, strict=True)
      ]

  return train


class _Place(StepContext):
  """Where a client is in its round, and what its step finds there.

  The model's variables hold the point at which a gradient is computed. What
  reads them and what writes them is put in order here, and nothing is read
  that the step did not ask for.
  """

  def __init__(
    self,
    model: tff.learning.models.VariableModel,
    examples: Sequence[tf.Tensor],
    indices: tf.Tensor,
    *,
    start: Sequence[tf.Tensor],
    step: tf.Tensor,
    round_num: tf.Tensor,
    kept: Any,
    seed: tf.Tensor,
  ):
    self.start = start
    self.step = step
    self.round_num = round_num
    self.kept = kept
    self._model = model
    self._examples = examples
    self._indices = indices
    self._seed = seed
    self._values: list[tf.Tensor] = []
    self._is_moved = False
    self._gradients: list[tf.Tensor] = []
    # What the next write waits for.
    self._pending: list[tf.Tensor] = []

  @property
  def model(self) -> list[tf.Tensor]:
    """See `StepContext`."""
    if not self._values:
      self._values = [v.read_value() for v in self._model.trainable_variables]
      self._pending += self._values
    return self._values

  @property
  def key(self) -> tf.Tensor:
    """See `StepContext`."""
    key = self._seed
    for data in (_KEYS_OF_STEPS, self.step):
      key = tf.random.experimental.stateless_fold_in(key, data)
    return key

  def gradient(
    self, point: Sequence[tf.Tensor] | None = None
  ) -> list[tf.Tensor]:
    """See `StepContext`."""
    # In fewer operations than a slice.
    rows = tf.gather(self._indices, self.step)
    batch = tf.nest.pack_sequence_as(
      self._model.input_spec, [tf.gather(leaf, rows) for leaf in self._examples]
    )
    with _after(self._move(point)):
      with tf.GradientTape() as tape:
        loss = self._model.forward_pass(batch, training=True).loss
      gradients = tape.gradient(
        loss,
        self._model.trainable_variables,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
      )
      self._gradients = [
        tf.convert_to_tensor(gradient)
        if isinstance(gradient, tf.IndexedSlices)
        else gradient
        for gradient in gradients
      ]
    self._pending += self._gradients
    return list(self._gradients)

  def descend(
    self, direction: Sequence[tf.Tensor], step_size: float | tf.Tensor
  ) -> list[tf.Operation]:
    """Returns the operations that move the model against a direction."""
    if self._is_moved:
      waits_for = self._write(self.model)
    elif _are_same(direction, self._gradients):
      # A gradient is there after all that reads its variable.
      waits_for = []
    else:
      waits_for = self._read()
    with _after(waits_for):
      return [
        tf.raw_ops.ResourceApplyGradientDescent(
          var=variable.handle,
          alpha=tf.cast(step_size, variable.dtype),
          delta=moved,
        )
        for variable, moved in zip(
          self._model.trainable_variables, direction, strict=True
        )
      ]

  def _move(self, point: Sequence[tf.Tensor] | None) -> Sequence[tf.Operation]:
    """Returns what puts a point into the variables; `None` is the client's."""
    if point is None and not self._is_moved:
      return []
    written = self._write(self.model if point is None else point)
    self._is_moved = point is not None
    return written

  def _write(self, values: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Returns what puts values into the variables, after all reads."""
    # Where the client stands is read before it is overwritten.
    _ = self.model
    with _after(self._read()):
      written = [
        variable.assign(value, read_value=False)
        for variable, value in zip(
          self._model.trainable_variables, values, strict=True
        )
      ]
    self._pending = []
    return written

  def _read(self) -> list[tf.Tensor]:
    """Returns what is there after all that was read so far.

    A gradient may come out of a function, whose body takes its place when a
    graph is optimized: what waited for the function as a whole waits no longer.
    What waits for its output does.
    """
    return [tf.identity(tensor) for tensor in self._pending]


def _are_same(some: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> bool:
  return len(some) == len(others) and all(
    one is other for one, other in zip(some, others, strict=True)
  )


def _after(operations: Sequence):
  """Returns a context whose operations run after `operations`."""
  return tf.control_dependencies([op for op in operations if op is not None])
