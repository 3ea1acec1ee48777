"""Runs the coroutines of TFF's managers, with one thread for their files.

`asyncio.run` would make an event loop, and with it new threads, for each of
them. Every thread allocates from a heap of its own, which the C library keeps:
a run grew by 130 MB in its first hundred checkpoints. The loop has a thread of
its own, so that a program can be run where another loop is running, as in a
notebook.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any

_THREAD = 'tff_clipping coroutines'
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine) -> Any:
  """Returns the result of `coroutine`, which is run to its end.

  Args:
    coroutine: A coroutine; its exceptions are raised here.

  Raises:
    RuntimeError: If this is called by a coroutine that is run here, which it
      would wait for.
  """
  loop = _running_loop()
  if threading.current_thread().name == _THREAD:
    coroutine.close()
    raise RuntimeError('A coroutine must await another, and not run it.')
  future = asyncio.run_coroutine_threadsafe(coroutine, loop)
  try:
    return future.result()
  except BaseException:
    # Ctrl-C: what it does must not go on behind the caller's back.
    future.cancel()
    raise


def _running_loop() -> asyncio.AbstractEventLoop:
  global _loop
  with _lock:
    if _loop is None:
      _loop = asyncio.new_event_loop()
      _loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
      threading.Thread(
        target=_loop.run_forever, name=_THREAD, daemon=True
      ).start()
    return _loop


def _forget() -> None:
  """A fork has no threads, and so no running loop."""
  global _lock, _loop
  _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
