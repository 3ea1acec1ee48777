"""What clients hold, packed into a few files with an index and checksums.

The files are a checkpoint of TensorFlow, which has all of that: a string for
each client, found by its id in an index of blocks, read by its offset, with a
checksum that is verified when it is read. `tf.train.load_checkpoint` opens it
as well.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

# Writing computes with TensorFlow, perhaps before the first round does: the
# threads of its sessions are decided by then.
from tff_clipping import runtime  # noqa: F401

# How much is in memory at a time while clients are packed, and in one file.
_BATCH_CLIENTS = 10_000
_BATCH_BYTES = 2**27

# What is kept of each client.
_CONTENT = 'content/'
# What is kept of all clients, in the order in which they were packed.
_CLIENT_IDS = 'clients/client_ids'
_NUM_EXAMPLES = 'clients/num_examples'


class PackedClientsError(ValueError):
  """The files are missing or damaged."""


def read_content(path: str | os.PathLike, client_id: tf.Tensor) -> tf.Tensor:
  """Returns what a client holds, a string scalar; a TensorFlow function.

  Args:
    path: What the names of the files begin with, as for `pack_clients`.
    client_id: The id, a string scalar.

  Raises:
    tf.errors.NotFoundError: If there is no such client.
    tf.errors.DataLossError: If what is read is not what was written.
  """
  (content,) = tf.raw_ops.RestoreV2(
    prefix=os.fspath(path),
    tensor_names=[tf.strings.join([_CONTENT, client_id])],
    shape_and_slices=[''],
    dtypes=[tf.string],
  )
  return tf.ensure_shape(content, [])


def read_clients(
  path: str | os.PathLike,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
  """Returns the ids and the numbers of examples of all clients.

  Args:
    path: What the names of the files begin with, as for `pack_clients`.

  Raises:
    PackedClientsError: If the files are missing or damaged.
  """
  try:
    reader = tf.train.load_checkpoint(os.fspath(path))
    client_ids = reader.get_tensor(_CLIENT_IDS)
    num_examples = reader.get_tensor(_NUM_EXAMPLES)
    return (
      tuple(client_id.decode() for client_id in client_ids),
      tuple(num_examples.tolist()),
    )
  # What TensorFlow raises for its own kinds of damage.
  except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as e:
    raise PackedClientsError(' '.join(str(e).split())) from e


def pack_clients(
  path: str | os.PathLike, clients: Iterable[tuple[str, int, bytes]]
) -> None:
  """Writes what clients hold.

  Args:
    path: What the names of the files begin with, in a folder of their own.
    clients: For each client its id, all different, its number of examples and
      what it holds.

  Raises:
    tf.errors.OpError: If a file cannot be written.
  """
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


def _batches(
  clients: Iterable[tuple[str, int, bytes]],
) -> Iterator[Sequence[tuple[str, int, bytes]]]:
  batch, num_bytes = [], 0
  for client in clients:
    batch.append(client)
    num_bytes += len(client[-1])
    if len(batch) == _BATCH_CLIENTS or num_bytes >= _BATCH_BYTES:
      yield batch
      batch, num_bytes = [], 0
  if batch:
    yield batch
