"""The clients' part of a round, as a TFF process.

`build_client_work` returns a `tff.templates.MeasuredProcess` with

    initialize: ( -> ClientWorkState@SERVER)
    next: (ClientWorkState@SERVER, ModelWeights@SERVER, {D}@CLIENTS) ->
          (ClientWorkState@SERVER, ClientResult@CLIENTS, measurements@SERVER)

where `D` is the type of a client, an id or a data set of examples. Where the
local step is a `KeepingStep`, it is a structure of `client`, which is the same,
and `kept`, what the client keeps; what the clients keep next is `kept` of the
measurements, in their order, for whoever holds it on the trusted side.

It is not a `tff.learning.templates.ClientWorkProcess`, since that one accepts
only data sets.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import client_rows, l2_clip
from tff_clipping.learning import update_measurements
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.steps.keeping_step import Kept


class ClientWorkState(NamedTuple):
  """The state between rounds.

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


class Sharing(NamedTuple):
  """What the server makes of an aggregate, which is released.

  Attributes:
    share: A computation of a state, in which the round is counted, and the
      aggregate, that returns the state with what the server shares next. An
      aggregate that is not finite, which leaves the model as it is, changes
      nothing.
    move: A computation of that state and the aggregate that returns what the
      server's step goes along.
  """

  share: tff.Computation
  move: tff.Computation


class Sender(NamedTuple):
  """What a client sends in place of its update.

  Attributes:
    send: A function of the update and the global model, both lists of tensors,
      that returns what is sent, of the same shapes, and a list of scalars.
    measurement_names: What these scalars are called in the measurements, which
      hold them where updates are measured.
    receive: A function of the mean of what was sent and the global model, both
      lists of tensors, that returns the mean update; at the server. `None`
      where that is the mean itself.
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


_SEND_UPDATE = Sender(lambda update, global_model: (update, []))


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
  step = work.keeping_step
  model_type, nothing = weights_type.trainable, tff.to_type([])
  client_type = work.client_type
  if step is not None:
    client_type = tff.to_type(
      collections.OrderedDict(client=client_type, kept=model_type)
    )
  previous_type = model_type if measure_updates else nothing
  shared_type = model_type if step is not None and step.shares else nothing
  state_type = tff.to_type(
    ClientWorkState(np.int32, previous_type, shared_type)
  )

  @tff.tensorflow.computation
  def initial_state():
    return ClientWorkState(
      tf.constant(0), _zeros(previous_type), _zeros(shared_type)
    )

  @tff.tensorflow.computation(state_type, weights_type)
  def next_state(state, weights):
    return state._replace(
      round_num=state.round_num + 1,
      previous_model=weights.trainable if measure_updates else [],
    )

  @tff.tensorflow.computation(state_type, weights_type)
  def last_direction(state, weights):
    if not measure_updates:
      return []
    return update_measurements.last_direction(
      weights.trainable, state.previous_model, state.round_num
    )

  direction_type = last_direction.type_signature.result

  @tff.tensorflow.computation(
    client_type, np.int32, weights_type, direction_type, shared_type
  )
  def send_update(client, round_num, weights, direction, shared):
    kept: Any = ()
    if step is not None:
      client, own = client['client'], client['kept']
      kept = Kept(list(own), list(shared))
    examples = work.read(client)
    client_seed = work.client_seed(client, examples, round_num)
    train = work.build_training()
    update = train(weights, examples, client_seed, round_num, kept)
    kept_next: Sequence[tf.Tensor] = ()
    if step is None:
      sent, measured = sender.send(update, list(weights.trainable))
    else:
      sent, measured = step.send(update, kept), []
      # It zeroes what is not finite, which a client would keep for ever.
      sent = l2_clip.clip_by_l2_norm(list(sent), step.clipping_norm).value
      kept_next = list(step.keep(update, sent, kept, way=work.way))
    result = tff.learning.templates.ClientResult(sent, tf.constant(1.0))
    if not measure_updates:
      return result, (), kept_next
    norm_and_angle = update_measurements.norm_and_angle(update, direction)
    measured = [tf.cast(number, tf.float32) for number in measured]
    row = tf.stack([*tf.unstack(norm_and_angle), *measured])
    return result, row, kept_next

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(client_type, tff.CLIENTS),
  )
  def next_fn(state, weights, clients):
    result, measured, kept = tff.federated_map(
      send_update,
      (
        clients,
        tff.federated_broadcast(state.round_num),
        tff.federated_broadcast(weights),
        tff.federated_broadcast(
          tff.federated_map(last_direction, (state, weights))
        ),
        tff.federated_broadcast(state.made_of_releases),
      ),
    )
    measurements = collections.OrderedDict()
    if measure_updates:
      names = update_measurements.NAMES + sender.measurement_names
      rows = client_rows.collect(measured, names)
      measurements.update((name, rows[name]) for name in names)
    # Where TFF's algorithms have their training metrics, and where
    # `tff.learning.programs.train_model` asks for them. There are none here.
    measurements['train'] = tff.federated_value(
      collections.OrderedDict(), tff.SERVER
    )
    if step is not None:
      measurements['kept'] = client_rows.stack(kept)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_state, (state, weights)),
      result,
      tff.federated_zip(measurements),
    )

  return tff.templates.MeasuredProcess(
    initialize, next_fn, next_is_multi_arg=True
  )


def build_sharing(
  work: LocalWork,
  state_type: tff.Type,
  weights_type: tff.StructWithPythonType,
) -> Sharing | None:
  """Returns what the server makes of an aggregate.

  Args:
    work: What a client does.
    state_type: The type of the client work's state.
    weights_type: The type of the model's weights.

  Returns:
    Two computations; `None` where nothing is shared.
  """
  step = work.keeping_step
  if step is None or not step.shares:
    return None

  @tff.tensorflow.computation(state_type, weights_type.trainable)
  def share(state, aggregate):
    aggregate, shared = list(aggregate), list(state.made_of_releases)
    is_finite = _are_finite(aggregate)
    shared_next = step.share(aggregate, shared, way=work.way)
    return state._replace(
      made_of_releases=[
        tf.where(is_finite, new, old)
        for new, old in zip(shared_next, shared, strict=True)
      ]
    )

  @tff.tensorflow.computation(state_type, weights_type.trainable)
  def move(state, aggregate):
    aggregate = list(aggregate)
    # One that is not finite is passed on, for the server's step to drop it.
    is_finite = _are_finite(aggregate)
    moved = step.move(aggregate, list(state.made_of_releases))
    return [
      tf.where(is_finite, new, old)
      for new, old in zip(moved, aggregate, strict=True)
    ]

  return Sharing(share, move)


def _are_finite(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  return tf.reduce_all(
    [tf.reduce_all(tf.math.is_finite(value)) for value in tensors]
  )


def _zeros(type_spec: tff.Type) -> Any:
  return tff.types.structure_from_tensor_type_tree(
    lambda t: tf.zeros(t.shape, t.dtype), type_spec
  )
