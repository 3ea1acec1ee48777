"""The clients' part of a round, as a TFF process.

`build_client_work` returns a `tff.templates.MeasuredProcess` with

    initialize: ( -> ClientWorkState@SERVER)
    next: (ClientWorkState@SERVER, ModelWeights@SERVER, {D}@CLIENTS) ->
          (ClientWorkState@SERVER, ClientResult@CLIENTS, measurements@SERVER)

where `D` is a string, the id of a client of a store, or a data set of examples.
It is not a `tff.learning.templates.ClientWorkProcess`, since that one accepts
only data sets.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.learning import (
  client_rows,
  local_sgd,
  update_measurements,
)

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


class Sender(NamedTuple):
  """What a client sends in place of its update.

  Attributes:
    send: A function of the update and the global model, both lists of tensors,
      that returns what is sent, of the same shapes, and a list of scalars.
    measurement_names: What these scalars are called in the measurements, which
      hold them where updates are measured.
  """

  send: Callable[
    [Sequence[tf.Tensor], Sequence[tf.Tensor]],
    tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]],
  ]
  measurement_names: tuple[str, ...] = ()


_SEND_UPDATE = Sender(lambda update, global_model: (update, []))


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
  sender: Sender | None = None,
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
    measure_updates: Whether to report `update_norm` and `angle_degrees` of the
      update, and what the sender measures.
    sender: What a client sends; its update if not given.

  Returns:
    The process.
  """
  sender = sender or _SEND_UPDATE
  if client_store is None:
    with tf.Graph().as_default():
      input_spec = model_fn().input_spec
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

  @tff.tensorflow.computation(state_type, weights_type)
  def last_direction(state, weights):
    if not measure_updates:
      return []
    return update_measurements.last_direction(
      weights.trainable, state.previous_model, state.round_num
    )

  direction_type = last_direction.type_signature.result

  @tff.tensorflow.computation(state_type)
  def round_number(state):
    return state.round_num

  @tff.tensorflow.computation(data_type, np.int32, weights_type, direction_type)
  def work(data, round_num, weights, direction):
    examples = read(data)
    client = data if identify is None else identify(examples)
    client_seed = local_sgd.client_seed(seed, round_num, client)
    model = create_local_model(model_fn)
    train = local_sgd.build_local_sgd(
      model,
      local_steps=local_steps,
      batch_size=batch_size,
      learning_rate=client_learning_rate,
    )
    update = train(list(weights.trainable), examples, client_seed)
    sent, measured = sender.send(update, list(weights.trainable))
    result = tff.learning.templates.ClientResult(sent, tf.constant(1.0))
    if not measure_updates:
      return result, ()
    norm_and_angle = update_measurements.norm_and_angle(update, direction)
    measured = [tf.cast(number, tf.float32) for number in measured]
    return result, tf.stack([*tf.unstack(norm_and_angle), *measured])

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
        tff.federated_broadcast(tff.federated_map(round_number, state)),
        tff.federated_broadcast(weights),
        tff.federated_broadcast(
          tff.federated_map(last_direction, (state, weights))
        ),
      ),
    )
    if measure_updates:
      measurements = client_rows.collect(
        measured, update_measurements.NAMES + sender.measurement_names
      )
    else:
      measurements = tff.federated_value((), tff.SERVER)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_state, (state, weights)), result, measurements
    )

  return tff.templates.MeasuredProcess(
    initialize, next_fn, next_is_multi_arg=True
  )


def create_local_model(
  model_fn: ModelFn,
) -> tff.learning.models.VariableModel:
  """Returns a model for a client to train, whose variables hold zeros at first.

  They take the global model's values before they are read, so that a random
  initial value would be lost work.
  """
  with tf.variable_creator_scope(_zeros_creator):
    return model_fn()


def _example_type(input_spec) -> tff.Type:
  """Returns the type of one example of batches of `input_spec`."""
  return tff.types.tensorflow_to_type(
    tf.nest.map_structure(
      lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), input_spec
    )
  )


def _zeros_creator(next_creator, **kwargs):
  """Creates trainable variables without the cost of a random initial value."""
  initial_value = kwargs['initial_value']
  if kwargs.get('trainable') and callable(initial_value):
    value = initial_value()
    kwargs['initial_value'] = lambda: tf.zeros(value.shape, value.dtype)
  return next_creator(**kwargs)
