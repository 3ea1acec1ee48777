"""Downloads into the cache, through Keras's and TFF's own downloaders.

A file is in the cache whole or not at all: it is checked before it gets its
name. Being offline is one line that says which files to put where.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import socket
import tarfile
import tempfile
import urllib.error
import zipfile
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


def fetch(
  name: str,
  origin: str,
  file_hash: str,
  hash_algorithm: str,
  folder: pathlib.Path,
) -> pathlib.Path:
  """Downloads a file with a progress bar, unless it is there already.

  Args:
    name: The file's name in `folder`.
    origin: Where it is from.
    file_hash: Its checksum, in hexadecimal digits.
    hash_algorithm: 'sha256' or 'md5'.
    folder: Where it goes.

  Returns:
    The path of the file, which has this checksum.
  """
  import tensorflow as tf

  return pathlib.Path(
    tf.keras.utils.get_file(
      name,
      origin,
      file_hash=file_hash,
      hash_algorithm=hash_algorithm,
      cache_dir=str(folder),
      cache_subdir='',
    )
  )


def extract(
  archive: pathlib.Path, members: Sequence[str], folder: pathlib.Path
) -> None:
  """Extracts files of an archive into a new folder, all or none.

  Args:
    archive: A .zip or .tar.gz file.
    members: Their paths in the archive. The files get their last parts as
      names.
    folder: The folder to make.

  Raises:
    data_files.DataError: If the archive lacks a member or is damaged.
  """
  partial = pathlib.Path(
    tempfile.mkdtemp(prefix=f'.{folder.name}-', dir=folder.parent)
  )
  try:
    with _open_member_fn(archive) as open_member:
      for member in members:
        target = partial / pathlib.PurePosixPath(member).name
        with open_member(member) as source, open(target, 'wb') as file:
          shutil.copyfileobj(source, file)
    partial.chmod(0o755)
    with contextlib.suppress(FileExistsError):
      os.rename(partial, folder)
  except (KeyError, EOFError, tarfile.TarError, zipfile.BadZipFile) as e:
    raise data_files.DataError(
      f'{archive} is not the archive that it should be: {e}.'
    ) from e
  finally:
    shutil.rmtree(partial, ignore_errors=True)


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


@contextlib.contextmanager
def _open_member_fn(archive: pathlib.Path) -> Iterator[Callable]:
  """Yields a function that opens a member of the archive to read it."""
  if archive.suffix == '.zip':
    with zipfile.ZipFile(archive) as file:
      yield file.open
  else:
    with tarfile.open(archive) as file:
      yield file.extractfile


def _sha256(path: pathlib.Path) -> str:
  """Returns the SHA-256 of a file, in hexadecimal digits."""
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while chunk := file.read(2**20):
      digest.update(chunk)
  return digest.hexdigest()
