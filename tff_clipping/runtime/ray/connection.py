"""Connects this program to Ray, quietly, and leaves nothing of it behind."""

import contextlib
import logging
import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Iterator

import ray

from tff_clipping.runtime.ray.cluster_error import ClusterError

_HEAD = pathlib.Path(__file__).with_name('local_head.py')
_END_SECONDS = 30.0


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
      address = stack.enter_context(_own_head(num_cpus))
    stack.callback(ray.shutdown)
    with _no_output():
      try:
        ray.init(
          address=address, log_to_driver=False, logging_level=logging.CRITICAL
        )
      except (OSError, RuntimeError, ValueError) as e:
        raise ClusterError(f'There is no Ray at {address} to use: {e}') from e
    yield


@contextlib.contextmanager
def _own_head(num_cpus: int) -> Iterator[str]:
  """Yields the address of a Ray of this program's own; see `local_head`."""
  if ray.util.get_node_ip_address() != '127.0.0.1':
    raise ClusterError(
      'Ray was imported before it was known that it is to stay on this '
      'machine: call `set_ray_context` before `import ray`, or `ray.init` '
      'before `set_ray_context`.'
    )
  process = subprocess.Popen(
    [sys.executable, str(_HEAD), str(num_cpus)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # Ctrl-C is for this program, which decides what ends.
    start_new_session=True,
  )
  try:
    address = process.stdout.readline().strip()
    if not address:
      lines = process.communicate()[1].strip().splitlines()
      raise ClusterError(
        'Ray could not be started on this machine: '
        f'{lines[-1] if lines else "it ended without a word."}'
      )
    yield address
  finally:
    # The end of its standard input is what it waits for.
    try:
      process.communicate(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
      process.kill()
      process.communicate()


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
