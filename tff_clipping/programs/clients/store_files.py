"""The folder of a client store: written whole or not at all, and checked.

The examples of a client are a string: first their number, then the bytes of
each feature of all of them, one feature after the other. Nothing is counted in
32 bits: a client may hold more than 2 GiB.

The strings of all clients are a checkpoint of TensorFlow: each is found by the
client's id in an index of blocks, is read by its offset, and has a checksum
that is verified when it is read. A manifest has the sizes of the files, what
the features of an example are and a digest of both.
"""

import collections
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# Writing computes with TensorFlow, perhaps before the first round does: the
# threads of its sessions are decided by then.
from tff_clipping import (
  runtime,  # noqa: F401
  storage_errors,
)

FORMAT = 4
# How much is in memory at a time while clients are packed, and in one file.
_BATCH_CLIENTS = 10_000
_BATCH_BYTES = 2**27
_MANIFEST = 'manifest.json'
# With a number, as checkpoints have: in each read, TensorFlow would look for
# one in the names of all folders above, in a third of the time of the read.
_PACK = 'clients-0'
# What is kept of each client, and of all in the order of packing.
_CONTENT = 'content/'
_CLIENT_IDS = 'clients/client_ids'
_NUM_EXAMPLES = 'clients/num_examples'
# A folder that is being written; see `_new_folder`.
_NEW_FOLDER = re.compile(r'\..*-[0-9a-f]{16}-[0-9a-f]{16}')
# Characters of patterns that do not stand for themselves.
_PATTERN = re.compile(r'[\[\\]')
# The number of examples, of int64, as all numbers with the low byte first.
_COUNT = np.dtype('<i8')


class ClientStoreError(ValueError):
  """A client store is missing, incomplete or damaged."""


# The name, shape and dtype of each feature of one example.
Features: TypeAlias = Sequence[tuple[str, Sequence[int], str]]
# The id of each client, and an array of each feature of all its examples.
Clients: TypeAlias = Iterable[tuple[str, Sequence[np.ndarray]]]


def read_client(
  path: pathlib.Path, client_id: tf.Tensor, specs: Mapping[str, tf.TensorSpec]
) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the features of a client in a folder; a TensorFlow function.

  `specs` are the features of one example, in the order of writing.

  Raises:
    tf.errors.NotFoundError: If there is no such client.
    tf.errors.DataLossError: If what is read is not what was written.
  """
  (content,) = tf.raw_ops.RestoreV2(
    prefix=os.fspath(path / _PACK),
    tensor_names=[tf.strings.join([_CONTENT, client_id])],
    shape_and_slices=[''],
    dtypes=[tf.string],
  )
  content = tf.ensure_shape(content, [])
  count = tf.reshape(
    tf.io.decode_raw(tf.strings.substr(content, 0, _COUNT.itemsize), tf.int64),
    [],
  )
  places = byte_ranges(count, specs)
  return collections.OrderedDict(
    (
      feature,
      tf.reshape(
        tf.io.decode_raw(
          tf.strings.substr(content, *places[feature]), spec.dtype
        ),
        tf.concat([[count], np.array(spec.shape, np.int64)], axis=0),
      ),
    )
    for feature, spec in specs.items()
  )


def open_folder(
  path: pathlib.Path,
) -> tuple[Features, tuple[str, ...], tuple[int, ...]]:
  """Returns the features of a folder, its clients and their sizes, in order.

  Raises:
    ClientStoreError: If `write_folder` did not make it, or a file is missing or
      not of the size that was written; or if TensorFlow cannot read the path.
  """
  _check_path(path)
  try:
    manifest = json.loads((path / _MANIFEST).read_text())
    if manifest['format'] != FORMAT:
      raise ValueError(
        f'its format is {manifest["format"]!r}, not {FORMAT}. The folder of '
        'an older version may be deleted; it will be written again'
      )
    if manifest['digest'] != _manifest_digest(manifest):
      raise ValueError('its manifest is damaged')
    features = tuple(
      (name, tuple(shape), dtype) for name, shape, dtype in manifest['features']
    )
    sizes = {e.name: e.stat().st_size for e in os.scandir(path)}
  except (OSError, ValueError, KeyError, TypeError) as e:
    raise ClientStoreError(f'{path} is no client store: {e}') from e
  for name, size in manifest['files'].items():
    if sizes.get(name) != size:
      raise _damaged(
        path, f'the file {name} has {sizes.get(name)} bytes, not {size}'
      )
  try:
    reader = tf.train.load_checkpoint(os.fspath(path / _PACK))
    client_ids = [i.decode() for i in reader.get_tensor(_CLIENT_IDS)]
    num_examples = reader.get_tensor(_NUM_EXAMPLES).tolist()
  # What TensorFlow raises for its own kinds of damage.
  except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as e:
    raise _damaged(path, ' '.join(str(e).split())) from e
  return features, tuple(client_ids), tuple(num_examples)


def write_folder(
  path: pathlib.Path, features: Features, clients: Clients
) -> None:
  """Writes a folder, unless it is there already."""
  _check_path(path)
  if path.exists():
    if not (path / _MANIFEST).exists():
      raise _damaged(path, f'the file {_MANIFEST} is missing')
    return
  with storage_errors.writing(f'The clients in {path}'):
    path.parent.mkdir(parents=True, exist_ok=True)
    with _new_folder(path) as folder:
      _pack_clients(folder / _PACK, clients)
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


def byte_ranges(
  count: tf.Tensor, specs: Mapping[str, tf.TensorSpec]
) -> collections.OrderedDict[str, tuple[tf.Tensor, tf.Tensor]]:
  """Returns where the bytes of each feature start, and how many they are."""
  places = collections.OrderedDict()
  start = tf.constant(_COUNT.itemsize, tf.int64)
  for feature, spec in specs.items():
    size = count * (spec.shape.num_elements() * spec.dtype.size)
    places[feature] = start, size
    start += size
  return places


def _check_path(path: pathlib.Path) -> None:
  """Raises `ClientStoreError` for a path that TensorFlow does not find."""
  if _PATTERN.search(os.fspath(path)):
    raise ClientStoreError(
      'The path of a client store must have no [ and no backslash, which '
      f'TensorFlow takes for the pattern of a name, found {path}: use another '
      'folder.'
    )


def _pack_clients(path: pathlib.Path, clients: Clients) -> None:
  """Writes the strings of clients into files whose names begin with `path`."""
  client_ids: list[str] = []
  num_examples: list[int] = []
  parts: list[str] = []

  def save(tensors: dict[str, tf.Tensor]) -> None:
    parts.append(f'{os.fspath(path)}-part-{len(parts)}')
    tf.raw_ops.SaveV2(
      prefix=parts[-1],
      tensor_names=list(tensors),
      shape_and_slices=[''] * len(tensors),
      tensors=list(tensors.values()),
    )

  # One batch is prepared while the one before it is written.
  with futures.ThreadPoolExecutor(max_workers=1) as writer:
    written: futures.Future[None] = futures.Future()
    written.set_result(None)
    for batch in _batches(clients):
      ids, sizes, contents = zip(*batch, strict=True)
      client_ids += ids
      num_examples += sizes
      names = [_CONTENT + client_id for client_id in ids]
      tensors = tf.unstack(tf.constant(contents))
      written.result()
      written = writer.submit(save, dict(zip(names, tensors, strict=True)))
    written.result()
  save(
    {
      _CLIENT_IDS: tf.constant(client_ids, tf.string),
      _NUM_EXAMPLES: tf.constant(np.array(num_examples, np.int64)),
    }
  )
  tf.raw_ops.MergeV2Checkpoints(
    checkpoint_prefixes=parts, destination_prefix=os.fspath(path)
  )


def _batches(clients: Clients) -> Iterator[Sequence[tuple[str, int, bytes]]]:
  """Yields ids, numbers of examples and strings, of some clients at a time."""
  batch, num_bytes = [], 0
  for client_id, arrays in clients:
    count = np.array(len(arrays[0]), _COUNT)
    content = b''.join(
      np.ascontiguousarray(array).data for array in (count, *arrays)
    )
    batch.append((client_id, len(arrays[0]), content))
    num_bytes += len(content)
    if len(batch) == _BATCH_CLIENTS or num_bytes >= _BATCH_BYTES:
      yield batch
      batch, num_bytes = [], 0
  if batch:
    yield batch


@contextlib.contextmanager
def _new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a folder beside `path`, which is deleted if it is still there.

  Once nobody else writes, what killed writers have left is deleted too.
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
