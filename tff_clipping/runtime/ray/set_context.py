"""Sets the context of a cluster; looks first for Ray and for the cluster."""

import importlib.util
import os
import re
import socket
from collections.abc import Sequence

import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.runtime.ray import ClusterError

_CONNECT_SECONDS = 5.0

# Ray reads these when it is imported. Nothing is sent to Ray's makers, and Ray
# prints nothing: warnings of this package say what a user must know.
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
  num_gpus: float = 0.0,
  num_shards: int | None = None,
  required_paths: Sequence[str | os.PathLike] = (),
  max_client_seconds: float = 3600.0,
):
  """Makes a `RayContext` the one that runs every TFF computation.

  Args:
    address: 'host:port' of the head of a cluster that this machine is a node
      of; 'auto' for the cluster that `ray start` has started here; `None` to
      start Ray on this machine, on the loopback interface alone.
    num_workers: The number of worker processes. `None` is as many as the
      cluster has room for.
    threads_per_worker: The number of clients that work at the same time in
      each worker, and of CPUs that a worker takes.
    num_gpus: The number of GPUs that a worker takes, as Ray's `num_gpus`.
    num_shards: The number of shards in which the clients are added up, on
      which the last bits of a result depend; `None` is the number of workers.
    required_paths: Files or folders, such as client stores, that each node
      must have.
    max_client_seconds: How long a client may work, with the compilation of the
      round; `math.inf` is no limit. A worker that takes longer, as on a network
      disk that is gone, is started again, and another worker runs its shard.

  Returns:
    The context. Use it in a `with` statement, or close it after the last round.

  Raises:
    ModuleNotFoundError: If Ray is not installed.
    TypeError: If an argument is of another kind.
    ValueError: If an argument is out of range, or a path is not absolute.
    ClusterError: If there is no such cluster, it has no room for the workers,
      it has other versions of TensorFlow, TFF, NumPy, Python or this package,
      or a node lacks a path.
  """
  if importlib.util.find_spec('ray') is None:
    raise ModuleNotFoundError(
      'Ray is not installed, which runs rounds on a cluster: '
      "`make setup`, or pip install '.[cluster]', in a checkout."
    )
  counts = dict(
    threads_per_worker=threads_per_worker,
    num_workers=num_workers,
    num_shards=num_shards,
  )
  for name, value in counts.items():
    if value is not None:
      argument_checks.check_integer(name, value, at_least=1)
  argument_checks.check_non_negative('num_gpus', num_gpus)
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
  if address is None or _find_head(address) in ('127.0.0.1', 'localhost'):
    # Ray takes a loopback address for one of a network interface, unless it is
    # told that there are no other machines.
    os.environ.setdefault('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
  for variable, setting in _QUIET.items():
    os.environ.setdefault(variable, setting)
  from tff_clipping.runtime.ray.context import RayContext

  context = RayContext(
    address,
    num_shards,
    num_workers=num_workers,
    threads_per_worker=threads_per_worker,
    num_gpus=num_gpus,
    required_paths=paths,
    max_client_seconds=max_client_seconds,
  )
  tff.framework.set_default_context(context)
  return context


def _find_head(address: str) -> str:
  """Returns the host of a cluster's head, once the head has answered."""
  if address == 'auto':
    return address
  match = re.fullmatch(r'([^/]+):([0-9]+)', address)
  if match is None:
    raise ValueError(
      "`address` must be 'host:port' of the head of a cluster that this "
      f"machine is a node of, or 'auto', found {address!r}."
    )
  host, port = match.groups()
  try:
    # Ray itself would try for minutes.
    socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
  except OSError as e:
    raise ClusterError(
      f'No Ray cluster answers at {address} ({e}). Start its head there with '
      f'`ray start --head --port={port}`, and join it from this machine with '
      f'`ray start --address={address}`.'
    ) from e
  return host
