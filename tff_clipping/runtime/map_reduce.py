"""Compiles any TFF computation of one round to plain TensorFlow computations.

`tff.backends.mapreduce.MapReduceForm` is TFF's own form for engines other than
its native one. It has one server state, one value for each client, and one
result beside the new state. `MapReduceRound` brings other signatures into this
shape: those of aggregation processes, evaluations and initialization.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from tff_clipping.runtime import accumulation, values
from tff_clipping.runtime.secure_sums import SecureSum
from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation

# Stands in for a server state that is not there.
_NOTHING = (np.zeros([], np.int32),)


class NoMapReduceFormError(TypeError):
  """The computation has no MapReduce form."""


@dataclasses.dataclass(frozen=True)
class Accumulator:
  """The sum over some of the clients of a round.

  Attributes:
    leaves: The arrays of the accumulator of `tff.federated_aggregate`.
    secure_sums: For each kind of secure sum, its arrays.
  """

  leaves: Sequence[np.ndarray]
  secure_sums: Sequence[Sequence[np.ndarray]]


class MapReduceRound:
  """A compiled computation: what a server and its clients do in one round.

  A runtime calls `prepare` once, `work` for each client, `accumulate` for each
  result in the order of the clients, `merge` for accumulators of disjoint
  shards, and `finish` once. All values are flat lists of arrays.
  """

  def __init__(
    self,
    computation: tff.framework.ConcreteComputation,
    *,
    threads_per_client: int = 1,
  ):
    """Compiles `computation`, which takes seconds.

    Args:
      computation: A computation whose parameter and result are federated.
      threads_per_client: The number of threads inside of an operation of
        `work`.

    Raises:
      NoMapReduceFormError: If it has no MapReduce form.
    """
    self._parameter_type = computation.type_signature.parameter
    self._result_type = computation.type_signature.result
    parts = self._check_placements()
    self._server_types = [t for t in parts if t.placement is tff.SERVER]
    self._client_types = [t for t in parts if t.placement is tff.CLIENTS]
    try:
      form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
        self._to_one_round(computation), _optimizations()
      )
    except (TypeError, ValueError, NotImplementedError) as e:
      raise NoMapReduceFormError(str(e)) from e
    self._prepare = TensorFlowComputation(form.prepare)
    self._work = TensorFlowComputation(
      # Half of the bytes, to be copied and added up.
      form.work,
      narrow=True,
      intra_op_threads=threads_per_client,
    )
    self._zero = TensorFlowComputation(form.zero)
    self._zeros: list[np.ndarray] | None = None
    self._accumulate = accumulation.Accumulation(form.accumulate)
    self._merge = accumulation.Accumulation(form.merge)
    self._report = TensorFlowComputation(form.report)
    # The state that goes round unchanged (see `_to_one_round`) is not computed.
    num_leaves = values.num_tensors(form.update.type_signature.result)
    num_results = values.num_tensors(self._result_type)
    self._update = TensorFlowComputation(
      form.update,
      results=range(num_leaves - num_results, num_leaves),
      # No client is at work then, and noise for a large model takes time.
      inter_op_threads=len(os.sched_getaffinity(0)),
    )
    _, *secure_types = form.work.type_signature.result
    if self._prepare.draws and self._update.draws:
      # One value, in two graphs: each would draw another.
      raise NoMapReduceFormError(
        'What the server draws for the clients may be what it draws for itself.'
      )
    self._secure_sums = [
      SecureSum(
        kind,
        value_type,
        TensorFlowComputation(bounds)(),
        bounds.type_signature.result,
      )
      for kind, value_type, bounds in zip(
        ('bitwidth', 'max_input', 'modulus'),
        secure_types,
        (
          form.secure_sum_bitwidth,
          form.secure_sum_max_input,
          form.secure_modular_sum_modulus,
        ),
        strict=True,
      )
    ]

  def split_argument(self, argument) -> tuple[Sequence, list[list]]:
    """Returns the server's leaves and, for each client, the client's leaves.

    Args:
      argument: What the computation was called with.

    Raises:
      TypeError: If it is not of the computation's parameter type.
      ValueError: If its parts are of different numbers of clients.
    """
    if self._parameter_type is None:
      return _NOTHING, []
    server: list = []
    clients: list[list[list]] = []
    for path, part, part_type in values.federated_parts(
      argument, self._parameter_type
    ):
      member_type = part_type.member
      if part_type.placement is tff.SERVER:
        server.extend(values.flatten(part, member_type, path))
        continue
      if not isinstance(part, (list, tuple)):
        raise TypeError(
          f'{values.name_of(path)} must be a list with a value for each '
          f'client, found one of type {type(part).__name__}.'
        )
      clients.append(
        [
          values.flatten(value, member_type, (*path, i))
          for i, value in enumerate(part)
        ]
      )
    numbers = [len(each) for each in clients]
    if len(set(numbers)) > 1:
      raise ValueError(
        f'Expected values for the same number of clients, found {numbers}.'
      )
    return (
      server if self._server_types else _NOTHING,
      [sum(leaves, []) for leaves in zip(*clients, strict=True)],
    )

  def prepare(self, server: Sequence) -> Sequence:
    """Returns what the server broadcasts."""
    return self._prepare(*server)

  def work(self, client: Sequence, broadcast: Sequence) -> Sequence:
    """Returns what one client sends."""
    return self._work(*client, *broadcast)

  def zero(self) -> Accumulator:
    """Returns the accumulator of no clients."""
    if self._zeros is None or self._zero.draws:
      self._zeros = [accumulation.begin(leaf) for leaf in self._zero()]
    return Accumulator([*self._zeros], [s.zero() for s in self._secure_sums])

  def accumulate(
    self, accumulator: Accumulator, contribution: Sequence
  ) -> Accumulator:
    """Adds one client's contribution, and returns the sum.

    Args:
      accumulator: What `zero` or this has returned. It is used up.
      contribution: What `work` has returned.
    """
    end = len(contribution) - sum(s.num_tensors for s in self._secure_sums)
    leaves = self._accumulate(accumulator.leaves, contribution[:end])
    secure_sums = []
    for secure_sum, total in zip(
      self._secure_sums, accumulator.secure_sums, strict=True
    ):
      start, end = end, end + secure_sum.num_tensors
      secure_sum.check(contribution[start:end])
      secure_sums.append(secure_sum.add(total, contribution[start:end]))
    return Accumulator(leaves, secure_sums)

  def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
    """Returns the accumulator of the clients of both; `left` is used up."""
    return Accumulator(
      self._merge(left.leaves, right.leaves),
      [
        s.add(a, b)
        for s, a, b in zip(
          self._secure_sums, left.secure_sums, right.secure_sums, strict=True
        )
      ],
    )

  def finish(self, server: Sequence, accumulator: Accumulator):
    """Returns the computation's result.

    Args:
      server: The server's leaves.
      accumulator: The sum over all clients.
    """
    reported = self._report(*accumulator.leaves)
    secure = [array for arrays in accumulator.secure_sums for array in arrays]
    leaves = self._update(*server, *reported, *secure)
    return values.unflatten(values.detached(leaves, server), self._result_type)

  def _check_placements(self) -> list[tff.FederatedType]:
    """Returns the types of the parameter's parts, which must be federated."""
    taken = tff.structure.flatten(self._parameter_type or ())
    returned = tff.structure.flatten(self._result_type)
    for part in (*taken, *returned):
      if not isinstance(part, tff.FederatedType):
        raise NoMapReduceFormError(f'It has an unplaced value, {part}.')
    for part in taken:
      if part.placement is tff.CLIENTS and part.all_equal:
        raise NoMapReduceFormError(f'It takes what all clients have, {part}.')
    for part in returned:
      if part.placement is not tff.SERVER:
        raise NoMapReduceFormError(f'It returns values at clients, {part}.')
    return taken

  def _to_one_round(
    self, computation: tff.framework.ConcreteComputation
  ) -> tff.framework.ConcreteComputation:
    """Returns `computation` in the signature that the form is made for.

    That is `(S@SERVER, {C}@CLIENTS) -> (S@SERVER, R@SERVER)`. What is not there
    is an `int32`; all parameters at one placement are one structure; the state
    goes round unchanged, since the new one is in the result.
    """
    server_type = _joined([t.member for t in self._server_types])
    client_type = _joined([t.member for t in self._client_types])

    @tff.federated_computation(
      tff.FederatedType(server_type, tff.SERVER),
      tff.FederatedType(client_type, tff.CLIENTS),
    )
    def one_round(server, clients):
      rest = {
        tff.SERVER: (server[i] for i in range(len(self._server_types))),
        tff.CLIENTS: (clients[i] for i in range(len(self._client_types))),
      }
      if self._parameter_type is None:
        result = computation()
      else:
        flat = tff.structure.flatten(self._parameter_type)
        argument = [next(rest[part.placement]) for part in flat]
        result = computation(
          tff.structure.pack_sequence_as(self._parameter_type, argument)
        )
      parts = _federated_parts(result)
      return server, tff.federated_zip(tuple(parts))

    return one_round


def compile_initialization(
  computation: tff.framework.ConcreteComputation,
) -> TensorFlowComputation:
  """Compiles a computation of the server alone, as one graph.

  A `MapReduceRound` would have ten graphs, for clients that are not there.

  Args:
    computation: A computation with no parameter.

  Raises:
    NoMapReduceFormError: If it has one, clients take part in it, or its result
      is not one value at the server.
  """
  try:
    graph = tff.backends.mapreduce.get_state_initialization_computation(
      computation, _optimizations()
    )
  except (TypeError, ValueError, NotImplementedError) as e:
    raise NoMapReduceFormError(str(e)) from e
  return TensorFlowComputation(
    graph, inter_op_threads=len(os.sched_getaffinity(0))
  )


def _optimizations() -> tf.compat.v1.ConfigProto:
  """Returns what the graphs are optimised for: time, and not memory.

  It is TFF's choice but for the memory. For that, TFF has the backward pass
  compute activations again, which costs time by itself and keeps the forward
  pass from being fused.
  """
  config = tf.compat.v1.ConfigProto()
  rewrites = config.graph_options.rewrite_options
  aggressive = RewriterConfig.AGGRESSIVE
  rewrites.constant_folding = aggressive
  rewrites.arithmetic_optimization = aggressive
  rewrites.loop_optimization = aggressive
  rewrites.function_optimization = aggressive
  rewrites.memory_optimization = RewriterConfig.NO_MEM_OPT
  return config


def _joined(types: Sequence[tff.Type]) -> tff.Type:
  """Returns the structure of `types`, or a stand-in if there are none."""
  return tff.to_type(tuple(types) if types else np.int32)


def _federated_parts(value: tff.Value) -> list[tff.Value]:
  """Returns the federated values in a structure of them, in order."""
  if isinstance(value.type_signature, tff.FederatedType):
    return [value]
  return [
    part
    for i in range(len(value.type_signature))
    for part in _federated_parts(value[i])
  ]
