"""A round of FedAvg, from one global model to the next.

As Alg. 1 has it: the server broadcasts the model, each client takes its local
steps and sends the difference, the server aggregates and takes a step.

The process takes for each client its id, or its data set of examples. For a
`KeepingStep` it takes a structure of `client`, the id or data set, and `kept`,
what the client keeps. Then the measurement `kept` holds what the clients keep
next, in their order, for the store on the trusted side.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import client_rows, l2_clip, means
from tff_clipping.learning import update_measurements
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.steps import Kept

AggregationFactory: TypeAlias = (
  tff.aggregators.UnweightedAggregationFactory
  | tff.aggregators.WeightedAggregationFactory
)


class ClientWorkState(NamedTuple):
  """What the server keeps for the clients' work.

  Attributes:
    round_num: The number of rounds done, t.
    previous_model: The trainable weights of the last round, x^{t-1}; empty
      unless updates are measured.
    made_of_releases: What the server shares for a `KeepingStep`, which it makes
      of what is released; empty for other steps.
  """

  round_num: Any
  previous_model: Any
  made_of_releases: Any


class Sender(NamedTuple):
  """What a client sends in place of its update.

  Attributes:
    send: A function of the update and the global model, both lists of tensors.
      It returns what is sent, of the same shapes, and a list of scalars.
    measurement_names: The names of these scalars in the measurements, where
      updates are measured.
    receive: A function, at the server, of the mean of what was sent and the
      global model, both lists of tensors. It returns the mean update. `None`
      if the mean of what was sent is the mean update.
  """

  send: Callable[
    [Sequence[tf.Tensor], Sequence[tf.Tensor]],
    tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]],
  ]
  measurement_names: tuple[str, ...] = ()
  receive: (
    Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Sequence[tf.Tensor]]
    | None
  ) = None


def build_process(
  work: LocalWork,
  *,
  server_learning_rate: float | None,
  server_optimizer: tff.learning.optimizers.Optimizer | None,
  model_aggregator: AggregationFactory | None,
  measure_updates: bool,
  sender: Sender | None = None,
) -> tff.learning.templates.LearningProcess:
  """Builds the process whose `next` is a round.

  `tff.learning.templates.compose_learning_process` does the same for client
  work on data sets; its state and metrics are kept here, for client ids too.

  Args:
    work: What a client does.
    server_learning_rate: eta_g.
    server_optimizer: In place of `server_learning_rate`.
    model_aggregator: Aggregates what the clients send.
    measure_updates: Whether to measure the clients' updates.
    sender: What a client sends in place of its update.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, or arguments do not fit together.
  """
  if not isinstance(measure_updates, bool):
    raise TypeError(
      f'`measure_updates` must be True or False, found {measure_updates!r}.'
    )
  optimizer = _server_optimizer(server_learning_rate, server_optimizer)
  factory = _weighted(model_aggregator)

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights.from_model(work.model_fn())

  weights_type = initial_weights.type_signature.result
  model_type = weights_type.trainable
  aggregator = factory.create(model_type, tff.TensorType(np.float32))
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
    optimizer, weights_type
  )
  server = _build_server_work(work, weights_type, measure_updates)
  work_at_client = _build_client_work(
    work, weights_type, server, measure_updates, sender
  )

  @tff.tensorflow.computation(model_type)
  def negate(update):
    return tf.nest.map_structure(tf.negative, update)

  @tff.tensorflow.computation(model_type, weights_type)
  def receive(mean, weights):
    if sender is None or sender.receive is None:
      return mean
    return sender.receive(list(mean), list(weights.trainable))

  State = tff.learning.templates.LearningAlgorithmState

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      State(
        global_model_weights=tff.federated_eval(initial_weights, tff.SERVER),
        distributor=tff.federated_value((), tff.SERVER),
        client_work=tff.federated_eval(server.initial_state, tff.SERVER),
        aggregator=aggregator.initialize(),
        finalizer=finalizer.initialize(),
      )
    )

  state_type = initialize.type_signature.result
  client_type = tff.FederatedType(
    work_at_client.type_signature.parameter[0], tff.CLIENTS
  )

  @tff.federated_computation(state_type, client_type)
  def next_fn(state, clients):
    weights, work_state = state.global_model_weights, state.client_work
    result, measured, kept = tff.federated_map(
      work_at_client,
      (
        clients,
        tff.federated_broadcast(work_state.round_num),
        tff.federated_broadcast(weights),
        tff.federated_broadcast(
          tff.federated_map(server.last_direction, (work_state, weights))
        ),
        tff.federated_broadcast(work_state.made_of_releases),
      ),
    )
    aggregated = aggregator.next(
      state.aggregator, result.update, result.update_weight
    )
    update = tff.federated_map(receive, (aggregated.result, weights))
    # TFF's optimizers go against a gradient: the negative update.
    finalized = finalizer.next(
      state.finalizer, weights, tff.federated_map(negate, update)
    )
    new_state = tff.federated_zip(
      State(
        global_model_weights=finalized.result,
        distributor=state.distributor,
        client_work=tff.federated_map(
          server.next_state, (work_state, weights, update)
        ),
        aggregator=aggregated.state,
        finalizer=finalized.state,
      )
    )
    work_metrics = collections.OrderedDict()
    if measure_updates:
      rows = client_rows.stack(measured)
      for name in tff.structure.name_list(measured.type_signature.member):
        work_metrics[name] = rows[name]
    # Where TFF's algorithms have their training metrics, and where
    # `tff.learning.programs.train_model` asks for them. There are none here.
    work_metrics['train'] = tff.federated_value(
      collections.OrderedDict(), tff.SERVER
    )
    if work.keeping_step is not None:
      work_metrics['kept'] = client_rows.stack(kept)
    metrics = collections.OrderedDict(
      client_work=tff.federated_zip(work_metrics),
      aggregator=aggregated.measurements,
      finalizer=finalized.measurements,
    )
    if measure_updates:
      metrics['aggregate'] = tff.federated_map(
        server.measure, (update, weights, work_state)
      )
    return tff.learning.templates.LearningProcessOutput(
      new_state, tff.federated_zip(metrics)
    )

  @tff.tensorflow.computation(state_type.member)
  def get_model_weights(state):
    return state.global_model_weights

  @tff.tensorflow.computation(state_type.member, weights_type)
  def set_model_weights(state, weights):
    return state._replace(global_model_weights=weights)

  # Of the server's step alone: the clients' rate is a constant.
  @tff.tensorflow.computation(state_type.member)
  def get_hparams(state):
    return collections.OrderedDict(
      finalizer=finalizer.get_hparams(state.finalizer)
    )

  @tff.tensorflow.computation(
    state_type.member, get_hparams.type_signature.result
  )
  def set_hparams(state, hparams):
    return state._replace(
      finalizer=finalizer.set_hparams(state.finalizer, hparams['finalizer'])
    )

  return tff.learning.templates.LearningProcess(
    initialize,
    next_fn,
    get_model_weights,
    set_model_weights,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


class _ServerWork(NamedTuple):
  """What the server does for the clients' work: computations.

  Attributes:
    initial_state: Returns the `ClientWorkState` before the first round.
    last_direction: Of the state and the weights: for the clients' angles.
    next_state: Of the state, the weights and the mean update.
    measure: Of the mean update, the weights and the state.
  """

  initial_state: tff.Computation
  last_direction: tff.Computation
  next_state: tff.Computation
  measure: tff.Computation


def _build_server_work(
  work: LocalWork,
  weights_type: tff.StructWithPythonType,
  measure_updates: bool,
) -> _ServerWork:
  """Returns what the server does before the clients work, and after."""
  step = work.keeping_step
  model_type, nothing = weights_type.trainable, tff.to_type([])
  state_type = tff.to_type(
    ClientWorkState(
      np.int32,
      model_type if measure_updates else nothing,
      model_type if step is not None and step.shares else nothing,
    )
  )

  @tff.tensorflow.computation
  def initial_state():
    return tff.types.structure_from_tensor_type_tree(
      lambda t: tf.zeros(t.shape, t.dtype), state_type
    )

  @tff.tensorflow.computation(state_type, weights_type)
  def last_direction(state, weights):
    if not measure_updates:
      return []
    return update_measurements.last_direction(
      weights.trainable, state.previous_model, state.round_num
    )

  @tff.tensorflow.computation(state_type, weights_type, model_type)
  def next_state(state, weights, update):
    shared = list(state.made_of_releases)
    if step is not None and step.shares:
      update = list(update)
      # An update that is not finite leaves the model as it is.
      shared = _if_finite(
        update, step.share(update, shared, way=work.way), shared
      )
    return ClientWorkState(
      state.round_num + 1, weights.trainable if measure_updates else [], shared
    )

  @tff.tensorflow.computation(model_type, weights_type, state_type)
  def measure(update, weights, state):
    if not measure_updates:
      return collections.OrderedDict()
    measured = update_measurements.norm_and_angle(
      update, last_direction(state, weights)
    )
    return collections.OrderedDict(
      zip(update_measurements.NAMES, tf.unstack(measured), strict=True)
    )

  return _ServerWork(initial_state, last_direction, next_state, measure)


def _build_client_work(
  work: LocalWork,
  weights_type: tff.StructWithPythonType,
  server: _ServerWork,
  measure_updates: bool,
  sender: Sender | None,
) -> tff.Computation:
  """Returns what a client does with what the server broadcasts.

  Of the client, the number of the round, the model, the direction of the last
  update and what the server shares, it makes a `ClientResult`, a row of
  measurements, and what the client keeps next.
  """
  step = work.keeping_step
  client_type = work.client_type
  if step is not None:
    client_type = tff.to_type(
      collections.OrderedDict(client=client_type, kept=weights_type.trainable)
    )

  @tff.tensorflow.computation(
    client_type,
    np.int32,
    weights_type,
    server.last_direction.type_signature.result,
    server.initial_state.type_signature.result.made_of_releases,
  )
  def work_at_client(client, round_num, weights, direction, shared):
    kept, kept_next, measured = (), (), ()
    if step is not None:
      kept = Kept(list(client['kept']), list(shared))
      client = client['client']
    update = work.make_update(client, weights, round_num, kept)
    sent = update
    if step is not None:
      # It zeroes what is not finite.
      sent = l2_clip.clip_by_l2_norm(
        list(step.send(update, kept)), step.clipping_norm
      ).value
      kept_next = step.keep(update, sent, kept, way=work.way)
      # NaN would be kept for ever, and end each later update of the client.
      kept_next = _if_finite(kept_next, kept_next, kept.own)
    elif sender is not None:
      sent, measured = sender.send(update, list(weights.trainable))
    row = collections.OrderedDict()
    if measure_updates:
      names = update_measurements.NAMES
      names += sender.measurement_names if sender is not None else ()
      norm_and_angle = update_measurements.norm_and_angle(update, direction)
      numbers = [*tf.unstack(norm_and_angle), *measured]
      for name, number in zip(names, numbers, strict=True):
        row[name] = tf.cast(number, tf.float32)
    result = tff.learning.templates.ClientResult(sent, tf.constant(1.0))
    return result, row, kept_next

  return work_at_client


def _if_finite(
  values: Sequence[tf.Tensor],
  after: Sequence[tf.Tensor],
  before: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
  """Returns `after` if all of some values are finite, else `before`."""
  is_finite = tf.reduce_all(
    [tf.reduce_all(tf.math.is_finite(value)) for value in values]
  )
  return [
    tf.where(is_finite, new, old)
    for new, old in zip(after, before, strict=True)
  ]


def _server_optimizer(
  learning_rate: float | None,
  optimizer: tff.learning.optimizers.Optimizer | None,
) -> tff.learning.optimizers.Optimizer:
  """Returns what applies the mean update; a plain step by default."""
  if optimizer is None:
    learning_rate = 1.0 if learning_rate is None else learning_rate
    argument_checks.check_positive('server_learning_rate', learning_rate)
    return tff.learning.optimizers.build_sgdm(float(learning_rate))
  if not isinstance(optimizer, tff.learning.optimizers.Optimizer):
    raise TypeError(
      '`server_optimizer` must be a `tff.learning.optimizers.Optimizer`, found '
      f'{optimizer!r}.'
    )
  if learning_rate is not None:
    raise ValueError(
      '`server_learning_rate` and `server_optimizer` exclude each other: give '
      'the optimizer its own learning rate.'
    )
  return optimizer


def _weighted(factory) -> tff.aggregators.WeightedAggregationFactory:
  if factory is None:
    factory = means.realized_mean_factory()
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    return tff.aggregators.as_weighted_aggregator(factory)
  if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
    return factory
  raise TypeError(
    '`model_aggregator` must be an aggregation factory, such as '
    f'`tff_clipping.aggregators.clipped_mean_factory`, found {factory!r}.'
  )
