"""Downloads into the cache, through Keras's and TFF's own downloaders.

A file is in the cache whole or not at all: it is checked before it gets its
name. Being offline is one line that says which files to put where.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import socket
import tempfile
import urllib.error
from collections.abc import Callable, Iterator, Sequence

from absl import logging

from tasks.data.datasets import data_files

_TIMEOUT_SECONDS = 30


def downloads_dir(cache_dir: str | os.PathLike | None) -> pathlib.Path:
  """Returns the folder of the downloads, made if it is missing.

  Args:
    cache_dir: The cache folder; None for the user's.

  Returns:
    The path.

  Raises:
    data_files.DataError: If it cannot be made.
  """
  if cache_dir is None:
    # Imported here, since it needs TFF, which is slow to import.
    from tff_clipping.programs.clients import client_store

    cache_dir = client_store.default_cache_dir()
  folder = pathlib.Path(cache_dir).expanduser() / 'downloads'
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise data_files.DataError(
      f'`cache_dir` must be a folder that can be written, found {folder}: '
      f'{e.strerror}.'
    ) from e
  return folder


@dataclasses.dataclass(frozen=True)
class Archive:
  """An archive of a publisher's.

  Attributes:
    file: Its name, which ends in .zip or .tar.gz.
    origin: Where it is from.
    hash_algorithm: 'sha256' or 'md5'.
    file_hash: Its checksum, in hexadecimal digits.
    members: The files that are needed, by their paths in the archive.
    folder: What the folder of these files is called in the cache.
  """

  file: str
  origin: str
  hash_algorithm: str
  file_hash: str
  members: tuple[str, ...]
  folder: str


def fetch_members(
  task: str, archive: Archive, cache_dir: str | os.PathLike | None
) -> pathlib.Path:
  """Returns the folder of an archive's files, downloaded if need be.

  Args:
    task: The task's name, for errors.
    archive: The archive, which is not kept.
    cache_dir: The cache folder; None for the user's.

  Raises:
    data_files.DataError: If it cannot be downloaded, or lacks a file.
  """
  root = downloads_dir(cache_dir)
  extracted = root / archive.folder
  if extracted.is_dir():
    return extracted
  with offline_advice(task, archive.members):
    import tensorflow as tf

    path = pathlib.Path(
      tf.keras.utils.get_file(
        archive.file,
        archive.origin,
        file_hash=archive.file_hash,
        hash_algorithm=archive.hash_algorithm,
        cache_dir=str(root),
        cache_subdir='',
      )
    )
  _extract(path, archive.members, extracted)
  path.unlink()
  return extracted


def fetch_with_tff(
  load_data: Callable[..., object], file_name: str, folder: pathlib.Path
) -> pathlib.Path:
  """Downloads a data base with TFF's own loader, unless it is there already.

  TFF publishes no checksums and takes whatever has the right name for the
  file, so it downloads into a folder of its own first. The SHA-256 of what came
  is kept beside the file and checked from then on.

  Args:
    load_data: A `tff.simulation.datasets` function that takes `cache_dir`.
    file_name: The name of the file that it makes there.
    folder: Where the file goes.

  Returns:
    The path of the file.

  Raises:
    data_files.DataError: If the file has changed since its download.
  """
  path = folder / file_name
  digest_path = folder / f'{file_name}.sha256'
  if path.is_file() and digest_path.is_file():
    expected = digest_path.read_text().split()[0]
    if (found := _sha256(path)) != expected:
      raise data_files.DataError(
        f'{path} is corrupted: its SHA-256 is {found}, not {expected}; delete '
        'it to download it again.'
      )
    return path
  partial = pathlib.Path(tempfile.mkdtemp(prefix='.tff-', dir=folder))
  try:
    load_data(cache_dir=str(partial))
    digest = _sha256(partial / file_name)
    digest_path.write_text(f'{digest}  {file_name}\n')
    os.replace(partial / file_name, path)
    logging.info('%s has the SHA-256 %s.', path, digest)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return path


@contextlib.contextmanager
def offline_advice(task: str, files: Sequence[str]) -> Iterator[None]:
  """Turns a failed download into one line on what to do without a network.

  Args:
    task: The task's name.
    files: The names of the files that `--data_dir` is to hold.

  Yields:
    None: download in the body.

  Raises:
    data_files.DataError: If the download fails.
  """
  timeout = socket.getdefaulttimeout()
  socket.setdefaulttimeout(_TIMEOUT_SECONDS)
  try:
    yield
  except data_files.DataError:
    raise
  except Exception as e:  # Keras raises bare Exceptions for network errors.
    reason = ' '.join(str(e).split()) or type(e).__name__
    if isinstance(e, urllib.error.URLError) and not str(e).strip('<>'):
      reason = 'no network'
    raise data_files.DataError(
      f'{task} is not in the cache and cannot be downloaded ({reason}): put '
      f'{", ".join(files)} into a folder and name it with --data_dir.'
    ) from e
  finally:
    socket.setdefaulttimeout(timeout)


def _extract(
  archive: pathlib.Path, members: Sequence[str], folder: pathlib.Path
) -> None:
  """Extracts files of an archive into a new folder, all or none."""
  partial = pathlib.Path(
    tempfile.mkdtemp(prefix=f'.{folder.name}-', dir=folder.parent)
  )
  wanted = partial / 'wanted'
  wanted.mkdir()
  try:
    shutil.unpack_archive(archive, partial / 'all')
    for member in members:
      (partial / 'all' / member).rename(wanted / pathlib.Path(member).name)
    with contextlib.suppress(FileExistsError):
      wanted.rename(folder)
  except (FileNotFoundError, EOFError, shutil.ReadError) as e:
    raise data_files.DataError(
      f'{archive} is not the archive that it should be: {e}.'
    ) from e
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def _sha256(path: pathlib.Path) -> str:
  """Returns the SHA-256 of a file, in hexadecimal digits."""
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while chunk := file.read(2**20):
      digest.update(chunk)
  return digest.hexdigest()
