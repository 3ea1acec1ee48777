"""Connects this program to Ray, quietly, and leaves nothing of it behind."""

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import ray

from tff_clipping.runtime.ray import local_head
from tff_clipping.runtime.ray.cluster_error import ClusterError

# A call takes milliseconds, and that for the sum of a very large model seconds.
CALL_SECONDS = 60.0
_END_SECONDS = 30.0


class Connection:
  """A connection to Ray, which may be lost.

  Ray has no limit to what it waits for where its process on this host, the
  raylet, is stopped. Whatever calls Ray says so, and other threads see how long
  it takes.
  """

  def __init__(self):
    """Initializes a connection that is not lost."""
    self._called = None
    self._is_lost = False

  @contextlib.contextmanager
  def call(self) -> Iterator[None]:
    """Says that the body waits for Ray; its calls are short."""
    self._called = time.monotonic()
    try:
      yield
    finally:
      self._called = None

  def check(self) -> None:
    """Raises if Ray does not answer any more.

    Raises:
      ClusterError: If it has not, for `CALL_SECONDS`. Then nothing of Ray may
        be called.
    """
    called = self._called
    if called is None or time.monotonic() - called < CALL_SECONDS:
      return
    self.give_up()
    raise ClusterError(
      f'Ray on this host has not answered for {CALL_SECONDS:.0f} seconds: its '
      'process `raylet` is stopped, or the host is overloaded.'
    )

  def give_up(self) -> None:
    """Leaves Ray alone: the end of the program would wait for it.

    The program will end with exit code 1, as where Ray itself ends it.
    """
    self._is_lost = True
    atexit.unregister(ray.shutdown)
    atexit.register(_end)

  @property
  def is_lost(self) -> bool:
    """Whether Ray does not answer any more."""
    return self._is_lost

  def close(self, function: Callable[[], None]) -> None:
    """Calls what ends a part of Ray, unless it does not answer."""
    if self._is_lost:
      return
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(_END_SECONDS)
    if thread.is_alive():
      self.give_up()


@contextlib.contextmanager
def connect(address: str | None, *, num_cpus: int) -> Iterator[Connection]:
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
  connection = Connection()
  if ray.is_initialized():
    if address is not None:
      raise ValueError(
        '`address` must be `None` in a program that has called `ray.init` '
        f'itself, found {address!r}.'
      )
    yield connection
    return
  with contextlib.ExitStack() as stack:
    if address is None:
      address = stack.enter_context(_own_head(num_cpus, connection))
    stack.callback(connection.close, ray.shutdown)
    with _no_output():
      try:
        ray.init(
          address=address, log_to_driver=False, logging_level=logging.CRITICAL
        )
      except (OSError, RuntimeError, ValueError) as e:
        raise ClusterError(f'There is no Ray at {address} to use: {e}') from e
    yield connection


@contextlib.contextmanager
def _own_head(num_cpus: int, connection: Connection) -> Iterator[str]:
  """Yields the address of a Ray of this program's own; see `local_head`."""
  if ray.util.get_node_ip_address() != '127.0.0.1':
    raise ClusterError(
      'Ray was imported before it was known that it is to stay on this '
      'machine: call `set_ray_context` before `import ray`, or `ray.init` '
      'before `set_ray_context`.'
    )
  errors = os.dup(2)
  process = subprocess.Popen(
    [sys.executable, local_head.__file__, str(num_cpus), str(errors)],
    pass_fds=[errors],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # Ctrl-C is for this program, which decides what ends.
    start_new_session=True,
  )
  os.close(errors)
  assert process.stdout is not None  # A pipe.
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
    # The end of its standard input is what it waits for. A program that is
    # still connected would end with it: then it ends after the program.
    if not connection.is_lost:
      try:
        process.communicate(local_head.END, timeout=_END_SECONDS)
      except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _end() -> None:
  """Ends the program; what Python does then makes the lost Ray crash."""
  atexit.unregister(_end)
  # What else was to be done at the end.
  atexit._run_exitfuncs()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(1)


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
