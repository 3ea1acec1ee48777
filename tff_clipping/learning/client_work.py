"""The clients' part of a round, as a TFF process.

`build_client_work` returns a `tff.templates.MeasuredProcess` with

    initialize: ( -> ClientWorkState@SERVER)
    next: (ClientWorkState@SERVER, ModelWeights@SERVER, {D}@CLIENTS) ->
          (ClientWorkState@SERVER, ClientResult@CLIENTS, measurements@SERVER)

where `D` is the type of a client, an id or a data set of examples. It is not a
`tff.learning.templates.ClientWorkProcess`, since that one accepts only data
sets.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import client_rows
from tff_clipping.learning import update_measurements
from tff_clipping.learning.local_work import LocalWork


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
# Where TFF's algorithms have their training metrics, and where
# `tff.learning.programs.train_model` asks for them. There are none here.
_NO_TRAINING_METRICS: Mapping[str, Any] = collections.OrderedDict(
  train=collections.OrderedDict()
)


def build_client_work(
  work: LocalWork,
  weights_type: tff.StructWithPythonType,
  *,
  measure_updates: bool,
  sender: Sender | None = None,
) -> tff.templates.MeasuredProcess:
  """Builds the process in which each client makes its update.

  Args:
    work: What a client does.
    weights_type: The type of the model's weights.
    measure_updates: Whether to report `update_norm` and `angle_degrees` of the
      update, and what the sender measures.
    sender: What a client sends; its update if not given.

  Returns:
    The process. Its measurements have a structure `train`, which is empty.
  """
  sender = sender or _SEND_UPDATE
  client_type = work.client_type
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

  @tff.tensorflow.computation(
    client_type, np.int32, weights_type, direction_type
  )
  def send_update(client, round_num, weights, direction):
    examples = work.read(client)
    client_seed = work.client_seed(client, examples, round_num)
    train = work.build_training()
    update = train(weights, examples, client_seed, round_num)
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
    tff.FederatedType(client_type, tff.CLIENTS),
  )
  def next_fn(state, weights, clients):
    result, measured = tff.federated_map(
      send_update,
      (
        clients,
        tff.federated_broadcast(tff.federated_map(round_number, state)),
        tff.federated_broadcast(weights),
        tff.federated_broadcast(
          tff.federated_map(last_direction, (state, weights))
        ),
      ),
    )
    if measure_updates:
      measurements = _with_no_training_metrics(
        client_rows.collect(
          measured, update_measurements.NAMES + sender.measurement_names
        )
      )
    else:
      measurements = tff.federated_value(_NO_TRAINING_METRICS, tff.SERVER)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_state, (state, weights)), result, measurements
    )

  return tff.templates.MeasuredProcess(
    initialize, next_fn, next_is_multi_arg=True
  )


def _with_no_training_metrics(measured: tff.Value) -> tff.Value:
  """Returns what was measured, and the training metrics that there are not."""

  @tff.tensorflow.computation(measured.type_signature.member)
  def add(measured):
    return collections.OrderedDict(measured, **_NO_TRAINING_METRICS)

  return tff.federated_map(add, measured)
