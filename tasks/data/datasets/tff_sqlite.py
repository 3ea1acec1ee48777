"""The SQLite files of TFF's simulation data sets.

Table `examples` has a row an example: `split_name`, `client_id` and
`serialized_example_proto`, a `tf.train.Example`. Table `client_metadata` has a
row a client of a split, with its `num_examples`.

They are read here rather than through `ClientData`: one pass over the table
takes seconds where thousands of small data sets take minutes.
"""

import collections
import contextlib
import pathlib
import sqlite3
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.data.datasets import data_files, downloads

_ROWS_PER_BATCH = 4096


def find_or_download(
  task: str,
  file_name: str,
  module: str,
  data_dir: str | None,
  cache_dir: str | None,
) -> pathlib.Path:
  """Finds the file of a data set, or downloads it with TFF.

  Args:
    task: The task's name, for errors.
    file_name: For example 'shakespeare.sqlite'.
    module: That of `tff.simulation.datasets` which downloads it.
    data_dir: Folder that holds the file; None to download it.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The path of the file.

  Raises:
    data_files.DataError: If it is missing or cannot be downloaded.
  """
  if data_dir is None:
    import tensorflow_federated as tff

    load_data = getattr(tff.simulation.datasets, module).load_data
    folder = downloads.downloads_dir(cache_dir)
    with downloads.offline_advice(task, [file_name]):
      return downloads.fetch_with_tff(load_data, file_name, folder)
  root = pathlib.Path(data_dir).expanduser()
  compressed = root / f'{file_name}.lzma'
  if compressed.is_file() and not (root / file_name).is_file():
    raise data_files.DataError(
      f'{compressed} must be decompressed first: xz --format=lzma '
      f'--decompress --keep {compressed}'
    )
  return data_files.find_files(root, [file_name], optional_suffix='')[0]


def read_split(
  path: pathlib.Path, split: str, features: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
  """Reads all examples of a split.

  Args:
    path: The SQLite file.
    split: The split's name, for example 'train'.
    features: For each feature its shape and type in the file, and the NumPy
      type of the result, None to keep it. Floats from 0 to 1 that become
      uint8 are rounded to the nearest 255th.

  Returns:
    For each feature an array [examples, *shape], and the client ids [examples],
    in the file's order.

  Raises:
    data_files.DataError: If the file is damaged or not such a file.
  """
  expected = _expected_counts(path, split)
  total = sum(expected.values())
  arrays = {}
  clients = []
  for ids, protos in _batches(path, split):
    start, end = len(clients), len(clients) + len(ids)
    if end > total:
      raise data_files.DataError(
        f'{path} is damaged: the split {split!r} should have {total} examples, '
        'found more.'
      )
    for name, values in _parse(path, protos, features).items():
      # The whole data set once in memory, not once more to join its pieces.
      if name not in arrays:
        arrays[name] = np.empty((total, *values.shape[1:]), values.dtype)
      arrays[name][start:end] = values
    clients += ids
  found = collections.Counter(clients)
  for client, count in expected.items():
    if found[client] != count:
      raise data_files.DataError(
        f'{path} is damaged: client {client!r} of the split {split!r} should '
        f'have {count} examples, found {found[client]}.'
      )
  return arrays, np.array(clients)


def _expected_counts(path: pathlib.Path, split: str) -> dict[str, int]:
  """Returns how many examples the file says each client of a split has."""
  query = (
    'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?'
  )
  with _open(path) as connection:
    counts = dict(connection.execute(query, (split,)))
  if not sum(counts.values()):
    raise data_files.DataError(
      f'{path} must have examples of the split {split!r}, found none.'
    )
  return counts


def _batches(path: pathlib.Path, split: str):
  """Yields (client ids, serialized examples) of a few thousand rows each."""
  query = (
    'SELECT client_id, serialized_example_proto FROM examples '
    'WHERE split_name = ? ORDER BY rowid'
  )
  with _open(path) as connection:
    cursor = connection.execute(query, (split,))
    while rows := cursor.fetchmany(_ROWS_PER_BATCH):
      ids, protos = zip(*rows, strict=True)
      yield list(ids), list(protos)


@contextlib.contextmanager
def _open(path: pathlib.Path):
  """Opens the file to read it; errors name it."""
  try:
    with contextlib.closing(
      sqlite3.connect(f'{path.absolute().as_uri()}?mode=ro', uri=True)
    ) as connection:
      yield connection
  except sqlite3.Error as e:
    raise data_files.DataError(
      f"{path} is truncated, corrupted or not one of TFF's SQLite files: {e}."
    ) from e


def _parse(
  path: pathlib.Path, protos: list[bytes], features: Mapping[str, Any]
) -> dict[str, np.ndarray]:
  """Parses serialized examples into arrays."""
  import tensorflow as tf

  spec = {
    name: tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))
    for name, (shape, dtype, _) in features.items()
  }
  try:
    parsed = tf.io.parse_example(protos, spec)
  except (tf.errors.InvalidArgumentError, ValueError, TypeError) as e:
    reason = str(e).splitlines()[0]
    raise data_files.DataError(
      f'{path} must hold examples of {", ".join(features)}: {reason}'
    ) from e
  return {
    name: _convert(parsed[name].numpy(), result)
    for name, (_, _, result) in features.items()
  }


def _convert(values: np.ndarray, dtype: Any) -> np.ndarray:
  """Converts to the type of the result."""
  if dtype is None:
    return values
  if dtype == np.uint8 and values.dtype.kind == 'f':
    values = np.rint(np.clip(values, 0, 1) * 255)
  return values.astype(dtype)
