"""The workers of a cluster, and the shards of a round that they run.

Ray places the workers, and starts a lost worker again where the cluster has
room. `Workers` gives shards to idle workers, and the shard of a lost worker to
the next idle one.
"""

import collections
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import ray

from tff_clipping.runtime import environment
from tff_clipping.runtime.in_process import ClientError
from tff_clipping.runtime.map_reduce import Accumulator
from tff_clipping.runtime.ray.cluster_error import ClusterError
from tff_clipping.runtime.ray.worker import Worker

_LOG = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
# An import of TensorFlow from a busy network disk takes its time.
_START_SECONDS = 300.0
# A shard that has ended so many workers would end all others too.
_MAX_LOSSES = 4


class Workers:
  """The workers of a context.

  Attributes:
    size: Their number.
  """

  def __init__(
    self,
    *,
    num_workers: int | None,
    threads_per_worker: int,
    num_gpus: float,
    required_paths: Sequence[str],
    max_client_seconds: float,
  ):
    """Starts the workers, and waits until all are ready; see `set_ray_context`.

    Raises:
      ClusterError: If the cluster has no room, a worker does not start, its
        packages are of other versions, or a path is missing.
    """
    self._needs = dict(CPU=threads_per_worker, GPU=num_gpus)
    self._required_paths = tuple(required_paths)
    self._max_client_seconds = max_client_seconds
    # Ray's handles of the workers: they stay when a worker is started again.
    self._idle: list[Any] = []
    self._starting: dict[ray.ObjectRef, Any] = {}
    self._running: dict[ray.ObjectRef, tuple[Any, int, float]] = {}
    # The node and the process of each, for messages.
    self._names: dict[Any, str] = {}
    self._last_loss = ''
    room = self._room()
    self.size = room if num_workers is None else num_workers
    if not 0 < self.size <= room:
      raise ClusterError(
        f'`num_workers` must be from 1 to {room}, the workers with '
        f'{threads_per_worker} CPUs and {num_gpus:g} GPUs each for which the '
        f'cluster has room, found {self.size}.'
      )
    build = ray.remote(
      num_cpus=threads_per_worker,
      num_gpus=num_gpus,
      scheduling_strategy='SPREAD',
      max_restarts=-1,
    )(Worker)
    self._actors = [build.remote(threads_per_worker) for _ in range(self.size)]
    try:
      for actor in self._actors:
        self._greet(actor)
      started, late = ray.wait(
        list(self._starting), num_returns=self.size, timeout=_START_SECONDS
      )
      if late:
        raise ClusterError(
          f'{len(late)} of {self.size} workers have not started in '
          f'{_START_SECONDS:.0f} seconds: are the CPUs of the cluster taken?'
        )
      for ref in started:
        if fault := self._take_in(ref):
          raise ClusterError(fault)
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """Ends all workers."""
    for actor in self._actors:
      ray.kill(actor)

  def run(
    self,
    shards: Sequence[range],
    submit: Callable[[Any, range], ray.ObjectRef],
    stop: threading.Event,
  ) -> Generator[Accumulator, None, None]:
    """Yields the sums of the shards of a round, in their order.

    Args:
      shards: The positions of the clients of each shard.
      submit: Gives a shard to an actor; returns the reference of the sum.
      stop: Ends the round when it is set.

    Raises:
      ClientError: If the work of a client fails.
      ClusterError: If no worker is left, a shard ends every worker, or the
        round was stopped.
    """
    todo = collections.deque(range(len(shards)))
    losses: collections.Counter[int] = collections.Counter()
    done: dict[int, Accumulator] = {}
    try:
      for index in range(len(shards)):
        while index not in done:
          if stop.is_set():
            raise ClusterError('The round was stopped.')
          while todo and self._idle:
            actor, shard = self._idle.pop(0), todo.popleft()
            turns = math.ceil(len(shards[shard]) / self._needs['CPU'])
            deadline = time.monotonic() + turns * self._max_client_seconds
            ref = submit(actor, shards[shard])
            self._running[ref] = actor, shard, deadline
          for shard in self._wait(done):
            todo.appendleft(shard)
            losses[shard] += 1
            if losses[shard] == _MAX_LOSSES:
              clients = shards[shard]
              raise ClusterError(
                f'Clients {clients.start} to {clients.stop - 1} of the round '
                f'have ended {_MAX_LOSSES} workers: is the memory of the nodes '
                f'enough for them? {self._last_loss}'
              )
        yield done.pop(index)
    finally:
      # After an error or Ctrl-C, what still runs is of no use.
      for actor, *_ in self._running.values():
        self._restart(actor)
      self._running.clear()

  def _wait(self, done: dict[int, Accumulator]) -> list[int]:
    """Waits a while, adds the sums that came, and returns the lost shards.

    Raises:
      ClientError: If the work of a client has failed.
      ClusterError: If no worker is left.
    """
    lost = []
    refs = [*self._running, *self._starting]
    ready, _ = ray.wait(refs, timeout=_WAIT_SECONDS) if refs else ([], [])
    for ref in ready:
      if ref in self._starting:
        if fault := self._take_in(ref):
          self._report(fault)
        continue
      actor, shard, _ = self._running.pop(ref)
      try:
        result = ray.get(ref)
      except ray.exceptions.RayTaskError as e:
        self._idle.append(actor)
        raise ClusterError(
          f'The worker on {self._names[actor]} failed: {e.cause}'
        ) from e
      except ray.exceptions.RayError:
        self._report(f'Lost the worker on {self._names[actor]}: it has died.')
        self._greet(actor)
        lost.append(shard)
        continue
      self._idle.append(actor)
      if isinstance(result, str):
        raise ClientError(result)
      done[shard] = result
    for ref, (actor, shard, deadline) in [*self._running.items()]:
      if time.monotonic() > deadline:
        del self._running[ref]
        self._report(
          f'Lost the worker on {self._names[actor]}: its clients have worked '
          f'for longer than {self._max_client_seconds:g} seconds each.'
        )
        self._restart(actor)
        lost.append(shard)
    can_start = self._starting and self._room()
    if not (self._idle or self._running or can_start):
      raise ClusterError(
        'No worker of the cluster is left, and none can be started. '
        f'{self._last_loss}'
      )
    return lost

  def _greet(self, actor: Any) -> None:
    """Asks a worker whether it can be used, without waiting for the answer."""
    ref = actor.greet.remote(environment.versions(), self._required_paths)
    self._starting[ref] = actor

  def _restart(self, actor: Any) -> None:
    ray.kill(actor, no_restart=False)
    self._greet(actor)

  def _take_in(self, ref: ray.ObjectRef) -> str:
    """Makes a worker that is ready idle, or returns why it cannot be used."""
    actor = self._starting.pop(ref)
    try:
      self._names[actor], fault = ray.get(ref)
    except ray.exceptions.RayError as e:
      lines = [line.strip() for line in str(e).splitlines() if line.strip()]
      return f'A worker could not be started: {[type(e).__name__, *lines][-1]}'
    if fault:
      ray.kill(actor)
      return f'The worker on {self._names[actor]} {fault}'
    self._idle.append(actor)
    return ''

  def _report(self, loss: str) -> None:
    self._last_loss = loss
    _LOG.warning('%s', loss)

  def _room(self) -> int:
    """Returns for how many workers the nodes of the cluster have room."""
    return sum(
      int(
        min(
          node['Resources'].get(name, 0.0) // need
          for name, need in self._needs.items()
          if need
        )
      )
      for node in ray.nodes()
      if node['Alive']
    )
