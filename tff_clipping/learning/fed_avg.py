"""Federated averaging with two step sizes, as a TFF learning process."""

import collections
import math
import numbers

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.learning import client_work as client_work_lib
from tff_clipping.learning import update_measurements
from tff_clipping.learning.client_work import ModelFn

AggregationFactory = (
  tff.aggregators.UnweightedAggregationFactory
  | tff.aggregators.WeightedAggregationFactory
)


def build_fed_avg(
  model_fn: ModelFn,
  *,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  server_learning_rate: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  model_aggregator: AggregationFactory | None = None,
  client_store=None,
  seed: int = 0,
  measure_updates: bool = False,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg, and with another aggregator CE-FedAvg or DP-FedAvg.

  In round t each client of the cohort takes Q SGD steps of exactly `batch_size`
  examples from the global model, and sends the difference:

      x_i^{t,q+1} = x_i^{t,q} - eta_l g_i^{t,q},   q = 0, ..., Q-1
      Delta x_i^t = x_i^{t,Q} - x^t
      x^{t+1} = x^t + eta_g aggregate_i(Delta x_i^t)

  With no `model_aggregator` the aggregate is the mean. All clients have the
  same weight, whatever their number of examples. Examples are shuffled anew for
  every pass over them, from a seed of (`seed`, round, client), so that a run can
  be repeated; noise does not come from that seed.

  With `client_store`, `next` takes the ids of the clients of the cohort, and
  each client reads its own examples. Without, it takes a `tf.data.Dataset` of
  single examples for each client.

  Source: Alg. 1 (FedAvg) and, by the aggregator, Alg. CE-FedAvg (Sec. 2.1) and
  Alg. DP-FedAvg (Sec. 3).

  Args:
    model_fn: Returns a new `tff.learning.models.VariableModel`, as for the
      algorithms of `tff.learning.algorithms`. It may have no non-trainable
      variables.
    local_steps: Q, the number of local steps of a client in a round.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l, the local step size.
    server_learning_rate: eta_g, the server's step size. 1 if neither it nor
      `server_optimizer` is given.
    server_optimizer: Applies the aggregate in place of the plain step, with the
      negative aggregate as its gradient.
    model_aggregator: Aggregates the updates. Unweighted factories, such as
      those of `tff_clipping.aggregators`, and weighted ones, which get the
      weight 1 for each client.
    client_store: Has the method `read_client(client_id)`, which returns the
      examples of a client as tensors with a leading dimension of examples, and
      the property `element_spec`, the `tf.TensorSpec`s of one example; for
      example `tff_clipping.programs.client_store.ClientStore`.
    seed: The seed of the clients' shuffling.
    measure_updates: Whether the metrics hold, under `client_work`, the norm
      `update_norm` of each client's update before aggregation and its angle
      `update_angle` in degrees to the last global update (NaN in the first
      round), both in the order of the cohort; and under `aggregate` the same
      two of the aggregate. The clients' are exact: for simulations only, never
      for a private deployment.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, both `server_learning_rate` and
      `server_optimizer` are given, the model has non-trainable variables, or
      the client store's examples are not what the model takes.
  """
  _check_positive_integer('local_steps', local_steps)
  _check_positive_integer('batch_size', batch_size)
  _check_positive_number('client_learning_rate', client_learning_rate)
  _check_seed(seed)
  if server_learning_rate is not None and server_optimizer is not None:
    raise ValueError(
      '`server_learning_rate` and `server_optimizer` exclude each other: give '
      'the optimizer its own learning rate.'
    )
  if server_optimizer is None:
    if server_learning_rate is None:
      server_learning_rate = 1.0
    _check_positive_number('server_learning_rate', server_learning_rate)
    server_optimizer = tff.learning.optimizers.build_sgdm(
      float(server_learning_rate)
    )
  if not isinstance(server_optimizer, tff.learning.optimizers.Optimizer):
    raise TypeError(
      '`server_optimizer` must be a `tff.learning.optimizers.Optimizer`, found '
      f'{server_optimizer!r}.'
    )
  factory = _weighted(model_aggregator)
  _check_model(model_fn, client_store)

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights.from_model(model_fn())

  weights_type = initial_weights.type_signature.result
  client_work = client_work_lib.build_client_work(
    model_fn,
    weights_type,
    local_steps=int(local_steps),
    batch_size=int(batch_size),
    client_learning_rate=float(client_learning_rate),
    client_store=client_store,
    seed=int(seed),
    measure_updates=measure_updates,
  )
  aggregator = factory.create(
    weights_type.trainable, tff.TensorType(tf.float32.as_numpy_dtype)
  )
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
    server_optimizer, weights_type
  )
  return _compose(
    initial_weights, client_work, aggregator, finalizer, measure_updates
  )


def _compose(
  initial_weights: tff.Computation,
  client_work: tff.templates.MeasuredProcess,
  aggregator: tff.templates.AggregationProcess,
  finalizer: tff.learning.templates.FinalizerProcess,
  measure_updates: bool,
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

  state_type = initialize.type_signature.result
  data_type = client_work.next.type_signature.parameter[2]

  @tff.federated_computation(state_type, data_type)
  def next_fn(state, client_data):
    weights = state.global_model_weights
    worked = client_work.next(state.client_work, weights, client_data)
    aggregated = aggregator.next(
      state.aggregator, worked.result.update, worked.result.update_weight
    )
    # TFF's optimizers go against a gradient: the negative update.
    finalized = finalizer.next(
      state.finalizer, weights, tff.federated_map(negate, aggregated.result)
    )
    new_state = tff.federated_zip(
      State(
        global_model_weights=finalized.result,
        distributor=state.distributor,
        client_work=worked.state,
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
        aggregated.result, weights, state.client_work
      )
    return tff.learning.templates.LearningProcessOutput(
      new_state, tff.federated_zip(metrics)
    )

  @tff.tensorflow.computation(state_type.member)
  def get_model_weights(state):
    return state.global_model_weights

  @tff.tensorflow.computation(state_type.member, weights_type)
  def set_model_weights(state, weights):
    return State(
      global_model_weights=weights,
      distributor=state.distributor,
      client_work=state.client_work,
      aggregator=state.aggregator,
      finalizer=state.finalizer,
    )

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


def _weighted(factory) -> tff.aggregators.WeightedAggregationFactory:
  if factory is None:
    factory = tff.aggregators.UnweightedMeanFactory()
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    return tff.aggregators.as_weighted_aggregator(factory)
  if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
    return factory
  raise TypeError(
    '`model_aggregator` must be an aggregation factory, such as '
    f'`tff_clipping.aggregators.clipped_mean_factory`, found {factory!r}.'
  )


def _check_model(model_fn: ModelFn, client_store) -> None:
  if not callable(model_fn):
    raise TypeError(
      '`model_fn` must be a function that returns a '
      f'`tff.learning.models.VariableModel`, found {model_fn!r}.'
    )
  with tf.Graph().as_default():
    model = model_fn()
  if not isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      '`model_fn` must return a `tff.learning.models.VariableModel`, found '
      f'{type(model)}; wrap a Keras model with '
      '`tff.learning.models.from_keras_model`.'
    )
  if model.non_trainable_variables:
    names = ', '.join(v.name for v in model.non_trainable_variables)
    raise ValueError(
      '`model_fn` must return a model without non-trainable variables, found '
      f"{names}. They are no part of a client's update: nothing would clip, "
      'noise or average them. Use `tf.keras.layers.GroupNormalization` in place '
      'of batch normalization.'
    )
  if client_store is None:
    return
  expected = tf.nest.flatten(model.input_spec)
  found = tf.nest.flatten(client_store.element_spec)
  if len(expected) != len(found) or not all(
    e.dtype == f.dtype and e.shape[1:].is_compatible_with(f.shape)
    for e, f in zip(expected, found, strict=True)
  ):
    raise ValueError(
      '`client_store` must hold the examples that the model takes, found '
      f'{client_store.element_spec} for a model of {model.input_spec}.'
    )


def _check_positive_integer(name: str, value) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if value < 1:
    raise ValueError(f'`{name}` must be at least 1, found {value}.')


def _check_positive_number(name: str, value) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  if not (value > 0 and math.isfinite(value)):
    raise ValueError(f'`{name}` must be positive and finite, found {value}.')


def _check_seed(seed) -> None:
  if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
    raise TypeError(f'`seed` must be an integer, found {seed!r}.')
  if not 0 <= seed < 2**62:
    raise ValueError(f'`seed` must be from 0 to 2**62 - 1, found {seed}.')
