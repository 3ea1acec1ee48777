"""Finding and reading the files of a data set, with errors that name them."""

import gzip
import hashlib
import pathlib
import zlib
from collections.abc import Sequence

import numpy as np
from absl import logging


class DataError(ValueError):
  """A file of a data set is missing, damaged, or not what its name says.

  The message is one line that names the file and the reason.
  """


class DataWarning(UserWarning):
  """The data may not be what was meant."""


def find_files(
  data_dir: str | pathlib.Path,
  names: Sequence[str],
  *,
  subfolders: Sequence[str] = (),
  optional_suffix: str = '.gz',
) -> list[pathlib.Path]:
  """Finds files of a data set in the folder that the user named.

  Args:
    data_dir: The folder.
    names: The files' names in the official distribution, without the suffix
      of their compressed form.
    subfolders: Where below `data_dir` the files may be as well.
    optional_suffix: Suffix of the compressed form, which is as good.

  Returns:
    The paths, in the order of `names`, all in one folder.

  Raises:
    DataError: If there is no such folder, or a file is not in it.
  """
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise DataError(f'`data_dir` must be a folder, found none at {root}.')
  best, best_missing = None, list(names)
  for folder in (root, *(root / sub for sub in subfolders)):
    paths = [_existing(folder / name, optional_suffix) for name in names]
    missing = [
      name for name, path in zip(names, paths, strict=True) if path is None
    ]
    if not missing:
      return paths
    if len(missing) < len(best_missing):
      best, best_missing = folder, missing
  either = f' (with or without {optional_suffix})' if optional_suffix else ''
  found = (
    f'{best} lacks {", ".join(best_missing)}'
    if best
    else f'found none of them in {root}'
  )
  raise DataError(f'`data_dir` must hold {", ".join(names)}{either}; {found}.')


def read_bytes(path: pathlib.Path) -> bytes:
  """Reads a file, and decompresses it if its name ends in .gz.

  Args:
    path: The file.

  Returns:
    Its content.

  Raises:
    DataError: If it cannot be read, is truncated, or its checksum is wrong.
  """
  try:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == '.gz' else content
  except EOFError as e:
    raise DataError(f'{path} is truncated: its gzip stream ends early.') from e
  except (gzip.BadGzipFile, zlib.error) as e:
    raise DataError(f'{path} is corrupted: {e}.') from e
  except OSError as e:
    raise DataError(f'{path} cannot be read: {e.strerror or e}.') from e


def check_labels(
  path: pathlib.Path, labels: np.ndarray, num_classes: int
) -> None:
  """Refuses labels outside of the classes.

  Args:
    path: Where the labels are from.
    labels: int [labels], at least one.
    num_classes: The labels must be from 0 to below this.

  Raises:
    DataError: If there are none, or one is not.
  """
  if not len(labels):
    raise DataError(f'{path} is empty.')
  if labels.min() < 0 or labels.max() >= num_classes:
    raise DataError(
      f'{path} must hold labels from 0 to {num_classes - 1}, found '
      f'{labels.min()} to {labels.max()}.'
    )


def describe_source(
  name: str,
  path: pathlib.Path,
  official: tuple[int, int],
  found: tuple[int, int],
) -> str:
  """Returns a line on where images come from; logs if it is not the official.

  Args:
    name: What the data set is called.
    path: One of its files.
    official: How many images there are to train and to test.
    found: How many were read.
  """
  if found == official:
    return name
  source = f'not the official {name}: {found[0]} + {found[1]} images'
  logging.warning('%s holds %s.', path.parent, source)
  return source


def check_no_duplicates(
  paths: Sequence[pathlib.Path], contents: Sequence
) -> None:
  """Refuses files of equal content, such as a part that was copied twice.

  Args:
    paths: The files.
    contents: What was read from each, as contiguous bytes or arrays.

  Raises:
    DataError: If two contents are equal.
  """
  seen = {}
  for path, content in zip(paths, contents, strict=True):
    key = hashlib.blake2b(content).digest()
    if key in seen:
      raise DataError(f'{path} has the same content as {seen[key]}.')
    seen[key] = path


def _existing(path: pathlib.Path, optional_suffix: str) -> pathlib.Path | None:
  """Returns the path, or its compressed form, whichever is a file."""
  for candidate in (path, path.with_name(path.name + optional_suffix)):
    if candidate.is_file():
      return candidate
  return None
