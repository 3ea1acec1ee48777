"""Files that are whole or not there, and errors that say what failed.

A program that runs for days meets kill -9, power cuts and full disks. What it
writes goes beside its place first, is synced, and is renamed.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

import tensorflow as tf


class StorageError(OSError):
  """A file of a run is damaged, or could not be written."""


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
  """Turns the errors of file systems in the body into a `StorageError`.

  Args:
    what: What is written, as the subject of a sentence.

  Raises:
    StorageError: If the body raised an error of a file system; in one line.
  """
  try:
    yield
  except StorageError:
    raise
  except (OSError, tf.errors.OpError) as e:
    raise StorageError(f'{what} could not be written: {_reason(e)}.') from e


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a path to write to, which takes the place of `path` at the end.

  If the body raises, `path` is as it was.
  """
  # A fixed name: what a killed program leaves is overwritten by the next one.
  new = path.with_name(f'.{path.name}.new')
  try:
    yield new
    sync(new)
    os.replace(new, path)
    sync(path.parent)
  except BaseException:
    with contextlib.suppress(OSError):
      new.unlink(missing_ok=True)
    raise


def sync(path: str | os.PathLike) -> None:
  """Waits until a file, or the names in a folder, survive a power cut."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def sync_tree(folder: pathlib.Path) -> None:
  """Syncs a folder and everything in it."""
  for path in folder.rglob('*'):
    sync(path)
  sync(folder)


def _reason(error: Exception) -> str:
  if isinstance(error, OSError) and error.strerror:
    where = f' ({error.filename})' if error.filename else ''
    return f'{error.strerror}{where}'
  text = ' '.join(str(error).split())
  # TensorFlow adds the names of its operations, which say nothing to a user.
  text = re.sub(r'^\{\{.*?\}\} | ?\[Op:.*\]$', '', text)
  return text.rstrip('.') or type(error).__name__
