"""Turns errors of file systems into one line that names the file."""

import contextlib
import re
import sys
from collections.abc import Iterator


class StorageError(OSError):
  """A file of a run is damaged, or could not be written."""


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
  """Turns errors of file systems in the body into a `StorageError`.

  Args:
    what: What is written, as the subject of a sentence.

  Raises:
    StorageError: If the body raised an error of a file system; in one line.
  """
  try:
    yield
  except StorageError:
    raise
  except _file_system_errors() as e:
    raise StorageError(f'{what} could not be written: {_reason(e)}.') from e


def _file_system_errors() -> tuple[type[Exception], ...]:
  """Returns Python's and, where it is imported, TensorFlow's."""
  tensorflow = sys.modules.get('tensorflow')
  if tensorflow is None:
    return (OSError,)
  return OSError, tensorflow.errors.OpError


def _reason(error: Exception) -> str:
  if isinstance(error, OSError) and error.strerror:
    where = f' ({error.filename})' if error.filename else ''
    return f'{error.strerror}{where}'
  text = ' '.join(str(error).split())
  # TensorFlow adds the names of its operations, which say nothing to a user.
  text = re.sub(r'^\{\{.*?\}\} | ?\[Op:.*\]$', '', text)
  return text.rstrip('.') or type(error).__name__
