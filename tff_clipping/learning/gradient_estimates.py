"""What Theorem 1 assumes of the clients' losses, measured on a real model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import client_rows
from tff_clipping.learning import client_batches, keras_classes
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.model_checks import ModelFn

MEASUREMENTS = (
  'loss',
  'largest_gradient_norm',
  'local_variance',
  'global_deviation',
  'local_smoothness',
  'global_smoothness',
)


class GradientEstimates(NamedTuple):
  """Two TFF computations, the first of which feeds the second.

  Attributes:
    mean_gradient: The gradient of f at the server:
      (ModelWeights@SERVER, {string}@CLIENTS) -> trainable weights@SERVER.
    measure: A value of each of `MEASUREMENTS` for each client, in order:
      (ModelWeights@SERVER, ModelWeights@SERVER, trainable weights@SERVER,
      int32@SERVER, {string}@CLIENTS) -> <loss=float32[P], ...>@SERVER,
      of the model x, another model y, the gradient of f at x, the round t and
      the clients' ids.
  """

  mean_gradient: tff.Computation
  measure: tff.Computation


@keras_classes.kept
def build_gradient_estimates(
  model_fn: ModelFn,
  *,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  client_store,
  seed: int = 0,
) -> GradientEstimates:
  """Builds what measures the gradients of clients at and around a model.

  f_i is the mean loss of client i's examples, and f = 1/N sum_i f_i the MEAN of
  the clients' losses, each with the same weight: the proof of Theorem 1 takes
  it so, while Eq. (1) has the sum. Along the Q local steps x_i^q from x, with
  stochastic gradients g_i^q, a client measures

      loss                   f_i(x)
      largest_gradient_norm  max_q ||g_i^q||
      local_variance         1/Q sum_q ||g_i^q - grad f_i(x_i^q)||^2
      global_deviation       ||grad f_i(x) - grad f(x)||
      local_smoothness       max_q ||grad f_i(x_i^{q+1}) - grad f_i(x_i^q)||
                                   / ||x_i^{q+1} - x_i^q||
      global_smoothness      ||grad f_i(x) - grad f_i(y)|| / ||x - y||

  The theorem's G, sigma_l, sigma_g and L bound these for all models and all
  clients, so that any number of measurements gives lower estimates of them. The
  two ratios are 0 where their points are equal. Only scalars leave the clients
  in `measure`, but they are exact, and so is `mean_gradient`: for simulations
  only. Every client must have examples.

  Args:
    model_fn: See `build_fed_avg`.
    local_steps: Q.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l.
    client_store: Reads a client's examples by its id; see `build_fed_avg`.
    seed: The seed of the run.

  Returns:
    The computations.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, or the store's examples are not
      what the model takes.

  Source: the assumptions of Theorem 1.
  """
  work = LocalWork(
    model_fn=model_fn,
    local_steps=local_steps,
    batch_size=batch_size,
    client_learning_rate=client_learning_rate,
    client_store=client_store,
    seed=seed,
  )
  weights_type = work.weights_type

  @tff.tensorflow.computation(np.str_, weights_type)
  def client_gradient(client_id, weights):
    differentiate = _build_gradient(work.create_model(), weights)
    examples = tf.nest.flatten(work.read(client_id))
    return differentiate(list(weights.trainable), examples)[1]

  @tff.federated_computation(
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def mean_gradient(weights, client_ids):
    gradients = tff.federated_map(
      client_gradient, (client_ids, tff.federated_broadcast(weights))
    )
    return tff.federated_mean(gradients)

  gradient_type = mean_gradient.type_signature.result.member

  @tff.tensorflow.computation(
    np.str_, weights_type, weights_type, gradient_type, np.int32
  )
  def client_row(client_id, weights, other, mean_gradient, round_num):
    examples = work.read(client_id)
    measure_path = _build_path_measurement(work, weights)
    return measure_path(
      list(weights.trainable),
      list(other.trainable),
      list(mean_gradient),
      tf.nest.flatten(examples),
      work.client_seed(client_id, examples, round_num),
    )

  @tff.federated_computation(
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(gradient_type, tff.SERVER),
    tff.FederatedType(np.int32, tff.SERVER),
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def measure(weights, other, mean_gradient, round_num, client_ids):
    rows = tff.federated_map(
      client_row,
      (
        client_ids,
        tff.federated_broadcast(weights),
        tff.federated_broadcast(other),
        tff.federated_broadcast(mean_gradient),
        tff.federated_broadcast(round_num),
      ),
    )
    return client_rows.collect(rows, MEASUREMENTS)

  return GradientEstimates(mean_gradient, measure)


def _build_gradient(
  model: tff.learning.models.VariableModel,
  weights: tff.learning.models.ModelWeights,
) -> Callable[..., tuple[tf.Tensor, Sequence[tf.Tensor]]]:
  """Returns a function of model and examples: their mean loss and gradient.

  Args:
    model: Holds the model.
    weights: Has the values of what is not trained.
  """
  variables = model.trainable_variables

  @tf.function
  def differentiate(values, examples):
    for variable, value in zip(
      [*variables, *model.non_trainable_variables],
      [*values, *weights.non_trainable],
      strict=True,
    ):
      variable.assign(value)
    batch = tf.nest.pack_sequence_as(model.input_spec, examples)
    with tf.GradientTape() as tape:
      loss = model.forward_pass(batch, training=True).loss
    gradients = tape.gradient(
      loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

  return differentiate


def _build_path_measurement(
  work: LocalWork, weights: tff.learning.models.ModelWeights
) -> Callable[..., tf.Tensor]:
  """Returns a function that makes a client's row of `MEASUREMENTS`.

  Args:
    work: What a client does.
    weights: Has the values of what is not trained.
  """
  differentiate = _build_gradient(work.create_model(), weights)

  @tf.function
  def measure(global_model, other, mean_gradient, examples, seed):
    indices = client_batches.batch_indices(
      tf.shape(examples[0])[0], work.local_steps, work.batch_size, seed
    )
    loss, gradient = differentiate(global_model, examples)
    _, other_gradient = differentiate(other, examples)
    global_deviation = _distance(gradient, mean_gradient)
    global_smoothness = tf.math.divide_no_nan(
      _distance(gradient, other_gradient), _distance(global_model, other)
    )
    local_model = global_model
    largest = variance = smoothness = tf.constant(0.0)
    for step in tf.range(work.local_steps):
      batch = [tf.gather(leaf, indices[step]) for leaf in examples]
      _, drawn = differentiate(local_model, batch)
      stepped = [
        x - work.client_learning_rate * g
        for x, g in zip(local_model, drawn, strict=True)
      ]
      _, next_gradient = differentiate(stepped, examples)
      largest = tf.maximum(largest, _norm(drawn))
      variance += tf.square(_distance(drawn, gradient)) / work.local_steps
      ratio = tf.math.divide_no_nan(
        _distance(next_gradient, gradient), _distance(stepped, local_model)
      )
      smoothness = tf.maximum(smoothness, ratio)
      local_model, gradient = stepped, next_gradient
    return tf.stack(
      [
        tf.cast(loss, tf.float32),
        largest,
        variance,
        global_deviation,
        smoothness,
        global_smoothness,
      ]
    )

  return measure


def _distance(
  left: Sequence[tf.Tensor], right: Sequence[tf.Tensor]
) -> tf.Tensor:
  return _norm([a - b for a, b in zip(left, right, strict=True)])


def _norm(values: Sequence[tf.Tensor]) -> tf.Tensor:
  return tf.linalg.global_norm([tf.cast(v, tf.float32) for v in values])
