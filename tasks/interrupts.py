"""A Ctrl-C while a program imports its modules ends it in one line."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
  """Ends the program on a Ctrl-C in the body, as any other Ctrl-C does.

  Python would print where in which module it was, and modules that are half
  imported turn the exception into others. Programs that handle the signal
  themselves, or ignore it, are left alone.
  """
  if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
    yield
    return
  signal.signal(signal.SIGINT, _end)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(signum: int, frame) -> None:
  del signum, frame
  print('Interrupted.', file=sys.stderr, flush=True)
  # Modules that are half imported have nothing to tidy up.
  os._exit(130)
