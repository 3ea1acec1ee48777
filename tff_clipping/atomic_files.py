"""Writes files that are complete or absent.

A program that runs for days meets kill -9, power cuts and full disks. So a file
is written beside its place first, synced, and renamed.
"""

import contextlib
import errno
import os
import pathlib
import stat
import warnings
from collections.abc import Iterator

# What some disks say where they cannot sync the names in a folder.
_CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
# The disks of which this was said.
_WARNED: set[int] = set()


@contextlib.contextmanager
def replacing(
  path: pathlib.Path, *, is_secret: bool = False
) -> Iterator[pathlib.Path]:
  """Gives a path to write to; at the end the new file replaces `path`.

  If the body raises, `path` does not change. At the end the new file survives a
  power cut.

  Args:
    path: The file.
    is_secret: Whether its owner alone may read it, from its beginning.

  Raises:
    OSError: If the file system refuses.
  """
  # A fixed name: what a killed program leaves is removed by the next one.
  new = path.with_name(f'.{path.name}.new')
  new.unlink(missing_ok=True)
  try:
    if is_secret:
      os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    yield new
    sync(new)
    os.replace(new, path)
    sync(path.parent)
  except BaseException:
    with contextlib.suppress(OSError):
      new.unlink(missing_ok=True)
    raise


def sync(path: str | os.PathLike) -> None:
  """Waits until a file, or the names in a folder, survive a power cut.

  Warns, once for each disk, if the disk cannot sync folders.

  Raises:
    OSError: If the file system refuses. The error has the path.
  """
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as e:
    found = os.fstat(descriptor)
    if not stat.S_ISDIR(found.st_mode) or e.errno not in _CANNOT:
      raise OSError(e.errno, e.strerror, os.fspath(path)) from e
    if found.st_dev not in _WARNED:
      _WARNED.add(found.st_dev)
      warnings.warn(
        f'The disk of {os.fspath(path)} cannot sync folders: after a power '
        'cut, the last files may be missing. A private round whose outcome is '
        'missing is drawn and charged again; a run with correlated noise or '
        'random_allocation ends.',
        stacklevel=3,
      )
  finally:
    os.close(descriptor)


def sync_tree(folder: pathlib.Path) -> None:
  """Syncs a folder and everything in it."""
  for path in folder.rglob('*'):
    sync(path)
  sync(folder)
