"""Runs TFF computations on the machines of a Ray cluster.

The server's part of a round runs in this program. The clients go to workers in
shards: what the server broadcasts goes through Ray's object store, once for
each node, and one partial sum comes back for each shard. They are added up in
the order of the shards, so a round has the bits of `InProcessContext` with as
many shards, whatever happens to the workers.
"""

import atexit
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import ray
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.runtime import shards
from tff_clipping.runtime.in_process import InProcessContext
from tff_clipping.runtime.map_reduce import Accumulator, MapReduceRound
from tff_clipping.runtime.ray import connection
from tff_clipping.runtime.ray.cluster_error import ClusterError
from tff_clipping.runtime.ray.shard_run import ShardRun
from tff_clipping.runtime.ray.shard_worker import MAX_COMPUTATIONS, ShardResult
from tff_clipping.runtime.ray.worker_pool import WorkerPool
from tff_clipping.runtime.tensorflow_computation import (
  is_of_this_process,
  portable,
)

# Between two looks at whether Ray still answers.
_WATCH_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class RoundTimes:
  """Where the time of a round has gone, in seconds.

  Attributes:
    broadcast: Until the last worker had what the server sent, and its clients.
    work: From then until the last worker was done.
    reduce: From then on: the partial sums come in, are added up, and the server
      computes the result.
    num_repeated: The number of shards that were run again.
  """

  broadcast: float
  work: float
  reduce: float
  num_repeated: int


class RayContext(tff.framework.SyncContext):
  """A TFF execution context that runs clients on a Ray cluster."""

  def __init__(
    self,
    *,
    address: str | None = None,
    num_workers: int | None = None,
    threads_per_worker: int = 1,
    num_shards: int | None = None,
    required_paths: Sequence[str | os.PathLike] = (),
    max_client_seconds: float = 3600.0,
  ):
    """Connects to a cluster, and starts the workers.

    Args:
      address: 'host:port' of the head of a cluster that this machine is a node
        of; 'auto' for the one that `ray start` has started here; `None` to
        start one on this machine, on the loopback interface alone.
      num_workers: The number of worker processes, beside a spare one. `None` is
        one for each `threads_per_worker` CPUs, or for each GPU of a node that
        has some.
      threads_per_worker: The number of clients that work at the same time in
        each.
      num_shards: The number of parts in which the clients are added up, on
        which the bits of a result depend; `None` is the number of workers.
      required_paths: Files or folders, such as client stores, that each node
        must have.
      max_client_seconds: How long a client may work. A worker in which one
        takes longer, such as one that reads from a network disk that is gone,
        is given up, and the clients are run again in another one. `math.inf`
        is no limit.

    Raises:
      TypeError: If a number is of another kind.
      ValueError: If a number is not positive, or a path is not absolute.
      ClusterError: If there is no such cluster, it has no room for the workers,
        has other versions of TensorFlow, TFF, NumPy, Python or this package, or
        a node lacks a path.
    """
    counts = dict(
      threads_per_worker=threads_per_worker,
      num_workers=num_workers,
      num_shards=num_shards,
    )
    for name, value in counts.items():
      if value is not None:
        argument_checks.check_integer(name, value, at_least=1)
    argument_checks.check_positive(
      'max_client_seconds', max_client_seconds, allow_inf=True
    )
    paths = [os.fspath(path) for path in required_paths]
    for path in paths:
      if not os.path.isabs(path):
        raise ValueError(
          '`required_paths` must be absolute, since the nodes may run in other '
          f'folders, found {path!r}.'
        )
    num_cpus = threads_per_worker * (
      num_workers or max(1, _num_local_cpus() // threads_per_worker)
    )
    self._server = InProcessContext()
    self._computations: collections.OrderedDict[
      tff.framework.ConcreteComputation, tuple[int, ray.ObjectRef]
    ] = collections.OrderedDict()
    self._keys = itertools.count()
    self._rounds = itertools.count()
    self._last_round: RoundTimes | None = None
    self._is_closed = False
    with contextlib.ExitStack() as stack:
      self._connection = stack.enter_context(
        connection.connect(address, num_cpus=num_cpus)
      )
      self._pool = WorkerPool(
        num_workers=num_workers,
        threads_per_worker=threads_per_worker,
        required_paths=paths,
        max_client_seconds=max_client_seconds,
      )
      stack.callback(self._connection.close, self._pool.close)
      self._open = stack.pop_all()
    self._num_shards = num_shards or self._pool.size
    atexit.register(self.close)

  def __enter__(self) -> 'RayContext':
    return self

  def __exit__(self, *args) -> None:
    self.close()

  @property
  def num_shards(self) -> int:
    """The number of parts in which the clients are added up."""
    return self._num_shards

  @property
  def workers(self) -> list[tuple[str, int]]:
    """The node and the process of each warm worker, the spare one last."""
    return [(w.node, w.greeting.pid) for w in self._pool.warm]

  @property
  def last_round(self) -> RoundTimes | None:
    """Where the time of the last round with clients has gone."""
    return self._last_round

  def close(self) -> None:
    """Ends the workers, and the Ray that was started here."""
    atexit.unregister(self.close)
    self._is_closed = True
    self._open.close()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    Raises:
      UnsupportedComputationError: If nothing here runs a part of `comp`.
      ClientError: If the work of a client fails.
      ClusterError: If no worker is left that could run the clients.
    """
    if self._is_closed:
      raise ClusterError('The context is closed: no cluster runs it any more.')
    compiled = self._server.compile(comp)
    if not isinstance(compiled, MapReduceRound):
      return self._server.invoke(comp, arg)
    server, clients = compiled.split_argument(arg)
    return self._run(comp, compiled, server, clients)

  def _run(
    self,
    comp: tff.framework.ConcreteComputation,
    compiled: MapReduceRound,
    server: Sequence,
    clients: Sequence[Sequence],
  ):
    """Returns what `comp`, which is `compiled`, makes of its argument."""
    if not clients:
      return compiled.finish(
        server,
        compiled.begin(server),
        compiled.zero(),
        comp.type_signature.result,
      )
    clients = [[portable(leaf) for leaf in client] for client in clients]
    _check_portable(clients)
    stop = threading.Event()
    # Not in the main thread: Ray does not let through what a signal's handler
    # raises in the midst of its work, nor does it come back where it is lost.
    result = _in_thread(self._run_round, comp, compiled, server, clients, stop)
    try:
      return self._wait(result)
    except BaseException:
      stop.set()
      with contextlib.suppress(Exception):
        self._wait(result)
      raise

  def _wait(self, result: concurrent.futures.Future):
    """Returns the result of a round, or raises if Ray does not answer."""
    while not result.done():
      self._connection.check()
      concurrent.futures.wait([result], _WATCH_SECONDS)
    return result.result()

  def _run_round(
    self,
    comp: tff.framework.ConcreteComputation,
    compiled: MapReduceRound,
    server: Sequence,
    clients: Sequence[Sequence],
    stop: threading.Event,
  ):
    """Returns the same as `_run`, of one client or more."""
    start = time.time()
    round_num = next(self._rounds)
    prepared = compiled.prepare(server)
    begun = _in_thread(compiled.begin, server)
    with self._connection.call():
      key, computation = self._computation(comp)
      broadcast = ray.put(prepared)

    def submit(actor: ray.actor.ActorHandle, shard: range) -> ray.ObjectRef:
      return actor.run.remote(
        round_num,
        key,
        [computation],
        broadcast,
        clients[shard.start : shard.stop],
        shard,
        len(clients),
      )

    run = ShardRun(
      self._pool,
      round_num,
      shards.split(len(clients), self._num_shards),
      submit,
      self._connection,
      stop,
    )
    started, ended = [], []

    def accumulators(results: Iterable[ShardResult]) -> Iterator[Accumulator]:
      for shard in results:
        if shard.accumulator is None:
          # `results` raises in its place.
          raise RuntimeError(f'A shard of round {round_num} was stopped.')
        started.append(shard.started)
        ended.append(shard.ended)
        yield shard.accumulator

    with contextlib.closing(run.results()) as results:
      accumulator = functools.reduce(compiled.merge, accumulators(results))
    result = compiled.finish(
      server, begun.result(), accumulator, comp.type_signature.result
    )
    all_started = max(started[: self._pool.size])
    self._last_round = RoundTimes(
      broadcast=all_started - start,
      work=max(ended) - all_started,
      reduce=time.time() - max(ended),
      num_repeated=run.num_repeated,
    )
    return result

  def _computation(
    self, comp: tff.framework.ConcreteComputation
  ) -> tuple[int, ray.ObjectRef]:
    """Returns the number and the serialized form of `comp`, sent only once."""
    if comp in self._computations:
      self._computations.move_to_end(comp)
      return self._computations[comp]
    sent = (
      next(self._keys),
      ray.put(tff.framework.serialize_computation(comp)),
    )
    self._computations[comp] = sent
    self._pool.add_computation(*sent)
    if len(self._computations) > MAX_COMPUTATIONS:
      _, (key, _) = self._computations.popitem(last=False)
      self._pool.remove_computation(key)
    return sent


def _check_portable(clients: Sequence[Sequence]) -> None:
  """Raises if a client has a data set that works in this process alone."""
  for position, client in enumerate(clients):
    if any(isinstance(x, bytes) and is_of_this_process(x) for x in client):
      raise ValueError(
        f'Client {position} of {len(clients)} must have a data set that other '
        'processes can read, found one that calls a Python function '
        '(`from_generator`, `py_function`, `numpy_function`). Give its '
        'examples as arrays (`from_tensor_slices`), or read them from a client '
        'store or from files.'
      )


def _in_thread(function: Callable, *args) -> concurrent.futures.Future:
  """Runs a function in a thread that does not keep the program from ending."""
  future: concurrent.futures.Future = concurrent.futures.Future()

  def run():
    try:
      future.set_result(function(*args))
    except BaseException as e:
      future.set_exception(e)

  threading.Thread(target=run, name='ray', daemon=True).start()
  return future


def _num_local_cpus() -> int:
  return len(os.sched_getaffinity(0))
