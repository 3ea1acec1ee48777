"""The folder of a client store: written whole or not at all, and checked.

It has the files of `packed_clients`, and a manifest with their sizes, what the
features of an example are and a digest of both.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_clipping import storage_errors
from tff_clipping.programs.clients import packed_clients

_MANIFEST = 'manifest.json'
# With a number, as checkpoints have. In each read, TensorFlow looks for one in
# the name, and else in that of each folder above, by expressions that it
# compiles anew: a third of the time of a read.
_PACK = 'clients-0'
FORMAT = 4
# One that is being written; see `_new_folder`.
_NEW_FOLDER = re.compile(r'\..*-[0-9a-f]{16}-[0-9a-f]{16}')


class ClientStoreError(ValueError):
  """A client store is missing, incomplete or damaged."""


@dataclasses.dataclass(frozen=True)
class StoreFolder:
  """A folder that was checked.

  Attributes:
    path: The folder.
    features: The name, shape and dtype of each feature of one example.
    client_ids: The clients' ids, in the order in which they were written.
    num_examples: The number of examples of each client, in the same order.
  """

  path: pathlib.Path
  features: tuple[tuple[str, tuple[int, ...], str], ...]
  client_ids: tuple[str, ...]
  num_examples: tuple[int, ...]

  def read_content(self, client_id: tf.Tensor) -> tf.Tensor:
    """Returns what a client holds; see `packed_clients.read_content`."""
    return packed_clients.read_content(self.path / _PACK, client_id)


def open_folder(path: pathlib.Path) -> StoreFolder:
  """Opens a folder that `write_folder` made.

  Raises:
    ClientStoreError: If it is none, or a file is missing or not of the size
      that was written.
  """
  try:
    manifest = json.loads((path / _MANIFEST).read_text())
    _check_manifest(manifest)
    features = tuple(
      (name, tuple(shape), dtype) for name, shape, dtype in manifest['features']
    )
    found = {e.name: e.stat().st_size for e in os.scandir(path)}
    for name, size in manifest['files'].items():
      if found.get(name) != size:
        raise _damaged(
          path, f'the file {name} has {found.get(name)} bytes, not {size}'
        )
    client_ids, num_examples = packed_clients.read_clients(path / _PACK)
  except packed_clients.PackedClientsError as e:
    raise _damaged(path, str(e)) from e
  except ClientStoreError:
    raise
  except (OSError, ValueError, KeyError, TypeError) as e:
    raise ClientStoreError(f'{path} is no client store: {e}') from e
  return StoreFolder(path, features, client_ids, num_examples)


def write_folder(
  path: pathlib.Path,
  features: Sequence[tuple[str, Sequence[int], str]],
  clients: Callable[[], Iterable[tuple[str, int, bytes]]],
) -> None:
  """Writes a folder, unless it is there already.

  Args:
    path: The folder.
    features: As in `StoreFolder`.
    clients: Returns for each client its id, its number of examples and what it
      holds, as `packed_clients.pack_clients` takes it.

  Raises:
    OSError: If it cannot be written.
  """
  if path.exists():
    return
  with storage_errors.writing(f'The clients in {path}'):
    path.parent.mkdir(parents=True, exist_ok=True)
    with _new_folder(path) as folder:
      packed_clients.pack_clients(folder / _PACK, clients())
      manifest = dict(
        format=FORMAT,
        features=[[f, list(shape), dtype] for f, shape, dtype in features],
        files={e.name: e.stat().st_size for e in os.scandir(folder)},
      )
      manifest['digest'] = _manifest_digest(manifest)
      (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2))
      try:
        os.rename(folder, path)
      except OSError:
        # Somebody else may have written the same store in the meantime.
        if not path.exists():
          raise


@contextlib.contextmanager
def _new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a folder beside `path`, which is deleted if it is still there.

  What writers that were killed have left is deleted as well, once nobody else
  writes.
  """
  # Not by `tempfile`, whose folders nobody else can read: this one is for those
  # that the user's umask lets in.
  folder = path.with_name(f'.{path.name}-{secrets.token_hex(8)}')
  lock = os.open(path.parent, os.O_RDONLY)
  try:
    # Some network disks have no locks: there, nothing is tidied up.
    with contextlib.suppress(OSError):
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      for other in path.parent.iterdir():
        if _NEW_FOLDER.fullmatch(other.name):
          shutil.rmtree(other, ignore_errors=True)
    with contextlib.suppress(OSError):
      fcntl.flock(lock, fcntl.LOCK_SH)
    folder.mkdir()
    try:
      yield folder
    finally:
      shutil.rmtree(folder, ignore_errors=True)
  finally:
    os.close(lock)


def _check_manifest(manifest: Mapping[str, Any]) -> None:
  if manifest['format'] != FORMAT:
    raise ValueError(
      f'it has the format {manifest["format"]!r}, not {FORMAT}. A folder that '
      'an older version wrote may be deleted; it will be written again'
    )
  if manifest['digest'] != _manifest_digest(manifest):
    raise ValueError('its manifest is damaged')


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
  content = {k: v for k, v in manifest.items() if k != 'digest'}
  return hashlib.blake2b(
    json.dumps(content, sort_keys=True).encode(), digest_size=8
  ).hexdigest()


def _damaged(path: pathlib.Path, reason: str) -> ClientStoreError:
  return ClientStoreError(
    f'{path} is damaged: {reason.rstrip(".")}. Delete the folder; it will be '
    'written again.'
  )
