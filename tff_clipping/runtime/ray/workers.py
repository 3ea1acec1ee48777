"""The workers of a cluster, and the shards of a round that they run.

Ray places the workers, and starts a lost worker again where the cluster has
room. `Workers` gives shards to idle workers, and the shard of a lost worker to
the next idle one.
"""

import collections
import contextlib
import logging
import math
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any

import ray

from tff_clipping.runtime import environment
from tff_clipping.runtime.in_process import ClientError, split_into_shards
from tff_clipping.runtime.map_reduce import Accumulator
from tff_clipping.runtime.ray import ClusterError
from tff_clipping.runtime.ray.worker import Worker

_LOG = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
# An import of TensorFlow from a busy network disk takes its time.
_START_SECONDS = 300.0
# Into which Ray divides a CPU or GPU.
_UNITS = 10_000
# A shard that has ended so many workers would end all others too.
_MAX_LOSSES = 4


class Workers:
  """The workers of a context, `size` in number."""

  def __init__(
    self,
    *,
    num_workers: int | None,
    threads_per_worker: int,
    num_gpus: float,
    required_paths: Sequence[str],
    max_client_seconds: float,
    stack: contextlib.ExitStack,
  ):
    """Starts workers until `stack` ends, and waits; see `set_ray_context`."""
    self._needs = dict(CPU=threads_per_worker, GPU=num_gpus)
    self._max_client_seconds = max_client_seconds
    # Ray's handles of the workers: they stay when a worker is started again.
    self._idle: list[Any] = []
    self._starting: dict[ray.ObjectRef, Any] = {}
    # With the index of the shard, and when it must have ended.
    self._running: dict[ray.ObjectRef, tuple[Any, int, float]] = {}
    # The node and the process of each, for messages.
    self._names: dict[Any, str] = {}
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
    for _ in range(self.size):
      actor = build.remote(
        threads_per_worker, environment.versions(), required_paths
      )
      stack.callback(ray.kill, actor)
      self._start(actor)
    started, late = ray.wait(
      [*self._starting], num_returns=self.size, timeout=_START_SECONDS
    )
    if late:
      raise ClusterError(
        f'{len(late)} of {self.size} workers have not started in '
        f'{_START_SECONDS:.0f} seconds: are the CPUs of the cluster taken?'
      )
    for ref in started:
      self._take_in(ref)

  def run(
    self,
    computation: ray.ObjectRef,
    broadcast: ray.ObjectRef,
    clients: Sequence[Sequence],
    num_shards: int,
    stop: threading.Event,
  ) -> Generator[Accumulator, None, None]:
    """Yields the sums of the shards of a round, in their order.

    `computation` is serialized; `stop` ends the round when it is set.
    """
    shards = split_into_shards(len(clients), num_shards)
    todo = collections.deque(range(len(shards)))
    losses: collections.Counter[int] = collections.Counter()
    done: dict[int, Accumulator] = {}
    try:
      for index in range(len(shards)):
        while index not in done:
          if stop.is_set():
            raise ClusterError('The round was stopped.')
          while todo and self._idle:
            actor, i = self._idle.pop(0), todo.popleft()
            shard = clients[shards[i].start : shards[i].stop]
            ref = actor.run.remote(
              [computation], broadcast, shard, shards[i].start, len(clients)
            )
            turns = math.ceil(len(shard) / self._needs['CPU'])
            deadline = time.monotonic() + turns * self._max_client_seconds
            self._running[ref] = actor, i, deadline
          for i in self._wait(done):
            todo.appendleft(i)
            losses[i] += 1
            if losses[i] == _MAX_LOSSES:
              raise ClusterError(
                f'Clients {shards[i].start} to {shards[i].stop - 1} of the '
                f'round have ended {_MAX_LOSSES} workers: is the memory of the '
                'nodes enough for them?'
              )
        yield done.pop(index)
    finally:
      # After an error or Ctrl-C, what still runs is of no use.
      for actor, *_ in self._running.values():
        ray.kill(actor, no_restart=False)
        self._start(actor)
      self._running.clear()

  def _wait(self, done: dict[int, Accumulator]) -> list[int]:
    """Waits a while, adds the sums that came, and returns the lost shards."""
    if not (self._running or (self._starting and self._room())):
      raise ClusterError(
        'No worker of the cluster is left, and none can be started.'
      )
    lost = []
    calls = [*self._running, *self._starting]
    for ref in ray.wait(calls, timeout=_WAIT_SECONDS)[0]:
      if ref in self._starting:
        try:
          self._take_in(ref)
        except ClusterError as e:
          _LOG.warning('%s', e)
        continue
      actor, index, _ = self._running.pop(ref)
      try:
        done[index] = ray.get(ref)
        self._idle.append(actor)
      except ray.exceptions.RayTaskError as e:
        self._idle.append(actor)
        # Of a client, without Ray's traceback; or a fault of the program.
        raise (e.cause if isinstance(e.cause, ClientError) else e) from None
      except ray.exceptions.RayError:
        self._lose(actor, 'it has died')
        lost.append(index)
    for ref, (actor, index, deadline) in [*self._running.items()]:
      if time.monotonic() > deadline:
        del self._running[ref]
        ray.kill(actor, no_restart=False)
        limit = f'{self._max_client_seconds:g} seconds each'
        self._lose(actor, f'its clients have worked for longer than {limit}')
        lost.append(index)
    return lost

  def _lose(self, actor: Any, reason: str) -> None:
    """Reports a worker that Ray starts again."""
    _LOG.warning('Lost the worker on %s: %s.', self._names[actor], reason)
    self._start(actor)

  def _start(self, actor: Any) -> None:
    """Asks a worker for its name, which it gives when it has started."""
    self._starting[actor.name.remote()] = actor

  def _take_in(self, ref: ray.ObjectRef) -> None:
    """Makes a worker that has started idle, or raises why it cannot start."""
    actor = self._starting.pop(ref)
    try:
      self._names[actor] = ray.get(ref)
    except ray.exceptions.RayError as e:
      # Behind Ray's traceback.
      reason = str(e).strip().splitlines()[-1]
      raise ClusterError(f'A worker could not be started: {reason}') from e
    self._idle.append(actor)

  def _room(self) -> int:
    """Returns for how many workers the nodes of the cluster have room."""
    needs = [(name, need) for name, need in self._needs.items() if need]
    return sum(
      min(_fit(node['Resources'].get(name, 0.0), need) for name, need in needs)
      for node in ray.nodes()
      if node['Alive']
    )


def _fit(amount: float, need: float) -> int:
  """Returns how many workers fit into the CPUs or GPUs of a node."""
  if need >= 1:
    return int(amount // need)
  # No worker has a part of one GPU and of another. As floats, 1 // 0.2 is 4.
  return int(amount) * (_UNITS // max(1, round(need * _UNITS)))
