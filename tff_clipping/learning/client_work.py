"""The clients' part of a round, as a TFF process.

`build_client_work` returns a `tff.templates.MeasuredProcess` with

    initialize: ( -> ClientWorkState@SERVER)
    next: (ClientWorkState@SERVER, ModelWeights@SERVER, {D}@CLIENTS) ->
          (ClientWorkState@SERVER, ClientResult@CLIENTS, measurements@SERVER)

where `D` is a string, the id of a client of a store, or a data set of examples.
It is not a `tff.learning.templates.ClientWorkProcess`, since that one accepts
only data sets.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.learning import local_sgd, update_measurements

ModelFn = Callable[[], tff.learning.models.VariableModel]


class ClientWorkState(NamedTuple):
  """The state between rounds.

  Attributes:
    round_num: The number of rounds done, t.
    previous_model: The trainable weights of the last round, x^{t-1}; empty
      unless updates are measured.
  """

  round_num: Any
  previous_model: Any


def build_client_work(
  model_fn: ModelFn,
  weights_type: tff.Type,
  *,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  client_store,
  seed: int,
  measure_updates: bool,
) -> tff.templates.MeasuredProcess:
  """Builds the process in which each client makes its update.

  Args:
    model_fn: Returns a new model.
    weights_type: The type of the model's weights.
    local_steps: The number of local steps, Q.
    batch_size: The number of examples in each local step's batch.
    client_learning_rate: The local step size, eta_l.
    client_store: Reads a client's examples by its id, or `None`: see
      `build_fed_avg`.
    seed: The seed of the run.
    measure_updates: Whether to report `update_norm` and `update_angle`.

  Returns:
    The process.
  """
  with tf.Graph().as_default():
    input_spec = model_fn().input_spec
  if client_store is None:
    data_type = tff.SequenceType(_example_type(input_spec))
    read = local_sgd.dataset_examples
    identify = local_sgd.data_fingerprint
  else:
    data_type = tff.TensorType(np.str_)
    read = client_store.read_client
    identify = None

  previous_type = weights_type.trainable if measure_updates else tff.to_type([])
  state_type = tff.to_type(ClientWorkState(np.int32, previous_type))

  @tff.tensorflow.computation
  def initial_state():
    previous = (
      tff.types.structure_from_tensor_type_tree(
        lambda t: tf.zeros(t.shape, t.dtype), previous_type
      )
      if measure_updates
      else []
    )
    return ClientWorkState(tf.constant(0), previous)

  @tff.tensorflow.computation(state_type, weights_type)
  def next_state(state, weights):
    previous = weights.trainable if measure_updates else []
    return ClientWorkState(state.round_num + 1, previous)

  @tff.tensorflow.computation(data_type, state_type, weights_type)
  def work(data, state, weights):
    examples = read(data)
    client = data if identify is None else identify(examples)
    client_seed = local_sgd.client_seed(seed, state.round_num, client)
    with tf.variable_creator_scope(_zeros_creator):
      model = model_fn()
    train = local_sgd.build_local_sgd(
      model,
      local_steps=local_steps,
      batch_size=batch_size,
      learning_rate=client_learning_rate,
    )
    update = train(list(weights.trainable), examples, client_seed)
    result = tff.learning.templates.ClientResult(update, tf.constant(1.0))
    if not measure_updates:
      return result, ()
    return result, update_measurements.norm_and_angle(
      update, weights.trainable, state.previous_model, state.round_num
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    result, measured = tff.federated_map(
      work,
      (
        data,
        tff.federated_broadcast(state),
        tff.federated_broadcast(weights),
      ),
    )
    if measure_updates:
      measurements = update_measurements.collect(measured)
    else:
      measurements = tff.federated_value((), tff.SERVER)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_state, (state, weights)), result, measurements
    )

  return tff.templates.MeasuredProcess(
    initialize, next_fn, next_is_multi_arg=True
  )


def _example_type(input_spec) -> tff.Type:
  """Returns the type of one example of batches of `input_spec`."""
  return tff.types.tensorflow_to_type(
    tf.nest.map_structure(
      lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), input_spec
    )
  )


def _zeros_creator(next_creator, **kwargs):
  """Creates trainable variables without the cost of a random initial value.

  They take the global model's values before they are read.
  """
  initial_value = kwargs['initial_value']
  if kwargs.get('trainable') and callable(initial_value):
    value = initial_value()
    kwargs['initial_value'] = lambda: tf.zeros(value.shape, value.dtype)
  return next_creator(**kwargs)
