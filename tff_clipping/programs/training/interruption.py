"""Ctrl-C, SIGTERM and SIGHUP, at a moment that leaves the files in order."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):  # noqa: N818
  """The user or the system asked the program to stop.

  Not an `Exception`, as `KeyboardInterrupt` is not: nothing on the way may take
  it for a failure.

  Attributes:
    signal: The signal.
    exit_code: What a shell expects of a program ended by it: 130, 143 or 129.
  """

  def __init__(self, signum: int):
    """Initializes the exception with the number of the signal."""
    self.signal = signal.Signals(signum)
    self.exit_code = 128 + signum
    super().__init__(f'Interrupted by {self.signal.name}.')


class Interruption:
  """Turns signals into `Interrupted`, but not within `shield`.

  An exception that a signal raises can be lost: Python drops it in a
  destructor, and TensorFlow makes another one of it. So a signal that arrived
  is kept, and raised again at the end of the next `shield`.
  """

  def __init__(self):
    """Initializes it: nothing is caught, and nothing held back."""
    self._shielded = 0
    self._arrived = None

  @property
  def arrived(self) -> Interrupted | None:
    """What the last signal raises, or should have; `None` without one."""
    return None if self._arrived is None else Interrupted(self._arrived)

  @contextlib.contextmanager
  def catch(self) -> Iterator[None]:
    """Raises `Interrupted` in the body when a signal arrives."""
    if threading.current_thread() is not threading.main_thread():
      # Signals reach the main thread alone; there is nothing to catch here.
      yield
      return
    previous = {
      signum: signal.signal(signum, self._handle)
      for signum in _SIGNALS
      # `nohup` has a program ignore that its terminal is closed.
      if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
    }
    try:
      yield
    finally:
      for signum, handler in previous.items():
        signal.signal(signum, handler)

  @contextlib.contextmanager
  def shield(self) -> Iterator[None]:
    """Lets the body finish first: a signal in it, or lost, is raised then."""
    self._shielded += 1
    try:
      yield
    finally:
      self._shielded -= 1
    if not self._shielded and self._arrived is not None:
      raise Interrupted(self._arrived)

  def _handle(self, signum: int, frame) -> None:
    del frame
    self._arrived = signum
    if not self._shielded:
      raise Interrupted(signum)
