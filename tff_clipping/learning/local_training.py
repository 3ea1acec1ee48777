"""What a client does in a round: Q local steps on full batches.

A plain TensorFlow function, without TFF.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.learning import client_batches
from tff_clipping.learning.step_context import StepContext, after
from tff_clipping.learning.steps import LocalStep


def train(
  model: tff.learning.models.VariableModel,
  weights: tff.learning.models.ModelWeights,
  examples: Any,
  *,
  local_steps: int,
  batch_size: int,
  learning_rate: float,
  local_step: LocalStep,
  seed: tf.Tensor,
  round_num: tf.Tensor,
  kept: Any = (),
) -> list[tf.Tensor]:
  """Returns the update of a client.

  It is not a `tf.function`, which would run all that changes a variable, the
  model's metrics too. So the order of reads and writes is given here.

  Source: Alg. 1 (FedAvg), lines 4-9: the local steps
  `x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q}` for `q = 0, ..., Q-1`, with the
  gradient for the direction `d_i^{t,q}` in the paper, and the update
  `x_i^{t,Q} - x^t`.

  Args:
    model: The model. Its trainable variables hold `x_i^{t,q}`, in place. Where
      it has `has_linear_loss`, a function of the examples, and that is true,
      all steps have one gradient: one step that is Q times as long takes their
      place, if the directions of `local_step` add up to it.
    weights: The global model, x^t, of tensors.
    examples: The client's examples, a structure of tensors with a leading
      dimension of examples.
    local_steps: The number of steps, Q.
    batch_size: The number of examples in every batch.
    learning_rate: The local step size, eta_l.
    local_step: Finds the direction of each step.
    seed: The client's seed in the round, of the shape `[2]`.
    round_num: The number of the round, an `int32` scalar.
    kept: What `StepContext.kept` holds.

  Returns:
    The update, a list of tensors: zeros for a client without examples.
  """
  variables = model.trainable_variables
  start = list(weights.trainable)
  leaves = tf.nest.flatten(examples)
  num_examples = tf.shape(leaves[0])[0]
  indices = client_batches.batch_indices(
    tf.maximum(num_examples, 1), local_steps, batch_size, seed
  )
  num_steps = tf.where(num_examples > 0, local_steps, 0)
  step_size: float | tf.Tensor = learning_rate
  if local_step.adds_up and hasattr(model, 'has_linear_loss'):
    is_linear = (num_examples > 0) & model.has_linear_loss(examples)
    num_steps = tf.where(is_linear, 1, num_steps)
    step_size = tf.where(is_linear, local_steps * step_size, step_size)

  def take_step(step, memory):
    with after([step]):
      # In fewer operations than a slice.
      rows = tf.gather(indices, step)
      batch = [tf.gather(leaf, rows) for leaf in leaves]
      context = StepContext(
        model,
        tf.nest.pack_sequence_as(model.input_spec, batch),
        start=start,
        step=step,
        round_num=round_num,
        kept=kept,
        seed=seed,
      )
      direction, memory = local_step.direction(context, memory)
      taken = context.descend(direction, step_size)
    with after(taken):
      return step + 1, memory

  started = [
    variable.assign(value, read_value=False)
    for variable, value in zip(
      [*variables, *model.non_trainable_variables],
      [*start, *weights.non_trainable],
      strict=True,
    )
  ]
  with after(started):
    first = tf.identity(0)
  done, _ = tf.while_loop(
    lambda step, _: step < num_steps,
    take_step,
    (first, local_step.begin(start)),
  )
  with after([done]):
    return [
      variable.read_value() - value
      for variable, value in zip(variables, start, strict=True)
    ]
