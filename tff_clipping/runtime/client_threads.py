"""Runs the work of clients in a few threads, and combines it in their order.

A thread combines its client's result at once, if all earlier clients are
combined: the result is still in the cache of the thread's core, and no further
thread is needed.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any


class ClientThreads:
  """The threads of a context. They stay, with their sessions."""

  def __init__(self, num_threads: int):
    """Initializes the threads.

    Args:
      num_threads: How many clients work at the same time.
    """
    self._num_threads = num_threads
    self._pool = concurrent.futures.ThreadPoolExecutor(
      num_threads, thread_name_prefix='client'
    )

  def run(
    self,
    work: Callable[[int], Any],
    combine: Callable[[int, Any], None],
    num_clients: int,
  ) -> None:
    """Runs clients, and returns when all of them have been combined.

    After an error or Ctrl-C no client starts, and those at work finish.

    Args:
      work: Returns the result of the client at a position, in any thread.
      combine: Is called with the position and the result, for one client at a
        time in the order of their positions, in any thread.
      num_clients: The number of clients.

    Raises:
      BaseException: If `work` or `combine` raises; the error of the first
        client.
    """
    turns = _Turns(work, combine, num_clients, num_ahead=2 * self._num_threads)
    running = [
      self._pool.submit(turns.take)
      for _ in range(min(self._num_threads, num_clients))
    ]
    try:
      concurrent.futures.wait(running)
    finally:
      turns.stop()
      concurrent.futures.wait(running)
    turns.raise_error()


class _Turns:
  """Which client is whose turn, for threads that `take` turns."""

  def __init__(
    self,
    work: Callable[[int], Any],
    combine: Callable[[int, Any], None],
    num_clients: int,
    num_ahead: int,
  ):
    """Initializes the turns of `ClientThreads.run`.

    Only `num_ahead` clients are started after the one that is to be combined
    next: only as many results are in memory.
    """
    self._work = work
    self._combine = combine
    self._num_ahead = num_ahead
    self._changed = threading.Condition()
    self._num_started = 0
    self._num_combined = 0
    self._is_combining = False
    self._results: dict[int, Any] = {}
    # What is from here on is not started, and not combined.
    self._end = num_clients
    self._error: BaseException | None = None

  def take(self) -> None:
    """Takes turns until there are none."""
    while (turn := self._start()) is not None:
      try:
        self._results[turn] = self._work(turn)
      except BaseException as e:
        self._fail(turn, e)
      else:
        self._combine_results()

  def stop(self) -> None:
    """Lets nothing begin any more."""
    with self._changed:
      self._end = min(self._end, self._num_combined)
      self._changed.notify_all()

  def raise_error(self) -> None:
    """Raises the error of the first turn that has one, if any."""
    error, self._error = self._error, None
    if error is None:
      return
    try:
      raise error
    finally:
      del error  # It holds this frame.

  def _start(self) -> int | None:
    """Returns the next turn, once it may begin; `None` if there is none."""
    with self._changed:
      self._changed.wait_for(
        lambda: (
          self._num_started >= self._end
          or self._num_started <= self._num_combined + self._num_ahead
        )
      )
      if self._num_started >= self._end:
        return None
      self._num_started += 1
      return self._num_started - 1

  def _combine_results(self) -> None:
    """Combines what is there and next, unless another thread does."""
    while True:
      with self._changed:
        turn = self._num_combined
        if self._is_combining or turn >= self._end or turn not in self._results:
          return
        self._is_combining = True
      try:
        self._combine(turn, self._results.pop(turn))
      except BaseException as e:
        self._fail(turn, e)
      with self._changed:
        self._num_combined += 1
        self._is_combining = False
        self._changed.notify_all()

  def _fail(self, turn: int, error: BaseException) -> None:
    with self._changed:
      if turn < self._end:
        self._end, self._error = turn, error
      self._changed.notify_all()
