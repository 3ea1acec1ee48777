"""Builds the learning processes of this package from their parts.

`build_fed_avg` and `build_model_clipping_fed_avg` describe the algorithms; what
they have in common is here.
"""

import collections
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import means
from tff_clipping.learning import client_work as client_work_lib
from tff_clipping.learning import update_measurements
from tff_clipping.learning.client_work import Sender
from tff_clipping.learning.local_work import LocalWork

AggregationFactory: TypeAlias = (
  tff.aggregators.UnweightedAggregationFactory
  | tff.aggregators.WeightedAggregationFactory
)


def build_learning_process(
  work: LocalWork,
  *,
  server_learning_rate: float | None,
  server_optimizer: tff.learning.optimizers.Optimizer | None,
  model_aggregator: AggregationFactory | None,
  measure_updates: bool,
  sender: Sender | None = None,
) -> tff.learning.templates.LearningProcess:
  """Builds a process of local steps, aggregation and a server's step.

  Args:
    work: What a client does.
    server_learning_rate: eta_g.
    server_optimizer: In place of `server_learning_rate`.
    model_aggregator: Aggregates what the clients send.
    measure_updates: Whether to measure the clients' updates.
    sender: What a client sends in place of its update; the update itself if not
      given.

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
  if server_optimizer is not None and not isinstance(
    server_optimizer, tff.learning.optimizers.Optimizer
  ):
    raise TypeError(
      '`server_optimizer` must be a `tff.learning.optimizers.Optimizer`, found '
      f'{server_optimizer!r}.'
    )
  if server_learning_rate is not None and server_optimizer is not None:
    raise ValueError(
      '`server_learning_rate` and `server_optimizer` exclude each other: give '
      'the optimizer its own learning rate.'
    )
  if server_optimizer is None:
    if server_learning_rate is None:
      server_learning_rate = 1.0
    argument_checks.check_positive('server_learning_rate', server_learning_rate)
    server_optimizer = tff.learning.optimizers.build_sgdm(
      float(server_learning_rate)
    )
  factory = _weighted(model_aggregator)

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights.from_model(work.model_fn())

  weights_type = initial_weights.type_signature.result
  client_work = client_work_lib.build_client_work(
    work, weights_type, measure_updates=measure_updates, sender=sender
  )
  aggregator = factory.create(
    weights_type.trainable, tff.TensorType(tf.float32.as_numpy_dtype)
  )
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
    server_optimizer, weights_type
  )
  return _compose(
    initial_weights,
    client_work,
    aggregator,
    finalizer,
    measure_updates,
    receive=None if sender is None else sender.receive,
    sharing=client_work_lib.build_sharing(
      work, client_work.state_type.member, weights_type
    ),
  )


def _compose(
  initial_weights: tff.Computation,
  client_work: tff.templates.MeasuredProcess,
  aggregator: tff.templates.AggregationProcess,
  finalizer: tff.learning.templates.FinalizerProcess,
  measure_updates: bool,
  *,
  receive: Callable | None,
  sharing: client_work_lib.Sharing | None,
) -> tff.learning.templates.LearningProcess:
  """Puts the parts of a round together.

  `tff.learning.templates.compose_learning_process` does the same for client
  work on data sets; its state and metrics are kept here, for client ids too.
  """
  State = tff.learning.templates.LearningAlgorithmState
  weights_type = initial_weights.type_signature.result

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      State(
        global_model_weights=tff.federated_eval(initial_weights, tff.SERVER),
        distributor=tff.federated_value((), tff.SERVER),
        client_work=client_work.initialize(),
        aggregator=aggregator.initialize(),
        finalizer=finalizer.initialize(),
      )
    )

  @tff.tensorflow.computation(weights_type.trainable)
  def negate(update):
    return tf.nest.map_structure(tf.negative, update)

  to_update = None
  if receive is not None:

    @tff.tensorflow.computation(weights_type.trainable, weights_type)
    def to_update(mean, weights):
      return receive(list(mean), list(weights.trainable))

  state_type = initialize.type_signature.result
  data_type = client_work.next.type_signature.parameter[2]

  @tff.federated_computation(state_type, data_type)
  def next_fn(state, client_data):
    weights = state.global_model_weights
    worked = client_work.next(state.client_work, weights, client_data)
    aggregated = aggregator.next(
      state.aggregator, worked.result.update, worked.result.update_weight
    )
    aggregate = aggregated.result
    if to_update is not None:
      aggregate = tff.federated_map(to_update, (aggregate, weights))
    work_state, moved = worked.state, aggregate
    if sharing is not None:
      work_state = tff.federated_map(sharing.share, (work_state, aggregate))
      moved = tff.federated_map(sharing.move, (work_state, aggregate))
    # TFF's optimizers go against a gradient: the negative update.
    finalized = finalizer.next(
      state.finalizer, weights, tff.federated_map(negate, moved)
    )
    new_state = tff.federated_zip(
      State(
        global_model_weights=finalized.result,
        distributor=state.distributor,
        client_work=work_state,
        aggregator=aggregated.state,
        finalizer=finalized.state,
      )
    )
    metrics = collections.OrderedDict(
      client_work=worked.measurements,
      aggregator=aggregated.measurements,
      finalizer=finalized.measurements,
    )
    if measure_updates:
      metrics['aggregate'] = update_measurements.measure_at_server(
        aggregate, weights, state.client_work
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
