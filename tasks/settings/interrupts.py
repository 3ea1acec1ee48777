"""A Ctrl-C before a run has begun ends a program in one line.

In a run, `tff_clipping.programs.training.interruption` takes over.
"""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator

_received = False


@contextlib.contextmanager
def importing() -> Iterator[None]:
  """Ends the program on a Ctrl-C in the body, as any other Ctrl-C does.

  Python would print where in which module it was, and modules that are half
  imported turn the exception into others. Programs that handle the signal
  themselves, or ignore it, are left alone.

  Nor does Python look for garbage in the body. Modules make nothing else than
  what stays, and for TensorFlow and TFF the search takes half a second.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    with _handling(_end):
      yield
  finally:
    if was_enabled:
      gc.enable()


@contextlib.contextmanager
def remembering() -> Iterator[None]:
  """Raises `KeyboardInterrupt` on a Ctrl-C in the body, and remembers it.

  The exception can be lost: Python drops it in a destructor, and TensorFlow
  makes another one of it. `check` raises it again.
  """
  with _handling(_remember):
    yield


def was_received() -> bool:
  """Returns whether there was a Ctrl-C within `remembering`."""
  return _received


def check() -> None:
  """Raises `KeyboardInterrupt` if there was a Ctrl-C within `remembering`."""
  if _received:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handling(handler) -> Iterator[None]:
  """Handles a Ctrl-C in the body, where Python or we would."""
  previous = signal.getsignal(signal.SIGINT)
  if previous not in (signal.default_int_handler, _remember):
    yield
    return
  signal.signal(signal.SIGINT, handler)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, previous)


def _remember(signum: int, frame) -> None:
  global _received
  del signum, frame
  _received = True
  raise KeyboardInterrupt


def _end(signum: int, frame) -> None:
  del signum, frame
  print('Interrupted.', file=sys.stderr, flush=True)
  # Modules that are half imported have nothing to tidy up.
  os._exit(130)
