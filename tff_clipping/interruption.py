"""Raises Ctrl-C, SIGTERM and SIGHUP when the files are in order.

A signal's exception can be lost: Python drops it in a destructor, and
TensorFlow turns it into another one. So a signal that arrived is kept, and
raised again at the end of the next `shield`.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
  """The signals of a program, from `catch` on.

  Attributes:
    arrived: What the last signal raises, or should have; `None` without one.
  """

  arrived: Interrupted | None = None
  _num_shields = 0

  @contextlib.contextmanager
  def catch(self, signals: Sequence[int] = SIGNALS) -> Iterator[None]:
    """Raises `Interrupted` in the body when one of the signals arrives."""
    global _caught
    if not _in_main_thread():
      # Signals reach the main thread alone; there is nothing to catch here.
      yield
      return
    before = _caught
    handlers = {
      signum: signal.signal(signum, self._handle)
      for signum in signals
      # `nohup` has a program ignore that its terminal is closed.
      if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
    }
    _caught = self
    report = sys.unraisablehook

    def report_others(unraisable) -> None:
      # A signal in a destructor is kept, and raised after the next shield.
      if not isinstance(unraisable.exc_value, Interrupted):
        report(unraisable)

    sys.unraisablehook = report_others
    try:
      yield
    finally:
      sys.unraisablehook = report
      _caught = before
      for signum, handler in handlers.items():
        signal.signal(signum, handler)

  def _handle(self, signum: int, frame) -> None:
    del frame
    self.arrived = Interrupted(signum)
    if not self._num_shields:
      raise self.arrived


_caught: Interruption | None = None


@contextlib.contextmanager
def shield() -> Iterator[None]:
  """Lets the body finish, then raises a signal that arrived or was lost.

  Where nothing catches signals, it does nothing.
  """
  caught = _caught if _in_main_thread() else None
  if caught is None:
    yield
    return
  caught._num_shields += 1
  try:
    yield
  finally:
    caught._num_shields -= 1
  if not caught._num_shields and caught.arrived is not None:
    raise caught.arrived


def _in_main_thread() -> bool:
  return threading.current_thread() is threading.main_thread()
