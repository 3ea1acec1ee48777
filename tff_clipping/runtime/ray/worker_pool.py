"""The workers of a cluster: where they are, which are alive, who steps in.

One worker more than needed is kept warm. When one is lost the others go on with
its work at once, and a new one is started beside them.
"""

import collections
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from tff_clipping.runtime import environment
from tff_clipping.runtime.ray import shard_worker
from tff_clipping.runtime.ray.cluster_error import ClusterError

_LOG = logging.getLogger(__name__)

# A worker that says nothing for so long is taken for lost. It answers from a
# thread of its own, however long its clients take.
SILENCE_SECONDS = 10.0
_PING_SECONDS = 1.0
# An import of TensorFlow from a busy network disk takes its time.
_START_SECONDS = 300.0
# Between two attempts to start a worker in place of a lost one; grows if they
# fail.
_RETRY_SECONDS = 5.0
# The part of a GPU that a worker takes: what is left is for a spare, which must
# not wait until the GPU of a lost worker is free.
_GPU_SHARE, _SPARE_GPU_SHARE = 0.9, 0.1


@dataclasses.dataclass(eq=False)
class WorkerHandle:
  """A worker, as seen from the program that drives it.

  Attributes:
    actor: Its handle in Ray.
    greeting: What it said when it started; not there before that.
    node: The name of its node, for messages.
  """

  actor: ray.actor.ActorHandle
  greeting: shard_worker.Greeting = dataclasses.field(init=False, repr=False)
  node: str = ''
  _ping: ray.ObjectRef | None = None
  _last_ping: float = 0.0
  _silence: float = 0.0


class WorkerPool:
  """A number of workers, and a spare one.

  Attributes:
    size: The number of workers that are to work at the same time.
    warm: The workers that are ready, the spare one last.
  """

  def __init__(
    self,
    *,
    num_workers: int | None,
    threads_per_worker: int,
    required_paths: Sequence[str],
    max_client_seconds: float,
  ):
    """Starts the workers, and waits until all are ready.

    Args:
      num_workers: The number of workers; `None` for as many as the cluster has
        room for.
      threads_per_worker: The clients that work at the same time in each; it
        takes so many CPUs.
      required_paths: What each node must be able to read.
      max_client_seconds: How long a client may work: a worker in which one
        takes longer is lost.

    Raises:
      ClusterError: If the cluster has no room, a worker does not start, its
        packages are of other versions, or a path is missing.
    """
    self._threads = threads_per_worker
    self._required_paths = tuple(required_paths)
    self._max_client_seconds = max_client_seconds
    self._computations: collections.OrderedDict[int, ray.ObjectRef] = (
      collections.OrderedDict()
    )
    self._starting: dict[ray.ObjectRef, WorkerHandle] = {}
    self._losses: list[str] = []
    self._failures: list[str] = []
    self._is_started = False
    self._next_start = 0.0
    slots = _slots(ray.nodes(), threads_per_worker)
    if not slots:
      raise ClusterError(
        f'The cluster has no node with {threads_per_worker} CPUs for a worker '
        f'(`threads_per_worker` is {threads_per_worker}).'
      )
    self.size = len(slots) if num_workers is None else num_workers
    if self.size > len(slots):
      raise ClusterError(
        f'`num_workers` must be at most the {len(slots)} for which the cluster '
        f'has CPUs, and GPUs on nodes that have some, found {self.size}.'
      )
    self.warm: list[WorkerHandle] = []
    # The spare is where the workers are fewest, beside the CPUs of others.
    spare = slots[self.size % len(slots)]
    for node_id, num_gpus in slots[: self.size]:
      self._start(node_id, self._threads, num_gpus and _GPU_SHARE)
    self._start(spare[0], 0, spare[1] and _SPARE_GPU_SHARE)
    try:
      self._wait_for_all()
      if fault := _fault(self.warm):
        raise ClusterError(fault)
      self._is_started = True
    except BaseException:
      self.close()
      raise

  def add_computation(self, key: int, computation: ray.ObjectRef) -> None:
    """Lets every worker, and those to come, compile a computation.

    Args:
      key: Its number.
      computation: The reference to its serialized form.
    """
    self._computations[key] = computation
    for worker in self.warm:
      worker.actor.compile.remote(key, [computation])

  def remove_computation(self, key: int) -> None:
    """Lets go of a computation that is not needed any more."""
    self._computations.pop(key, None)

  def wait(
    self, work: Sequence[ray.ObjectRef], seconds: float
  ) -> tuple[list[ray.ObjectRef], list[WorkerHandle]]:
    """Waits until something has happened, and looks after the workers.

    Args:
      work: What the workers are to give.
      seconds: How long to wait at most.

    Returns:
      What of `work` is there, and the workers that have been lost meanwhile.
    """
    start = time.monotonic()
    self._restore(start)
    self._send_pings(start)
    pings = {w._ping: w for w in self.warm if w._ping is not None}
    refs = [*work, *pings, *self._starting]
    ready, _ = ray.wait(refs, timeout=seconds) if refs else ([], [])
    if ready:
      # All that is ready: `ray.wait` returns with the first.
      ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    lost = []
    # If this program paused, the workers have not been silent.
    elapsed = min(time.monotonic() - start, seconds + _PING_SECONDS)
    for ping, worker in pings.items():
      if ping in ready:
        worker._ping, worker._silence = None, 0.0
        worked = _client_seconds(ping)
        if worked is None:
          lost.append((worker, 'it has died'))
        elif worked > self._max_client_seconds:
          lost.append((worker, f'a client has worked for {worked:.0f} seconds'))
        continue
      worker._silence += elapsed
      if worker._silence > SILENCE_SECONDS:
        lost.append((worker, f'no answer for {SILENCE_SECONDS:.0f} seconds'))
    for ref in [r for r in ready if r in self._starting]:
      self._finish_start(ref)
    for worker, reason in lost:
      self.lose(worker, reason)
    asked = set(work)
    return [r for r in ready if r in asked], [w for w, _ in lost]

  def lose(self, worker: WorkerHandle, reason: str) -> None:
    """Gives up a worker; another one will be started in its place.

    Args:
      worker: The worker, which may be lost already.
      reason: Why, for the warning.
    """
    if worker not in self.warm:
      return
    self.warm.remove(worker)
    ray.kill(worker.actor)
    loss = (
      f'Lost a worker on {worker.node} (process {worker.greeting.pid}): '
      f'{reason}.'
    )
    self._losses.append(loss)
    _LOG.warning('%s Workers left: %d.', loss, len(self.warm))

  def has_room(self) -> bool:
    """Returns whether there is a node that could start a worker."""
    return bool(_slots(ray.nodes(), self._threads))

  def reasons(self) -> str:
    """Returns why the last workers were lost, or could not be started."""
    return ' '.join([*self._losses[-2:], *self._failures[-1:]])

  def close(self) -> None:
    """Ends all workers."""
    for worker in [*self.warm, *self._starting.values()]:
      ray.kill(worker.actor)
    self.warm, self._starting = [], {}

  def _start(self, node_id: str | None, num_cpus: int, num_gpus: float) -> None:
    """Starts a worker without waiting for it."""
    options: dict[str, Any] = dict(
      num_cpus=num_cpus,
      num_gpus=num_gpus,
      concurrency_groups={'control': 1},
      # What is lost is started again here, and elsewhere if need be.
      max_restarts=0,
      max_task_retries=0,
    )
    if node_id is not None:
      options['scheduling_strategy'] = (
        ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
          node_id, soft=False
        )
      )
    actor: Any = ray.remote(**options)(shard_worker.Worker).remote(
      self._threads
    )
    greeting = actor.greet.remote(self._required_paths)
    self._starting[greeting] = WorkerHandle(actor)

  def _finish_start(self, greeting_ref: ray.ObjectRef) -> None:
    """Takes in a worker that has started, or drops it if it could not."""
    worker = self._starting.pop(greeting_ref)
    try:
      worker.greeting = ray.get(greeting_ref)
    except ray.exceptions.RayError as e:
      self._failures.append(f'A worker could not be started: {_cause(e)}')
      return
    worker.node = _node_name(worker.greeting.node_id)
    if self._is_started and (fault := _fault([worker])):
      self._failures.append(fault)
      _LOG.warning(self._failures[-1])
      ray.kill(worker.actor)
      return
    if self._is_started:
      self._failures.clear()
      _LOG.warning('A new worker is ready on %s.', worker.node)
    for key, computation in self._computations.items():
      worker.actor.compile.remote(key, [computation])
    self.warm.append(worker)

  def _wait_for_all(self) -> None:
    deadline = time.monotonic() + _START_SECONDS
    expected = list(self._starting.values())
    while self._starting and not self._failures:
      if time.monotonic() > deadline:
        raise ClusterError(
          f'{len(self._starting)} of {len(expected)} workers have not started '
          f'in {_START_SECONDS:.0f} seconds: are the CPUs of the cluster taken?'
        )
      ready, _ = ray.wait(list(self._starting), timeout=_PING_SECONDS)
      for ref in ready:
        self._finish_start(ref)
    if self._failures:
      raise ClusterError(self._failures[0])
    # The spare one last, whichever was the first to be ready.
    self.warm.sort(key=expected.index)

  def _restore(self, now: float) -> None:
    """Starts a worker if there are too few, at first at once."""
    missing = self.size + 1 - len(self.warm) - len(self._starting)
    if missing <= 0 or now < self._next_start:
      return
    for _ in range(missing):
      # Anywhere: the node may be gone. It waits in Ray until there is room.
      self._start(None, self._threads, _gpu_share(ray.cluster_resources()))
    self._next_start = now + _RETRY_SECONDS * 2 ** min(len(self._failures), 6)

  def _send_pings(self, now: float) -> None:
    for worker in self.warm:
      if worker._ping is None and now - worker._last_ping > _PING_SECONDS:
        worker._ping = worker.actor.ping.remote()
        worker._last_ping = now


def _gpu_share(resources: Mapping[str, float]) -> float:
  """Returns the part of a GPU that a worker asks for."""
  return _GPU_SHARE if resources.get('GPU', 0) else 0.0


def _slots(nodes: Sequence[dict], threads: int) -> list[tuple[str, float]]:
  """Returns a node and its number of GPUs for each worker that has room.

  The first workers are on different nodes. On a node with GPUs, there is one
  for each GPU, since clients are faster on one of them than on many CPUs.
  """
  columns = []
  for node in nodes:
    resources = node['Resources'] if node['Alive'] else {}
    num_gpus = int(resources.get('GPU', 0))
    room = int(resources.get('CPU', 0)) // threads
    if num_gpus:
      room = min(room, num_gpus)
    columns.append([(i, (node['NodeID'], num_gpus)) for i in range(room)])
  return [slot for _, slot in sorted(sum(columns, []), key=lambda s: s[0])]


def _client_seconds(ping: ray.ObjectRef) -> float | None:
  """Returns what a worker has answered; `None` if it has died."""
  try:
    return ray.get(ping)
  except ray.exceptions.RayError:
    return None


def _node_name(node_id: str) -> str:
  names = {n['NodeID']: n['NodeName'] for n in ray.nodes()}
  return f'node {names.get(node_id, "unknown")} ({node_id[:8]})'


def _fault(workers: Sequence[WorkerHandle]) -> str:
  """Returns why not all of some workers can be used; nothing if they can."""
  lacking = [w for w in workers if w.greeting.missing_paths]
  if lacking:
    missing = {w.node: ', '.join(w.greeting.missing_paths) for w in lacking}
    return (
      '; '.join(f'{node} lacks {paths}' for node, paths in missing.items())
      + '. Every node must have the same files at the same place: share the '
      'folder, or copy it there.'
    )
  here = environment.versions()
  for worker in workers:
    differences = [
      f'{name} {version} (here {here[name]})'
      for name, version in worker.greeting.versions.items()
      if version != here[name]
    ]
    if differences:
      return (
        f'{worker.node} has {", ".join(differences)}: install the same '
        'versions on all nodes.'
      )
  return ''


def _cause(error: Exception) -> str:
  """Returns the line of Ray's message that says what happened."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  return lines[-1] if lines else type(error).__name__
