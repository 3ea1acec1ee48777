"""Locks that one program at a time can have; the system ends them with it."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def locked(path: pathlib.Path, taken: Exception) -> Iterator[None]:
  """Holds the lock of a file or folder, which one program at a time can have.

  On a disk without locks nothing tells of another program.

  Args:
    path: The file or folder, which must exist.
    taken: What is raised if another program has the lock.

  Raises:
    OSError: If the path cannot be opened.
  """
  lock = os.open(path, os.O_RDONLY)
  try:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise taken from e
    except OSError:
      pass  # Some network disks have no locks.
    yield
  finally:
    os.close(lock)
