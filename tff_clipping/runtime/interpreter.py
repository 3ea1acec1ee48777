"""Runs what has no MapReduce form, one step of a computation after the other.

The MapReduce form has one broadcast, one sum and a result at the server. Here
is the rest: results at the clients, several broadcasts, `tff.federated_select`,
values that are equal at all clients, values that are not federated. A step is
done for all clients before the next one begins, so what the clients have
between two steps is in memory for all of them at once.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow_federated as tff

from tff_clipping.runtime import interpreted_values, values
from tff_clipping.runtime.interpreted_values import AllEqual, map_leaves
from tff_clipping.runtime.secure_sums import SecureSum
from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation

# Runs a function on what each client has; returns what it has given, in order.
RunClients = Callable[[Callable, Sequence], list]


class UnsupportedComputationError(TypeError):
  """No part of this runtime runs the computation."""


class InterpretedComputation:
  """A TFF computation as a callable on its argument.

  What its values are inside, `interpreted_values` says.
  """

  def __init__(
    self,
    computation: tff.framework.ConcreteComputation,
    *,
    threads_per_client: int = 1,
  ):
    """Imports the TensorFlow graphs of `computation`.

    Args:
      computation: Any computation.
      threads_per_client: The number of threads inside of an operation.

    Raises:
      UnsupportedComputationError: If a part of it is neither TensorFlow nor
        TFF's own, or it takes or returns a function.
    """
    self._type = computation.type_signature
    self._block = tff.framework.ComputationBuildingBlock.from_proto(
      tff.framework.serialize_computation(computation)
    )
    self._graphs = {}
    for block in _blocks(self._block):
      if isinstance(block, tff.framework.CompiledComputation):
        self._graphs[id(block)] = _graph(block, threads_per_client)
      elif isinstance(block, tff.framework.Data):
        raise _unsupported('it has data of a kind that is unknown here')
      elif isinstance(block, tff.framework.Intrinsic):
        if not hasattr(_Run, block.uri):
          raise _unsupported(f'it uses {block.uri!r}')
    if tff.types.contains(
      self._type.parameter or tff.to_type(()),
      lambda t: isinstance(t, tff.FunctionType),
    ):
      raise _unsupported('it takes a function')
    if tff.types.contains(
      self._type.result, lambda t: isinstance(t, tff.FunctionType)
    ):
      raise _unsupported('it returns a function')

  def __call__(self, argument, run_clients: RunClients, result_type: tff.Type):
    """Runs the computation.

    Args:
      argument: What it was called with.
      run_clients: What runs the work of the clients.
      result_type: The type of the result with the Python containers that are
        asked for, in which equal computations may differ.

    Returns:
      Its result, in the containers of its type; a list for a value at the
      clients.

    Raises:
      TypeError: If `argument` is not of the parameter's type.
      ValueError: If its parts are of different numbers of clients.
    """
    numbers: list[int] = []
    if self._type.parameter is None:
      value = None
    else:
      value = interpreted_values.from_argument(
        argument, self._type.parameter, (), numbers
      )
    values.check_numbers_of_clients(numbers)
    run = _Run(self._graphs, numbers[0] if numbers else 0, run_clients)
    function = run.evaluate(self._block, {})
    return interpreted_values.to_result(function(value), result_type)


class _Run:
  """One call of a computation; a method for each of TFF's intrinsics.

  These have the names of the intrinsics, and take their type and argument.
  """

  def __init__(
    self,
    graphs: Mapping[int, TensorFlowComputation],
    num_clients: int,
    run_clients: RunClients,
  ):
    self._graphs = graphs
    self._num_clients = num_clients
    self._run_clients = run_clients

  def evaluate(self, block, names: Mapping[str, object]):
    """Returns the value of a building block, where names have values."""
    f = tff.framework
    if isinstance(block, f.Reference):
      return names[block.name]
    if isinstance(block, f.Selection):
      index = block.index
      if index is None:
        types = tff.structure.iter_elements(block.source.type_signature)
        index = [name for name, _ in types].index(block.name)
      return self.evaluate(block.source, names)[index]
    if isinstance(block, f.Struct):
      return tuple(
        self.evaluate(element, names)
        for _, element in tff.structure.iter_elements(block)
      )
    if isinstance(block, f.Call):
      function = self.evaluate(block.function, names)
      if block.argument is None:
        return function(None)
      return function(self.evaluate(block.argument, names))
    if isinstance(block, f.Lambda):
      return lambda argument: self.evaluate(
        block.result, {**names, block.parameter_name: argument}
      )
    if isinstance(block, f.Block):
      for name, value in block.locals:
        names = {**names, name: self.evaluate(value, names)}
      return self.evaluate(block.result, names)
    if isinstance(block, f.CompiledComputation):
      return functools.partial(self._run_graph, block)
    if isinstance(block, f.Literal):
      # Strings of NumPy lose zero bytes at their end.
      is_string = block.type_signature.dtype.type is np.str_
      return np.asarray(block.value, object if is_string else None)
    if isinstance(block, f.Intrinsic):
      intrinsic = getattr(self, block.uri)
      if not isinstance(block.type_signature, tff.FunctionType):
        return intrinsic(block.type_signature)
      return functools.partial(intrinsic, block.type_signature)
    raise _unsupported(f'it has a {type(block).__name__}')

  def federated_value_at_server(self, type_spec, value):
    del type_spec
    return value

  def federated_value_at_clients(self, type_spec, value):
    del type_spec
    return AllEqual(value)

  def federated_broadcast(self, type_spec, value):
    del type_spec
    return AllEqual(value)

  def federated_eval_at_server(self, type_spec, function):
    del type_spec
    return function(None)

  def federated_eval_at_clients(self, type_spec, function):
    del type_spec
    return self._run_clients(function, [None] * self._num_clients)

  def federated_apply(self, type_spec, argument):
    del type_spec
    function, value = argument
    return function(value)

  def federated_map(self, type_spec, argument):
    function, value = argument
    if type_spec.parameter[1].placement is tff.SERVER:
      return function(value)
    return self._run_clients(function, self._each(value))

  def federated_map_all_equal(self, type_spec, argument):
    del type_spec
    function, value = argument
    return AllEqual(function(value.value))

  def federated_zip_at_server(self, type_spec, argument):
    del type_spec
    return argument

  def federated_zip_at_clients(self, type_spec, argument):
    def member(value, part_type, pick):
      if isinstance(part_type, tff.FederatedType):
        return pick(value)
      return tuple(
        member(v, t, pick) for v, t in zip(value, part_type, strict=True)
      )

    parameter_type = type_spec.parameter
    if type_spec.result.all_equal:
      return AllEqual(member(argument, parameter_type, lambda v: v.value))
    return [
      member(
        argument,
        parameter_type,
        lambda v, i=i: v.value if isinstance(v, AllEqual) else v[i],
      )
      for i in range(self._num_clients)
    ]

  def federated_aggregate(self, type_spec, argument):
    del type_spec
    value, total, accumulate, _, report = argument
    for client in self._each(value):
      total = accumulate((total, client))
    return report(total)

  def federated_sum(self, type_spec, value):
    return self._sum(type_spec.result.member, self._each(value))

  def federated_mean(self, type_spec, value):
    return self._weighted_mean(
      type_spec.result.member, self._each(value), [1] * self._num_clients
    )

  def federated_weighted_mean(self, type_spec, argument):
    value, weight = argument
    return self._weighted_mean(
      type_spec.result.member, self._each(value), self._each(weight)
    )

  def federated_min(self, type_spec, value):
    return self._extreme(np.minimum, type_spec, value)

  def federated_max(self, type_spec, value):
    return self._extreme(np.maximum, type_spec, value)

  def federated_secure_sum(self, type_spec, argument):
    return self._secure_sum('max_input', type_spec, argument)

  def federated_secure_sum_bitwidth(self, type_spec, argument):
    return self._secure_sum('bitwidth', type_spec, argument)

  def federated_secure_modular_sum(self, type_spec, argument):
    return self._secure_sum('modulus', type_spec, argument)

  def federated_select(self, type_spec, argument):
    """Returns for each client what it has selected, as a list of elements."""
    del type_spec
    client_keys, max_key, server_value, select = argument
    slices = {}
    selected = []
    for position, keys in enumerate(self._each(client_keys)):
      for key in keys:
        if not 0 <= key < max_key:
          raise ValueError(
            f'The keys of client {position} must be from 0 to {max_key - 1}, '
            f'found {key}.'
          )
        if int(key) not in slices:
          slices[int(key)] = select((server_value, key))
      selected.append([slices[int(key)] for key in keys])
    return selected

  federated_secure_select = federated_select

  def sequence_map(self, type_spec, argument):
    function, sequence = argument
    return [
      function(element)
      for element in interpreted_values.elements(
        sequence, type_spec.parameter[1].element
      )
    ]

  def sequence_reduce(self, type_spec, argument):
    sequence, total, reduce = argument
    for element in interpreted_values.elements(
      sequence, type_spec.parameter[0].element
    ):
      total = reduce((total, element))
    return total

  def sequence_sum(self, type_spec, sequence):
    element_type = type_spec.parameter.element
    return self._sum(
      type_spec.result, interpreted_values.elements(sequence, element_type)
    )

  def generic_zero(self, type_spec):
    return map_leaves(lambda t: np.zeros(t.shape, t.dtype), type_spec)

  def generic_plus(self, type_spec, argument):
    return map_leaves(lambda t, a, b: np.add(a, b), type_spec.result, *argument)

  def generic_multiply(self, type_spec, argument):
    return map_leaves(
      lambda t, a, b: np.multiply(a, b), type_spec.result, *argument
    )

  def generic_divide(self, type_spec, argument):
    return map_leaves(
      lambda t, a, b: np.true_divide(a, b).astype(t.dtype),
      type_spec.result,
      *argument,
    )

  def _secure_sum(self, kind: str, type_spec, argument):
    value_type, bounds_type = type_spec.parameter
    value_type = value_type.member
    value, bounds = argument
    secure_sum = SecureSum(
      kind,
      value_type,
      interpreted_values.to_leaves(bounds, bounds_type),
      bounds_type,
    )

    def contribute(client):
      contribution = interpreted_values.to_leaves(client, value_type)
      secure_sum.check(contribution)
      return contribution

    total = functools.reduce(
      secure_sum.add,
      self._run_clients(contribute, self._each(value)),
      secure_sum.zero(),
    )
    return interpreted_values.from_leaves(total, value_type)

  def _run_graph(self, block, argument):
    """Runs a TensorFlow graph."""
    type_spec = block.type_signature
    leaves = []
    if type_spec.parameter is not None:
      leaves = interpreted_values.to_leaves(argument, type_spec.parameter)
    return interpreted_values.from_leaves(
      self._graphs[id(block)](*leaves), type_spec.result
    )

  def _each(self, value) -> list:
    """Returns what each client has."""
    if isinstance(value, AllEqual):
      return [value.value] * self._num_clients
    return value

  def _sum(self, type_spec, parts: Sequence):
    """Returns a sum from zero on, in order: the bits do not vary."""
    total = self.generic_zero(type_spec)
    for part in parts:
      total = map_leaves(lambda t, a, b: np.add(a, b), type_spec, total, part)
    return total

  def _weighted_mean(self, type_spec, parts: Sequence, weights: Sequence):
    weighted = [
      map_leaves(
        lambda t, x, w=weight: x * np.asarray(w, t.dtype), type_spec, part
      )
      for part, weight in zip(parts, weights, strict=True)
    ]
    total_weight = sum(weights)
    with np.errstate(divide='ignore', invalid='ignore'):
      return map_leaves(
        lambda t, x: np.divide(x, np.asarray(total_weight, t.dtype)),
        type_spec,
        self._sum(type_spec, weighted),
      )

  def _extreme(self, function: np.ufunc, type_spec, value):
    """Returns the smallest or largest; of no clients, that of the dtype."""

    def start(tensor_type):
      dtype = np.dtype(tensor_type.dtype)
      info = np.iinfo(dtype) if dtype.kind in 'iu' else np.finfo(dtype)
      bound = info.max if function is np.minimum else info.min
      return np.full(tensor_type.shape, bound, dtype)

    member_type = type_spec.result.member
    parts = self._each(value)
    if not parts:
      return map_leaves(start, member_type)
    return functools.reduce(
      lambda a, b: map_leaves(
        lambda t, x, y: function(x, y), member_type, a, b
      ),
      parts,
    )


def _blocks(block):
  """Yields a building block, and all that it is made of."""
  yield block
  for child in block.children():
    yield from _blocks(child)


def _graph(block, threads_per_client: int) -> TensorFlowComputation:
  computation = tff.framework.deserialize_computation(block.proto)
  try:
    return TensorFlowComputation(
      computation, intra_op_threads=threads_per_client
    )
  except TypeError as e:
    raise _unsupported(str(e)) from e


def _unsupported(reason: str) -> UnsupportedComputationError:
  return UnsupportedComputationError(
    f"This computation cannot be run here: {reason.rstrip('.')}. TFF's native "
    'context may run it: '
    '`tff.backends.native.set_sync_local_cpp_execution_context()`.'
  )
