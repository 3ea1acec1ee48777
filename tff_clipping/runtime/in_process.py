"""Runs TFF computations in this process, a few clients at a time.

A process runs unchanged once `set_default_context` has been called. Clients
stream through a few threads; their results are added up in the order of the
clients, so that a round gives the same bits whatever the threads do. Memory
does not grow with the number of clients, and no worker process starts.
"""

import collections
import concurrent.futures
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.runtime import shards, values
from tff_clipping.runtime.client_threads import ClientThreads
from tff_clipping.runtime.interpreter import InterpretedComputation
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
_MAX_COMPILED = 64


class ClientError(RuntimeError):
  """The work of one client failed."""


_Compiled = MapReduceRound | TensorFlowComputation | InterpretedComputation


class InProcessContext(tff.framework.SyncContext):
  """A TFF execution context that runs rounds in this process."""

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
      num_shards: The number of parts in which the clients are added up: as many
        as on a cluster, for the same bits as there.
      threads_per_client: The number of threads inside of an operation of a
        client. 1 is best unless there are more cores than clients in a round
        (docs/benchmarks.md); another number may change the last bits.

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
    self._compiled: collections.OrderedDict[_Hashed, _Compiled] = (
      collections.OrderedDict()
    )
    # By `id`, which no other computation has as long as one is kept.
    self._hashed: dict[int, _Hashed] = {}
    # They stay: each keeps its sessions of what has been compiled.
    self._threads = ClientThreads(num_threads)

  def invoke(self, comp: tff.framework.ConcreteComputation, arg):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    Raises:
      UnsupportedComputationError: If nothing here runs a part of `comp`.
      ClientError: If the work of a client fails.
      RuntimeError: If this process was forked from one that has computed here.
    """
    _check_process()
    compiled = self.compile(comp)
    result_type = comp.type_signature.result
    if isinstance(compiled, TensorFlowComputation):
      parameter_type = comp.type_signature.parameter
      leaves = values.flatten(arg, parameter_type) if parameter_type else []
      return values.unflatten(
        values.detached(compiled(*leaves), leaves), result_type
      )
    if isinstance(compiled, InterpretedComputation):
      return compiled(arg, self._run_clients, result_type)
    server, clients = compiled.split_argument(arg)
    broadcast = compiled.prepare(server)
    all_shards = shards.split(len(clients), self._num_shards)
    begun: list[concurrent.futures.Future] = []

    def begin() -> None:
      # By a thread that has no client left, while others have.
      begun.append(self._threads.submit(compiled.begin, server))

    accumulators = (
      self.run_shard(
        compiled,
        lambda c: compiled.work(c, broadcast),
        clients,
        shard,
        when_submitted=begin if shard is all_shards[-1] else None,
      )
      for shard in all_shards
    )
    try:
      accumulator = functools.reduce(compiled.merge, accumulators)
    except BaseException:
      for future in begun:
        future.cancel()
      concurrent.futures.wait(begun)
      raise
    return compiled.finish(server, begun[0].result(), accumulator, result_type)

  def compile(self, comp: tff.framework.ConcreteComputation) -> _Compiled:
    """Returns `comp` compiled, from the cache if it has been seen.

    Raises:
      UnsupportedComputationError: If nothing here runs a part of `comp`.
    """
    # A program runs the same few computations in each round.
    hashed = self._hashed.get(id(comp)) or _Hashed(comp)
    if len(self._hashed) > _MAX_COMPILED:
      self._hashed.clear()
    self._hashed[id(comp)] = hashed
    compiled = self._compiled.pop(hashed, None) or self._compile(comp)
    self._compiled[hashed] = compiled
    if len(self._compiled) > _MAX_COMPILED:
      self._compiled.popitem(last=False)
    return compiled

  def _compile(self, comp: tff.framework.ConcreteComputation) -> _Compiled:
    kind = tff.framework.serialize_computation(comp).WhichOneof('computation')
    if kind == 'tensorflow':
      return TensorFlowComputation(comp, intra_op_threads=self._num_threads)
    with contextlib.suppress(NoMapReduceFormError):
      return compile_initialization(comp)
    try:
      return MapReduceRound(comp, threads_per_client=self._threads_per_client)
    except NoMapReduceFormError as e:
      _LOG.info('A computation has no MapReduce form, and needs memory: %s', e)
      return InterpretedComputation(
        comp, threads_per_client=self._threads_per_client
      )

  def run_shard(
    self,
    compiled: MapReduceRound,
    work: Callable[[Sequence], Sequence],
    clients: Sequence,
    shard: range,
    *,
    when_submitted: Callable[[], None] | None = None,
  ) -> Accumulator:
    """Returns the accumulator of some of the clients.

    Args:
      compiled: What `compile` has returned.
      work: Returns what a client sends: its `compiled.work`.
      clients: The leaves of each client of the round.
      shard: The positions of the clients to run.
      when_submitted: Is called once all of them have been given to the threads.

    Raises:
      ClientError: If the work of a client fails.
    """
    accumulator: Accumulator | None = None

    def add(position: int, contribution: Sequence) -> None:
      nonlocal accumulator
      with _client_named(clients, position):
        # The first one once clients are at work.
        accumulator = compiled.accumulate(
          accumulator or compiled.zero(), contribution
        )

    self._threads.run(
      functools.partial(_work_of, work, clients),
      add,
      shard,
      when_submitted=when_submitted,
    )
    return accumulator or compiled.zero()

  def _run_clients(self, work: Callable, clients: Sequence) -> list:
    """Returns what `work` makes of each client, in order."""
    results: list = []
    self._threads.run(
      functools.partial(_work_of, work, clients),
      lambda _, result: results.append(result),
      range(len(clients)),
    )
    return results


class _Hashed:
  """A computation, hashed once.

  To hash one takes as long as its graph is large, which is serialized for it.
  """

  def __init__(self, comp: tff.framework.ConcreteComputation):
    self._comp = comp
    self._hash = hash(comp)

  def __hash__(self) -> int:
    return self._hash

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _Hashed) and self._comp == other._comp


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


def _work_of(work: Callable, clients: Sequence, position: int):
  """Returns what `work` makes of the client at a position."""
  client = clients[position]
  with _client_named(clients, position):
    return work(client)


@contextlib.contextmanager
def _client_named(clients: Sequence, position: int) -> Iterator[None]:
  """Names the client in an error of the body."""
  try:
    yield
  except Exception as e:
    raise ClientError(
      f'Client {position} of {len(clients)} failed '
      f'({_description(clients[position])}): {e}'
    ) from e


def _description(client) -> str:
  """Returns the client's values, shortened, to recognise it by."""
  leaves = client if isinstance(client, (list, tuple)) else [client]
  text = ', '.join(
    # The serialized graph of one, or itself.
    'a data set' if isinstance(leaf, (bytes, tf.data.Dataset)) else str(leaf)
    for leaf in leaves
  )
  return text if len(text) <= 80 else text[:77] + '...'
