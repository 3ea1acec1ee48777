"""What runs in a worker process of the cluster: shards of clients."""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ray
import tensorflow_federated as tff

from tff_clipping.runtime import environment
from tff_clipping.runtime.in_process import ClientError, InProcessContext
from tff_clipping.runtime.map_reduce import Accumulator, MapReduceRound

# Computations that are kept, here and in the program that drives the workers.
MAX_COMPUTATIONS = 64
# More than there are rounds at the same time.
_MAX_STOPPED_ROUNDS = 1000


@dataclasses.dataclass(frozen=True)
class Greeting:
  """What a worker says of itself when it has started.

  Attributes:
    node_id: Ray's name for the node.
    pid: The worker's process there.
    versions: The versions of the packages on which results depend.
    missing_paths: Which of the required paths are not there.
  """

  node_id: str
  pid: int
  versions: dict[str, str]
  missing_paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ShardResult:
  """What a worker returns for a shard.

  Attributes:
    accumulator: The sum over its clients; `None` if a client has failed, or
      the round was stopped.
    client_error: The message of the client that has failed.
    started: When the worker had everything that it needs, in seconds since
      the epoch by its clock.
    ended: When it was done.
  """

  accumulator: Accumulator | None
  client_error: str | None
  started: float
  ended: float


class Worker:
  """A worker; Ray makes an actor of it.

  Shards are run one after the other. `greet`, `ping` and `stop` are answered
  meanwhile, by a thread of their own.
  """

  def __init__(self, num_threads: int):
    """Initializes a worker in which so many clients work at a time."""
    self._context = InProcessContext(num_threads=num_threads)
    self._computations: collections.OrderedDict[int, MapReduceRound] = (
      collections.OrderedDict()
    )
    self._stopped_rounds: collections.deque[int] = collections.deque(
      maxlen=_MAX_STOPPED_ROUNDS
    )
    self._clock = _Clock()

  def compile(self, key: int, computation: Sequence[ray.ObjectRef]) -> None:
    """Makes a computation ready to run.

    Args:
      key: The number of the computation.
      computation: A list of the reference to the serialized computation, which
        is fetched only if it is new.
    """
    self._compiled(key, computation)

  def run(
    self,
    round_num: int,
    key: int,
    computation: Sequence[ray.ObjectRef],
    broadcast: Sequence[np.ndarray],
    clients: Sequence[Sequence],
    shard: range,
    num_clients: int,
  ) -> ShardResult:
    """Runs a shard of clients.

    Args:
      round_num: The number of the round, for `stop`.
      key: See `compile`.
      computation: See `compile`.
      broadcast: What the server sends to all.
      clients: The leaves of the clients of the shard.
      shard: Their positions among all clients.
      num_clients: The number of all clients.
    """
    started = time.time()
    compiled = self._compiled(key, computation)
    accumulator = client_error = None

    def work(client: Sequence) -> Sequence:
      with self._clock.running():
        return compiled.work(client, broadcast)

    try:
      accumulator = self._context.run_shard(
        compiled,
        work,
        _ShardClients(
          clients, shard, num_clients, lambda: round_num in self._stopped_rounds
        ),
        shard,
      )
    except _Stopped:
      pass
    except ClientError as e:
      # Not raised: Ray would put its own traceback around it.
      client_error = str(e)
    return ShardResult(accumulator, client_error, started, time.time())

  @ray.method(concurrency_group='control')
  def greet(self, required_paths: Sequence[str]) -> Greeting:
    """Returns who this is, and which paths are missing here."""
    return Greeting(
      node_id=ray.get_runtime_context().get_node_id(),
      pid=os.getpid(),
      versions=environment.versions(),
      missing_paths=tuple(
        path for path in required_paths if not pathlib.Path(path).exists()
      ),
    )

  @ray.method(concurrency_group='control')
  def ping(self) -> float:
    """Returns how long the client that began first has worked, in seconds."""
    return self._clock.longest()

  @ray.method(concurrency_group='control')
  def stop(self, round_num: int) -> None:
    """Starts no more clients of a round; others may be of another thread."""
    self._stopped_rounds.append(round_num)

  def _compiled(self, key: int, computation: Sequence[ray.ObjectRef]):
    if key not in self._computations:
      self._computations[key] = tff.framework.deserialize_computation(
        ray.get(computation[0])
      )
      if len(self._computations) > MAX_COMPUTATIONS:
        self._computations.popitem(last=False)
    self._computations.move_to_end(key)
    return self._context.compile(self._computations[key])


class _Stopped(Exception):  # noqa: N818
  """The round was stopped."""


class _Clock:
  """Looks how long clients work, in several threads."""

  def __init__(self):
    self._keys = itertools.count()
    self._started = {}

  @contextlib.contextmanager
  def running(self) -> Iterator[None]:
    """Takes the time of the body."""
    key = next(self._keys)
    self._started[key] = time.monotonic()
    try:
      yield
    finally:
      del self._started[key]

  def longest(self) -> float:
    """Returns the seconds since the first of those that run has begun."""
    now = time.monotonic()
    return now - min(self._started.copy().values(), default=now)


class _ShardClients(Sequence):
  """The clients of a round, of which only those of a shard are here."""

  def __init__(
    self,
    clients: Sequence[Sequence],
    shard: range,
    num_clients: int,
    is_stopped: Callable[[], bool],
  ):
    self._clients = clients
    self._shard = shard
    self._num_clients = num_clients
    self._is_stopped = is_stopped

  def __len__(self) -> int:
    return self._num_clients

  def __getitem__(self, position: Any) -> Any:
    if self._is_stopped():
      raise _Stopped
    return self._clients[position - self._shard.start]
