"""Runs the shards of one round on the workers, whatever happens to them."""

import collections
import threading
import time
from collections.abc import Callable, Generator, Sequence

import ray

from tff_clipping.runtime.in_process import ClientError
from tff_clipping.runtime.ray.cluster_error import ClusterError
from tff_clipping.runtime.ray.connection import Connection
from tff_clipping.runtime.ray.shard_worker import ShardResult
from tff_clipping.runtime.ray.worker_pool import WorkerHandle, WorkerPool

_WAIT_SECONDS = 1.0
# A shard that has ended so many workers would end all others too.
_MAX_LOSSES = 4
# How long to wait for a new worker when none is left.
_RECOVERY_SECONDS = 120.0


class ShardRun:
  """The shards of one round.

  Attributes:
    num_repeated: The number of times that a shard was run again.
  """

  def __init__(
    self,
    pool: WorkerPool,
    round_num: int,
    shards: Sequence[range],
    submit: Callable[[ray.actor.ActorHandle, range], ray.ObjectRef],
    connection: Connection,
    stop: threading.Event,
  ):
    """Initializes the run.

    Args:
      pool: The workers.
      round_num: The number of the round.
      shards: The shards to run.
      submit: Gives a shard to a worker; returns the reference of a
        `ShardResult`.
      connection: Is told of each call of Ray.
      stop: Ends the run when it is set.
    """
    self._pool = pool
    self._round_num = round_num
    self._shards = shards
    self._submit = submit
    self._connection = connection
    self._stop = stop
    self._todo = collections.deque(range(len(shards)))
    self._running: dict[ray.ObjectRef, tuple[WorkerHandle, int]] = {}
    self._losses: collections.Counter[int] = collections.Counter()
    self._alone_since: float | None = None
    self.num_repeated = 0

  def results(self) -> Generator[ShardResult, None, None]:
    """Yields the results, in the order of the shards.

    Raises:
      ClientError: If the work of a client fails.
      ClusterError: If no worker is left, a shard ends every worker, or the run
        was stopped.
    """
    done = {}
    try:
      for index in range(len(self._shards)):
        while index not in done:
          if self._stop.is_set():
            raise ClusterError('The round was stopped.')
          with self._connection.call():
            self._assign()
            done.update(self._collect())
        yield done.pop(index)
    finally:
      # After an error or Ctrl-C: no client starts, and those at work finish.
      with self._connection.call():
        for worker, _ in self._running.values():
          worker.actor.stop.remote(self._round_num)

  def _assign(self) -> None:
    """Gives shards to workers that have none."""
    busy = {worker for worker, _ in self._running.values()}
    for worker in self._pool.warm:
      if not self._todo or len(busy) >= self._pool.size:
        return
      if worker not in busy:
        index = self._todo.popleft()
        ref = self._submit(worker.actor, self._shards[index])
        self._running[ref] = worker, index
        busy.add(worker)

  def _collect(self) -> dict[int, ShardResult]:
    """Waits a while, and returns the results that have come."""
    found = {}
    ready, lost = self._pool.wait(list(self._running), _WAIT_SECONDS)
    for ref in ready:
      worker, index = self._running[ref]
      try:
        result = ray.get(ref)
      except ray.exceptions.RayTaskError as e:
        raise ClusterError(
          f'A worker on {worker.node} failed: {e.cause}'
        ) from e
      except ray.exceptions.RayError:
        self._pool.lose(worker, 'it has died')
        lost.append(worker)
        continue
      del self._running[ref]
      if result.client_error is not None:
        raise ClientError(result.client_error)
      found[index] = result
    self._repeat(lost)
    self._check_workers_are_left()
    return found

  def _repeat(self, lost: Sequence[WorkerHandle]) -> None:
    """Puts the shards of lost workers first in line."""
    for ref, (worker, index) in list(self._running.items()):
      if worker in lost:
        del self._running[ref]
        self._todo.appendleft(index)
        self.num_repeated += 1
        self._losses[index] += 1
        if self._losses[index] >= _MAX_LOSSES:
          shard = self._shards[index]
          raise ClusterError(
            f'Clients {shard.start} to {shard.stop - 1} of the round have '
            f'ended {_MAX_LOSSES} workers: is the memory of the nodes enough '
            f'for them? {self._pool.reasons()}'
          )

  def _check_workers_are_left(self) -> None:
    if self._pool.warm:
      self._alone_since = None
      return
    now = time.monotonic()
    if self._alone_since is None:
      self._alone_since = now
    if now - self._alone_since > _RECOVERY_SECONDS or not self._pool.has_room():
      raise ClusterError(
        'No worker of the cluster is left, and none can be started. '
        f'{self._pool.reasons()}'
      )
