"""Runs TFF computations on the machines of a Ray cluster.

The server's part of a round runs in this program. Workers run the clients in
shards: one broadcast goes to each node, and one partial sum comes back for each
shard. The sums are added up in the order of the shards, so a round has the bits
of `InProcessContext` with as many shards, whatever happens to the workers.
"""

import atexit
import concurrent.futures
import contextlib
import functools
import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import ray
import tensorflow_federated as tff

from tff_clipping.runtime.in_process import InProcessContext
from tff_clipping.runtime.map_reduce import MapReduceRound
from tff_clipping.runtime.ray import ClusterError
from tff_clipping.runtime.ray.workers import Workers
from tff_clipping.runtime.tensorflow_computation import (
  is_of_this_process,
  portable,
)

_LOOPBACK = '127.0.0.1'


class RayContext(tff.framework.SyncContext, contextlib.AbstractContextManager):
  """A TFF execution context that runs clients on a Ray cluster.

  Attributes:
    num_shards: The number of shards in which the clients are added up.
  """

  def __init__(
    self, address: str | None, num_shards: int | None, **workers: Any
  ):
    """Connects to a cluster, and starts `Workers`; see `set_ray_context`."""
    self._server = InProcessContext()
    # Of what has been compiled, the reference to its serialized form.
    self._sent: weakref.WeakKeyDictionary[MapReduceRound, ray.ObjectRef] = (
      weakref.WeakKeyDictionary()
    )
    threads = workers['threads_per_worker']
    num_workers = workers['num_workers'] or max(
      1, len(os.sched_getaffinity(0)) // threads
    )
    with contextlib.ExitStack() as stack:
      _connect(address, num_cpus=num_workers * threads, stack=stack)
      self._workers = Workers(**workers, stack=stack)
      # Not in the main thread: Ray does not let through what a signal's handler
      # raises in the midst of its work.
      self._thread = concurrent.futures.ThreadPoolExecutor(1, 'ray')
      stack.callback(self._thread.shutdown, wait=False)
      self._open = stack.pop_all()
    self.num_shards = num_shards or self._workers.size
    atexit.register(self.close)
    self._open.callback(atexit.unregister, self.close)

  def close(self) -> None:
    """Ends the workers, and the Ray that was started here."""
    self._open.close()

  def __exit__(self, *_: object) -> None:
    self.close()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    Raises:
      ClientError: If the work of a client fails.
      ClusterError: If no worker is left that could run the clients.
      RuntimeError: If the context is closed.
    """
    compiled = self._server.compile(comp)
    if not isinstance(compiled, MapReduceRound):
      return self._server.invoke(comp, arg)
    server, clients = compiled.split_argument(arg)
    if not clients:
      return self._server.invoke(comp, arg)
    clients = [[portable(leaf) for leaf in client] for client in clients]
    _check_portable(clients)
    stop = threading.Event()

    def run():
      if compiled not in self._sent:
        self._sent[compiled] = ray.put(
          tff.framework.serialize_computation(comp)
        )
      broadcast = ray.put(compiled.prepare(server))
      sums = self._workers.run(
        self._sent[compiled], broadcast, clients, self.num_shards, stop
      )
      with contextlib.closing(sums):
        accumulator = functools.reduce(compiled.merge, sums)
      return compiled.finish(server, accumulator)

    result = self._thread.submit(run)
    try:
      return result.result()
    finally:
      stop.set()
      concurrent.futures.wait([result])


def _connect(
  address: str | None, *, num_cpus: int, stack: contextlib.ExitStack
) -> None:
  """Connects to a cluster, or starts Ray here, until `stack` ends."""
  # A connection that the program has made before is kept.
  if address is None and ray.is_initialized():
    return
  options: dict[str, Any] = dict(address=address)
  if address is None:
    if ray.util.get_node_ip_address() != _LOOPBACK:
      raise ClusterError(
        'Ray was imported before it was known that it is to stay on this '
        'machine: call `set_ray_context` before `import ray`, or `ray.init` '
        'before `set_ray_context`.'
      )
    # Ray's own folder is left alone: it says which cluster 'auto' is. In /tmp,
    # because the paths of Ray's sockets must be short.
    folder = stack.enter_context(
      tempfile.TemporaryDirectory(
        prefix='ray-', dir='/tmp', ignore_cleanup_errors=True
      )
    )
    # Whoever reaches the ports of Ray can run any code.
    options = dict(
      address='local',
      num_cpus=num_cpus,
      include_dashboard=False,
      _node_ip_address=_LOOPBACK,
      _temp_dir=folder,
    )
  try:
    with _no_output():
      ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
  except (OSError, RuntimeError, ValueError) as e:
    raise ClusterError(f'There is no Ray at {address} to use: {e}') from e
  stack.callback(ray.shutdown)


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
  """Drops what the body prints, by Python or not, on the standard error."""
  saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(nothing, 2)
  try:
    yield
  finally:
    os.dup2(saved, 2)
    os.close(saved)
    os.close(nothing)


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
