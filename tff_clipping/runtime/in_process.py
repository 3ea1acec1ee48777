"""Runs TFF computations in this process, a few clients at a time.

A process runs unchanged once `set_default_context` has been called. Clients
stream through a few threads; their results are added up in the order of the
clients, so that a round gives the same bits whatever the threads do. Memory
does not grow with the number of clients, and no worker process starts.
"""

import collections
import concurrent.futures
import os
from collections.abc import Sequence

import tensorflow_federated as tff

from tff_clipping.runtime import values
from tff_clipping.runtime.map_reduce import MapReduceRound
from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation

# Compiled computations are kept; a program has a few, a test suite has many.
_MAX_COMPILED = 64


class ClientError(RuntimeError):
  """The work of one client failed."""


class InProcessContext(tff.framework.SyncContext):
  """A TFF execution context that runs rounds in this process."""

  def __init__(self, *, num_threads: int | None = None):
    """Initializes the context.

    Args:
      num_threads: The number of clients that work at the same time. `None` is
        the number of CPU cores that this process may use.

    Raises:
      TypeError: If `num_threads` is not an integer.
      ValueError: If `num_threads` is not positive.
    """
    if num_threads is None:
      num_threads = len(os.sched_getaffinity(0))
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
      raise TypeError(
        f'`num_threads` must be an integer, found {num_threads!r}.'
      )
    if num_threads < 1:
      raise ValueError(f'`num_threads` must be positive, found {num_threads}.')
    self._num_threads = num_threads
    self._compiled = collections.OrderedDict()
    # The threads stay: each keeps its sessions of what has been compiled.
    self._pool = concurrent.futures.ThreadPoolExecutor(
      num_threads, thread_name_prefix='client'
    )

  def invoke(self, comp: tff.framework.ConcreteComputation, arg):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    Raises:
      UnsupportedComputationError: If `comp` has no MapReduce form.
      ClientError: If the work of a client fails.
    """
    compiled = self._compile(comp)
    if isinstance(compiled, TensorFlowComputation):
      parameter_type = comp.type_signature.parameter
      leaves = values.flatten(arg, parameter_type) if parameter_type else []
      return values.unflatten(compiled(*leaves), comp.type_signature.result)
    server, clients = compiled.split_argument(arg)
    accumulator = self._run_clients(compiled, clients, compiled.prepare(server))
    return compiled.finish(server, accumulator)

  def _compile(self, comp):
    """Returns `comp` compiled, from the cache if it has been seen."""
    if comp in self._compiled:
      self._compiled.move_to_end(comp)
      return self._compiled[comp]
    kind = tff.framework.serialize_computation(comp).WhichOneof('computation')
    if kind == 'tensorflow':
      compiled = TensorFlowComputation(comp, intra_op_threads=self._num_threads)
    else:
      compiled = MapReduceRound(_placed(comp))
    self._compiled[comp] = compiled
    if len(self._compiled) > _MAX_COMPILED:
      self._compiled.popitem(last=False)
    return compiled

  def _run_clients(
    self, compiled: MapReduceRound, clients: Sequence, broadcast: Sequence
  ):
    """Returns the accumulator of all clients."""
    accumulator = compiled.zero()
    pending = collections.deque()
    waiting = iter(clients)
    try:
      for index in range(len(clients)):
        # A few clients ahead of the one that is added up: the threads never
        # wait, and only as many results are in memory.
        while len(pending) <= 2 * self._num_threads:
          client = next(waiting, None)
          if client is None:
            break
          pending.append(self._pool.submit(compiled.work, client, broadcast))
        try:
          contribution = pending.popleft().result()
          accumulator = compiled.accumulate(accumulator, contribution)
        except Exception as e:
          raise ClientError(
            f'Client {index} of {len(clients)} failed '
            f'({_description(clients[index])}): {e}'
          ) from e
    finally:
      # After an error or Ctrl-C: no client starts, and those at work finish.
      for future in pending:
        future.cancel()
      concurrent.futures.wait(pending)
    return accumulator


def set_default_context(*, num_threads: int | None = None) -> None:
  """Makes an `InProcessContext` the one that runs every TFF computation.

  Args:
    num_threads: See `InProcessContext`.
  """
  tff.framework.set_default_context(InProcessContext(num_threads=num_threads))


def _placed(comp):
  """Returns `comp` with its values placed at the server, if they are not."""
  result_type = comp.type_signature.result
  try:
    values.federated_leaves(result_type)
    return comp
  except TypeError:
    pass
  parameter_type = comp.type_signature.parameter
  if parameter_type is None:

    @tff.federated_computation
    def placed():
      return tff.federated_eval(comp, tff.SERVER)
  else:

    @tff.federated_computation(tff.FederatedType(parameter_type, tff.SERVER))
    def placed(value):
      return tff.federated_map(comp, value)

  return placed


def _description(client: Sequence) -> str:
  """Returns the client's values, shortened, to recognise it by."""
  text = ', '.join(str(leaf) for leaf in client)
  return text if len(text) <= 80 else text[:77] + '...'
