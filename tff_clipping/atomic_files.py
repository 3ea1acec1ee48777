"""Files that are whole or not there.

A program that runs for days meets kill -9, power cuts and full disks. What it
writes goes beside its place first, is synced, and is renamed.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(
  path: pathlib.Path, *, is_secret: bool = False
) -> Iterator[pathlib.Path]:
  """Gives a path to write to, which takes the place of `path` at the end.

  If the body raises, `path` is as it was. At the end it survives a power cut.

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
