"""The norm of a client's expected update, from repeated local runs."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import client_rows
from tff_clipping.learning import keras_classes
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.model_checks import ModelFn
from tff_clipping.learning.steps.local_step import LocalStep
from tff_clipping.learning.steps.sgd import Sgd


@keras_classes.kept
def build_update_estimates(
  model_fn: ModelFn,
  *,
  num_repeats: int,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  local_step: LocalStep = Sgd(),
  client_store,
  seed: int = 0,
) -> tff.Computation:
  """Builds the computation that estimates ||E[Delta x_i^t]|| of each client.

  The result has the type

      (ModelWeights@SERVER, int32@SERVER, {string}@CLIENTS) ->
      <expected_norm=float32[P]>@SERVER

  for the global model x^t, the round t and the ids of the cohort, in the order
  of the cohort. With it, the factor of Theorem 1 is

      alpha~_i^t = c / max(c, ||E[Delta x_i^t]||).

  Each client makes its update R times from the one model, with shuffles of its
  own that are neither those of the round itself nor those of other repeats. The
  expectation is over these shuffles, given x^t. With D_r the updates and m
  their mean,

      ||E[Delta x]||^2 ~ (R ||m||^2 - 1/R sum_r ||D_r||^2) / (R - 1),

  which is right on average, where ||m||^2 alone is too large by the variance
  over R; below 0 it is taken for 0. Only scalars leave the clients, but they
  are exact: for simulations only. A call costs R times the clients' work of a
  round.

  Args:
    model_fn: See `build_fed_avg`.
    num_repeats: R, at least 2.
    local_steps: Q, the number of local steps of a client in a round.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l, the local step size.
    local_step: Finds the direction of each local step; see `build_fed_avg`.
    client_store: Reads a client's examples by its id; see `build_fed_avg`.
    seed: The seed of the run.

  Returns:
    The computation.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, or the store's examples are not
      what the model takes.

  Source: Theorem 1, the definition of alpha~_i^t.
  """
  argument_checks.check_integer('num_repeats', num_repeats, at_least=2)
  work = LocalWork(
    model_fn=model_fn,
    local_steps=local_steps,
    batch_size=batch_size,
    client_learning_rate=client_learning_rate,
    local_step=local_step,
    client_store=client_store,
    seed=seed,
  )
  weights_type = work.weights_type

  @tff.tensorflow.computation(np.str_, weights_type, np.int32)
  def measure(client_id, weights, round_num):
    train = work.build_training()
    examples = work.read(client_id)
    client_seed = work.client_seed(client_id, examples, round_num)

    def repeat(number: tf.Tensor) -> Sequence[tf.Tensor]:
      return train(
        weights,
        examples,
        tf.random.experimental.stateless_fold_in(client_seed, number),
        round_num,
      )

    zeros = [tf.zeros_like(weight) for weight in weights.trainable]
    return expected_norm(repeat, zeros, num_repeats)[tf.newaxis]

  @tff.federated_computation(
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(np.int32, tff.SERVER),
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def estimate(weights, round_num, client_ids):
    rows = tff.federated_map(
      measure,
      (
        client_ids,
        tff.federated_broadcast(weights),
        tff.federated_broadcast(round_num),
      ),
    )
    return client_rows.collect(rows, ['expected_norm'])

  return estimate


def expected_norm(repeat, zeros: Sequence[tf.Tensor], num_repeats: int):
  """Returns an estimate of the norm of the mean of what `repeat` draws.

  Args:
    repeat: A function of the number of the draw, an `int32` scalar from 0, that
      returns a list of tensors.
    zeros: Zeros of the shapes that it returns.
    num_repeats: R, the number of draws, at least 2.

  Returns:
    A `float32` scalar; see `build_update_estimates` for the formula.
  """

  def add(number, total, squares):
    # One after the other: they may share variables.
    with tf.control_dependencies([squares]):
      drawn = repeat(number)
    total = [a + b for a, b in zip(total, drawn, strict=True)]
    return number + 1, total, squares + _squared_norm(drawn)

  _, total, squares = tf.while_loop(
    lambda number, *_: number < num_repeats,
    add,
    (tf.constant(0), list(zeros), tf.constant(0.0, tf.float64)),
    parallel_iterations=1,
  )
  # R^2 ||m||^2 - sum_r ||D_r||^2 is the sum of the inner products of each two.
  products = _squared_norm(total) - squares
  square = products / (num_repeats * (num_repeats - 1))
  return tf.cast(tf.sqrt(tf.maximum(square, 0.0)), tf.float32)


def _squared_norm(value: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns the squared norm in float64, where differences keep digits."""
  return tf.add_n(
    [tf.reduce_sum(tf.square(tf.cast(v, tf.float64))) for v in value]
  )
