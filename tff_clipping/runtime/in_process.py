"""Runs TFF computations in this process, a few clients at a time.

A process runs unchanged once `set_default_context` has been called. Clients
stream through a few threads; their results are added up in the order of the
clients, so that a round gives the same bits whatever the threads do. Memory
does not grow with the number of clients, and no worker process starts.
"""

import atexit
import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.runtime import values
from tff_clipping.runtime.client_threads import ClientThreads
from tff_clipping.runtime.map_reduce import (
  Accumulator,
  MapReduceRound,
  NoMapReduceFormError,
  compile_initialization,
)
from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation

_LOG = logging.getLogger(__name__)

# The process that has computed by a context of this module.
_computing_pid: int | None = None

# Compiled computations are kept; a program has a few, a test suite has many.
MAX_COMPILED = 64


class ClientError(RuntimeError):
  """The work of one client failed."""


# What runs a computation; `None` is TFF's own context.
_Compiled = MapReduceRound | TensorFlowComputation | None


class InProcessContext(tff.framework.SyncContext):
  """A TFF execution context that runs rounds in this process.

  A computation that has no MapReduce form runs in TFF's own context, with a
  warning: in a worker process of TFF, which holds what all clients have at
  once, and refuses secure sums.
  """

  def __init__(
    self,
    *,
    num_threads: int | None = None,
    num_shards: int = 1,
    threads_per_client: int = 1,
  ):
    """Initializes the context.

    Args:
      num_threads: The number of clients that work at the same time. `None` is
        the number of CPU cores that this process may use, divided by
        `threads_per_client`.
      num_shards: The number of parts in which the clients are added up. The
        same number as on a cluster gives the same bits as there.
      threads_per_client: The number of threads within an operation of a client.
        1 is best unless there are more cores than clients in a round; another
        number may change the last bits.

    Raises:
      TypeError: If an argument is not an integer.
      ValueError: If an argument is not positive.
    """
    argument_checks.check_integer(
      'threads_per_client', threads_per_client, at_least=1
    )
    argument_checks.check_integer('num_shards', num_shards, at_least=1)
    if num_threads is None:
      num_cores = len(os.sched_getaffinity(0))
      num_threads = max(1, num_cores // threads_per_client)
    argument_checks.check_integer('num_threads', num_threads, at_least=1)
    self._threads_per_client = threads_per_client
    self._num_threads = num_threads
    self._num_shards = num_shards
    # By `id`, which no other computation has as long as one is kept: to hash a
    # computation serializes its graph.
    self._compiled: dict[
      int, tuple[tff.framework.ConcreteComputation, _Compiled]
    ] = {}
    # They stay: each keeps its sessions of what has been compiled.
    self._threads = ClientThreads(num_threads)

  def invoke(self, comp: tff.framework.ConcreteComputation, arg):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    Raises:
      ClientError: If the work of a client fails.
      RuntimeError: If this process was forked from one that has computed here.
    """
    _check_process()
    compiled = self.compile(comp)
    if isinstance(compiled, TensorFlowComputation):
      parameter_type = comp.type_signature.parameter
      leaves = values.flatten(arg, parameter_type) if parameter_type else []
      results = values.detached(compiled(*leaves), leaves)
      return values.unflatten(results, comp.type_signature.result)
    if compiled is None:
      return _native_context().invoke(comp, arg)
    server, clients = compiled.split_argument(arg)
    broadcast = compiled.prepare(server)
    accumulators = (
      self.run_shard(
        compiled,
        broadcast,
        clients[shard.start : shard.stop],
        first=shard.start,
        num_clients=len(clients),
      )
      for shard in split_into_shards(len(clients), self._num_shards)
    )
    accumulator = functools.reduce(compiled.merge, accumulators)
    return compiled.finish(server, accumulator)

  def compile(self, comp: tff.framework.ConcreteComputation) -> _Compiled:
    """Returns the compiled `comp`, from the cache if it is there."""
    # A program runs the same few computations in each round.
    found = self._compiled.pop(id(comp), None) or (comp, self._compile(comp))
    self._compiled[id(comp)] = found
    if len(self._compiled) > MAX_COMPILED:
      del self._compiled[next(iter(self._compiled))]
    return found[1]

  def _compile(self, comp: tff.framework.ConcreteComputation) -> _Compiled:
    kind = tff.framework.serialize_computation(comp).WhichOneof('computation')
    if kind == 'tensorflow':
      return TensorFlowComputation(comp, intra_op_threads=self._num_threads)
    with contextlib.suppress(NoMapReduceFormError):
      return compile_initialization(comp)
    try:
      return MapReduceRound(comp, threads_per_client=self._threads_per_client)
    except NoMapReduceFormError as e:
      _LOG.warning(
        "A computation runs in TFF's own context, slowly and with the memory "
        'of all clients at once: %s',
        str(e).partition('\n')[0],
      )
      return None

  def run_shard(
    self,
    compiled: MapReduceRound,
    broadcast: Sequence,
    clients: Sequence[Sequence],
    *,
    first: int,
    num_clients: int,
  ) -> Accumulator:
    """Returns the sum over consecutive clients.

    Args:
      compiled: What `compile` has returned.
      broadcast: What `compiled.prepare` has returned.
      clients: The leaves of each client of the shard.
      first: The position of the first one among all clients.
      num_clients: The number of all clients, for messages.

    Raises:
      ClientError: If the work of a client fails.
    """
    accumulator: Accumulator | None = None

    def work(position: int) -> Sequence:
      with named(position):
        return compiled.work(clients[position], broadcast)

    def add(position: int, contribution: Sequence) -> None:
      nonlocal accumulator
      with named(position):
        # The first one once clients are at work.
        accumulator = compiled.accumulate(
          accumulator or compiled.zero(), contribution
        )

    @contextlib.contextmanager
    def named(position: int) -> Iterator[None]:
      try:
        yield
      except Exception as e:
        raise ClientError(
          f'Client {first + position} of {num_clients} failed '
          f'({_describe(clients[position])}): {e}'
        ) from e

    self._threads.run(work, add, len(clients))
    return accumulator or compiled.zero()


def split_into_shards(num_clients: int, num_shards: int) -> list[range]:
  """Returns the positions of the clients of each shard.

  A sum of floats depends on the order of its additions. Every context adds up
  the clients of a shard one after the other, from zero, and then the shards one
  after the other: the bits of a sum depend on the number of shards alone.

  Args:
    num_clients: The number of clients, at least 0.
    num_shards: The number of shards to make, at least 1.

  Returns:
    Consecutive ranges, whose lengths differ by at most 1. No range is empty, so
    there are fewer than `num_shards` for fewer clients; without clients there
    is one empty range.
  """
  num_shards = max(1, min(num_shards, num_clients))
  bounds = [i * num_clients // num_shards for i in range(num_shards + 1)]
  return [range(*pair) for pair in itertools.pairwise(bounds)]


def set_default_context(
  *,
  num_threads: int | None = None,
  num_shards: int = 1,
  threads_per_client: int = 1,
) -> None:
  """Makes an `InProcessContext` the one that runs every TFF computation.

  Args:
    num_threads: See `InProcessContext`.
    num_shards: See `InProcessContext`.
    threads_per_client: See `InProcessContext`.
  """
  tff.framework.set_default_context(
    InProcessContext(
      num_threads=num_threads,
      num_shards=num_shards,
      threads_per_client=threads_per_client,
    )
  )


@functools.cache
def _native_context() -> tff.framework.SyncContext:
  """Returns TFF's own context, whose worker process ends with this one."""
  context = tff.backends.native.create_sync_local_cpp_execution_context()
  # Else the worker would go on: it ends once nothing refers to the context.
  atexit.register(_native_context.cache_clear)
  return context


def _check_process() -> None:
  """Raises in a fork of a process that has computed: it would wait forever.

  A fork has none of the threads that TensorFlow and a context wait for.
  """
  global _computing_pid
  if _computing_pid is None:
    _computing_pid = os.getpid()
  if _computing_pid != os.getpid():
    raise RuntimeError(
      f'TensorFlow has computed in process {_computing_pid}, which this one '
      'was forked from, and cannot compute in both. Start processes by '
      "`multiprocessing.get_context('spawn')`."
    )


def _describe(client: Sequence) -> str:
  """Returns the client's values, shortened, to recognise it by."""
  text = ', '.join(
    # The serialized graph of a data set, or itself.
    'a data set' if isinstance(leaf, (bytes, tf.data.Dataset)) else str(leaf)
    for leaf in client
  )
  return text if len(text) <= 80 else text[:77] + '...'
