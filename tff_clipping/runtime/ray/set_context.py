"""Sets the context of a cluster; looks first whether there is one, and Ray."""

import importlib.util
import os
import socket
from collections.abc import Sequence

import tensorflow_federated as tff

from tff_clipping.runtime.ray.cluster_error import ClusterError

_CONNECT_SECONDS = 5.0

# Read by Ray when it is imported. Nothing is sent to Ray's makers, and nothing
# is printed: what a user must know, `worker_pool` says in one line.
_QUIET = {
  'RAY_USAGE_STATS_ENABLED': '0',
  'RAY_DEDUP_LOGS_SKIP_REGEX': '.*',
  'RAY_BACKEND_LOG_LEVEL': 'fatal',
}


def set_ray_context(
  *,
  address: str | None = None,
  num_workers: int | None = None,
  threads_per_worker: int = 1,
  num_shards: int | None = None,
  required_paths: Sequence[str | os.PathLike] = (),
  max_client_seconds: float = 3600.0,
):
  """Makes a `RayContext` the one that runs every TFF computation.

  Args:
    address: See `RayContext`, as for all.
    num_workers: The number of worker processes.
    threads_per_worker: The clients that work at the same time in each.
    num_shards: The number of parts in which the clients are added up.
    required_paths: What each node must be able to read.
    max_client_seconds: How long a client may work before its worker is given
      up.

  Returns:
    The context. Close it, or use it in a `with` statement, when the last
    computation is done.

  Raises:
    ModuleNotFoundError: If Ray is not installed.
    TypeError: If an argument is of another kind.
    ValueError: If an argument is out of range.
    ClusterError: If there is no such cluster, or it cannot run the rounds.
  """
  if importlib.util.find_spec('ray') is None:
    raise ModuleNotFoundError(
      'Ray is not installed, which runs rounds on a cluster: '
      "`make setup`, or pip install '.[cluster]', in a checkout."
    )
  if address is None or _is_loopback(address):
    # Ray takes a loopback address for one of a network interface, unless it is
    # told that there are no other machines.
    os.environ.setdefault('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
  for name, value in _QUIET.items():
    os.environ.setdefault(name, value)
  from tff_clipping.runtime.ray.context import RayContext

  context = RayContext(
    address=address,
    num_workers=num_workers,
    threads_per_worker=threads_per_worker,
    num_shards=num_shards,
    required_paths=required_paths,
    max_client_seconds=max_client_seconds,
  )
  tff.framework.set_default_context(context)
  return context


def _is_loopback(address: str) -> bool:
  """Returns whether a cluster is on the loopback interface alone.

  Raises:
    TypeError: If `address` is no string.
    ValueError: If it is not an address.
    ClusterError: If nobody listens there; Ray itself would try for minutes.
  """
  if not isinstance(address, str):
    raise TypeError(f'`address` must be a string, found {address!r}.')
  if address == 'auto':
    return False
  host, _, port = address.rpartition(':')
  if not host or not port.isdigit() or '/' in host:
    raise ValueError(
      "`address` must be 'host:port' of the head of a cluster that this "
      f"machine is a node of, or 'auto', found {address!r}."
    )
  try:
    socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
  except OSError as e:
    raise ClusterError(
      f'No Ray cluster answers at {address} ({e}). Start its head there with '
      f'`ray start --head --port={port}`, and join it from this machine with '
      f'`ray start --address={address}`.'
    ) from e
  return host in ('127.0.0.1', 'localhost') and not _listens_outside(int(port))


def _listens_outside(port: int) -> bool:
  """Returns whether a local port is reached by other than the loopback."""
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    try:
      # Sends nothing: it only looks up the interface of the default route.
      probe.connect(('192.0.2.1', 9))
      host = probe.getsockname()[0]
      socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError:
      return False
    return True
