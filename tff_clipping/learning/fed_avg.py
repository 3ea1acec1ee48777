"""Federated averaging with two step sizes, as a TFF learning process."""

import tensorflow_federated as tff

from tff_clipping.learning import fed_avg_round, keras_classes
from tff_clipping.learning.fed_avg_round import AggregationFactory
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.steps import LocalStep, Sgd
from tff_clipping.learning.untrained_variables import ModelFn


@keras_classes.kept
def build_fed_avg(
  model_fn: ModelFn,
  *,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  local_step: LocalStep = Sgd(),
  server_learning_rate: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  model_aggregator: AggregationFactory | None = None,
  client_store=None,
  seed: int = 0,
  measure_updates: bool = False,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg, and with another aggregator CE-FedAvg or DP-FedAvg.

  In round t each client of the cohort takes Q steps of exactly `batch_size`
  examples from the global model, and sends the difference:

      x_i^{t,q+1} = x_i^{t,q} - eta_l d_i^{t,q},   q = 0, ..., Q-1
      Delta x_i^t = x_i^{t,Q} - x^t
      x^{t+1} = x^t + eta_g aggregate_i(Delta x_i^t)

  The direction d_i^{t,q} is the gradient of the batch, as in the paper, or what
  another `local_step` finds. With no `model_aggregator` the aggregate is the
  mean. All clients have the same weight, whatever their number of examples.
  Examples are shuffled anew for every pass over them, from a seed of (`seed`,
  round, client), so that a run can be repeated; noise does not come from that
  seed.

  With `client_store`, `next` takes the ids of the clients of the cohort, and
  each client reads its own examples. Without, it takes a `tf.data.Dataset` of
  single examples for each client.

  Source: Alg. 1 (FedAvg) and, by the aggregator, Alg. CE-FedAvg (Sec. 2.1) and
  Alg. DP-FedAvg (Sec. 3).

  Args:
    model_fn: Returns a new `tff.learning.models.VariableModel`, as for the
      algorithms of `tff.learning.algorithms`. Its non-trainable variables,
      such as frozen layers, are sent to the clients with each model and do not
      change: a model whose steps would change them is refused, such as batch
      normalization in training.
    local_steps: Q, the number of local steps of a client in a round.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l, the local step size.
    local_step: Finds the direction of each local step, a
      `tff_clipping.learning.steps.LocalStep`: plain SGD, momentum, FedProx,
      SCAFFOLD, or one of your own. It does not change the guarantee, since clip
      and noise come later. It changes the length of the updates, and so how
      many are clipped.
    server_learning_rate: eta_g, the server's step size. 1 if neither it nor
      `server_optimizer` is given.
    server_optimizer: Applies the aggregate in place of the plain step, with the
      negative aggregate as its gradient. Its hyperparameters are those of the
      process (`get_hparams`, `set_hparams`).
    model_aggregator: Aggregates the updates. Unweighted factories, such as
      those of `tff_clipping.aggregators`, and weighted ones, which get the
      weight 1 for each client. `None` is `realized_mean_factory()`.
    client_store: Has the method `read_client(client_id)`, which returns the
      examples of a client as tensors with a leading dimension of examples, and
      the property `element_spec`, the `tf.TensorSpec`s of one example; for
      example `tff_clipping.programs.clients.client_store.ClientStore`.
    seed: The seed of the clients' shuffling.
    measure_updates: Whether the metrics hold, under `client_work`, the norm
      `update_norm` of each client's update before aggregation and its angle
      `angle_degrees` to the last global update (NaN in the first
      round), both in the order of the cohort; and under `aggregate` the same
      two of the aggregate. The clients' are exact: for simulations only, never
      for a private deployment.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, both `server_learning_rate` and
      `server_optimizer` are given, a step would change a non-trainable variable
      of the model, or the client store's examples are not what the model takes.
  """
  work = LocalWork(
    model_fn=model_fn,
    local_steps=local_steps,
    batch_size=batch_size,
    client_learning_rate=client_learning_rate,
    local_step=local_step,
    client_store=client_store,
    seed=seed,
  )
  return fed_avg_round.build_process(
    work,
    server_learning_rate=server_learning_rate,
    server_optimizer=server_optimizer,
    model_aggregator=model_aggregator,
    measure_updates=measure_updates,
  )
