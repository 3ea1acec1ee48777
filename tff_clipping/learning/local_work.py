"""The local work of a client in a round."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.learning import client_batches, model_checks, steps
from tff_clipping.learning.step_context import StepContext, after
from tff_clipping.learning.steps import KeepingStep, LocalStep, Sgd
from tff_clipping.learning.untrained_variables import ModelFn


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalWork:
  """Q local steps from the global model, on a client's own examples.

  A client is its id in the store, a string, or without a store a data set of
  single examples. The methods are TensorFlow functions.

  Attributes:
    model_fn: Returns a new `tff.learning.models.VariableModel`.
    local_steps: The number of local steps, Q.
    batch_size: The number of examples in each local step's batch.
    client_learning_rate: The local step size, eta_l.
    local_step: Finds the direction of each local step.
    client_store: Reads a client's examples by its id, or `None`: see
      `build_fed_avg`.
    seed: The seed of the clients' shuffling.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, the model cannot be averaged, or
      the store's examples are not what it takes.
  """

  model_fn: ModelFn
  local_steps: int
  batch_size: int
  client_learning_rate: float
  local_step: LocalStep = Sgd()
  client_store: Any = None
  seed: int = 0

  def __post_init__(self):
    argument_checks.check_integer('local_steps', self.local_steps, at_least=1)
    argument_checks.check_integer('batch_size', self.batch_size, at_least=1)
    argument_checks.check_positive(
      'client_learning_rate', self.client_learning_rate
    )
    steps.check_is_step('local_step', self.local_step)
    argument_checks.check_seed('seed', self.seed)
    model_checks.check_model(self.model_fn, self.client_store)
    # A number of NumPy would decide the type of what it is multiplied with.
    for name, kind in (
      ('local_steps', int),
      ('batch_size', int),
      ('client_learning_rate', float),
      ('seed', int),
    ):
      object.__setattr__(self, name, kind(getattr(self, name)))

  @property
  def keeping_step(self) -> KeepingStep | None:
    """The local step, if clients keep something for it from round to round."""
    step = self.local_step
    return step if isinstance(step, KeepingStep) else None

  @property
  def way(self) -> float:
    """How far a client goes along one gradient: Q eta_l."""
    return self.local_steps * self.client_learning_rate

  @property
  def client_type(self) -> tff.Type:
    """The type of a client."""
    if self.client_store is not None:
      return tff.TensorType(np.str_)
    with tf.Graph().as_default():
      input_spec = self.model_fn().input_spec
    example_spec = tf.nest.map_structure(
      lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), input_spec
    )
    return tff.SequenceType(tff.types.tensorflow_to_type(example_spec))

  def make_update(
    self,
    client: Any,
    weights: tff.learning.models.ModelWeights,
    round_num: tf.Tensor,
    kept: Any,
  ) -> list[tf.Tensor]:
    """Returns the update of a client; see `train`.

    Args:
      client: Its id, a string scalar, or its data set.
      weights: The global model.
      round_num: The number of the round.
      kept: What `StepContext.kept` holds.
    """
    if self.client_store is None:
      examples = client_batches.dataset_examples(client)
      # A data set has no id: its examples tell it from others.
      client = client_batches.data_fingerprint(examples)
    else:
      examples = self.client_store.read_client(client)
    return self.train(
      self.create_model(),
      weights,
      examples,
      seed=client_batches.client_seed(self.seed, round_num, client),
      round_num=round_num,
      kept=kept,
    )

  def train(
    self,
    model: tff.learning.models.VariableModel,
    weights: tff.learning.models.ModelWeights,
    examples: Any,
    *,
    seed: tf.Tensor,
    round_num: tf.Tensor,
    kept: Any = (),
  ) -> list[tf.Tensor]:
    """Returns the update of a client with these examples.

    It is not a `tf.function`: a `tf.function` would also run the model's
    metrics, as everything that changes a variable. So the order of reads and
    writes is given here.

    Source: Alg. 1 (FedAvg), lines 4-9: the local steps
    `x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q}` for `q = 0, ..., Q-1`, with the
    gradient for the direction `d_i^{t,q}` in the paper, and the update
    `x_i^{t,Q} - x^t`.

    Args:
      model: The model. Its trainable variables hold `x_i^{t,q}`, in place.
        Where it has `has_linear_loss`, a function of the examples, and that is
        true, all steps have one gradient: one step that is Q times as long
        takes their place, if the directions of `local_step` add up to it.
      weights: The global model, x^t, of tensors.
      examples: A structure of tensors with a leading dimension of examples.
      seed: The client's seed in the round, of the shape `[2]`.
      round_num: The number of the round, an `int32` scalar.
      kept: What `StepContext.kept` holds.

    Returns:
      The update, a list of tensors. The loss of a client without examples is
      0: the update is zeros, unless the client keeps something.
    """
    variables = model.trainable_variables
    start = list(weights.trainable)
    leaves = tf.nest.flatten(examples)
    num_examples = tf.shape(leaves[0])[0]
    indices = client_batches.batch_indices(
      tf.maximum(num_examples, 1), self.local_steps, self.batch_size, seed
    )
    has_examples = num_examples > 0
    keeps = self.keeping_step is not None
    if keeps:
      # A client without examples goes where what it keeps points.
      leaves = [_or_zeros(has_examples, leaf) for leaf in leaves]
      num_steps = tf.constant(self.local_steps)
    else:
      num_steps = tf.where(has_examples, self.local_steps, 0)
    step_size: float | tf.Tensor = self.client_learning_rate
    if self.local_step.adds_up and hasattr(model, 'has_linear_loss'):
      is_linear = has_examples & model.has_linear_loss(examples)
      num_steps = tf.where(is_linear, 1, num_steps)
      step_size = tf.where(
        is_linear,
        tf.constant(self.way, tf.float64),
        tf.constant(step_size, tf.float64),
      )

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
          has_loss=has_examples if keeps else None,
        )
        direction, memory = self.local_step.direction(context, memory)
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
      (first, self.local_step.begin(start)),
    )
    with after([done]):
      return [
        variable.read_value() - value
        for variable, value in zip(variables, start, strict=True)
      ]

  def create_model(self) -> tff.learning.models.VariableModel:
    """Returns a model to train, whose trainable variables hold zeros at first.

    They take the global model's values before any read, so that a random
    initial value would be lost work.
    """
    with tf.variable_creator_scope(_zeros_creator):
      return self.model_fn()


def _or_zeros(has_examples: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
  """Returns a tensor of examples; of one example of zeros if it has none."""
  return tf.cond(
    has_examples,
    lambda: tf.identity(leaf),
    lambda: tf.zeros(tf.concat([[1], tf.shape(leaf)[1:]], axis=0), leaf.dtype),
  )


def _zeros_creator(next_creator, **kwargs):
  """Creates trainable variables without the cost of a random initial value."""
  initial_value = kwargs['initial_value']
  if kwargs.get('trainable') and callable(initial_value):
    value = initial_value()
    kwargs['initial_value'] = lambda: tf.zeros(value.shape, value.dtype)
  return next_creator(**kwargs)
