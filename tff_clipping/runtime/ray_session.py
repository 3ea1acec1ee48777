"""Connects this program to Ray, quietly, and leaves nothing of it behind.

Without an address, a Ray of this program's own is started, on the loopback
interface alone: whoever reaches the ports of a Ray can run any code in it.
"""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator

import ray

from tff_clipping.runtime.cluster import ClusterError

_LOOPBACK = '127.0.0.1'


@contextlib.contextmanager
def connect(address: str | None, *, num_cpus: int) -> Iterator[None]:
  """Connects to a cluster, or starts one here for as long as the body runs.

  A connection that the program has made before is used, and kept.

  Args:
    address: 'host:port' of the head of a cluster that this machine is a node
      of; 'auto' for the one that `ray start` has started here; `None` to start
      one on this machine, on the loopback interface alone.
    num_cpus: The number of CPUs of the one that is started.

  Raises:
    ValueError: If `address` is given, and the program is connected already.
    ClusterError: If there is no such cluster, or it does not fit.
  """
  if ray.is_initialized():
    if address is not None:
      raise ValueError(
        '`address` must be `None` in a program that has called `ray.init` '
        f'itself, found {address!r}.'
      )
    yield
    return
  with contextlib.ExitStack() as stack:
    if address is None:
      # Ray's own folder is left alone: it says which cluster 'auto' is. In
      # /tmp, because the paths of its sockets must be short.
      folder = tempfile.mkdtemp(prefix='ray-', dir='/tmp')
      stack.callback(shutil.rmtree, folder, ignore_errors=True)
      options = dict(
        address='local',
        num_cpus=num_cpus,
        include_dashboard=False,
        _node_ip_address=_LOOPBACK,
        _temp_dir=folder,
      )
    else:
      options = dict(address=address)
    stack.callback(ray.shutdown)
    with _kept_signal_handlers(), _no_output():
      try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
      except (OSError, RuntimeError, ValueError) as e:
        where = 'on this machine' if address is None else f'at {address}'
        raise ClusterError(f'There is no Ray {where} to use: {e}') from e
    yield


@contextlib.contextmanager
def _kept_signal_handlers() -> Iterator[None]:
  """Undoes what the body does to the handler of SIGTERM, as `ray.init` does."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  handler = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
  """Drops what the body prints, by Python or not, on the standard error."""
  saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(nothing, 2)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      yield
  finally:
    os.dup2(saved, 2)
    os.close(saved)
    os.close(nothing)
