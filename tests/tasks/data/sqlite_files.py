"""Writes small data bases in the format of TFF's simulation data, for tests."""

import contextlib
import pathlib
import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf


def serialize(**features) -> bytes:
  """Returns a `tf.train.Example`: bytes, floats or integers by their kind."""
  example = {}
  for name, value in features.items():
    if isinstance(value, bytes):
      feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    elif np.asarray(value).dtype.kind == 'f':
      feature = tf.train.Feature(
        float_list=tf.train.FloatList(value=np.ravel(value))
      )
    else:
      feature = tf.train.Feature(
        int64_list=tf.train.Int64List(value=np.ravel(value))
      )
    example[name] = feature
  return tf.train.Example(
    features=tf.train.Features(feature=example)
  ).SerializeToString()


def write_sqlite(
  path: pathlib.Path,
  splits: Mapping[str, Mapping[str, Sequence[bytes]]],
  *,
  missing: int = 0,
) -> None:
  """Writes each split's clients; leaves out the last `missing` examples."""
  rows = [
    (split, client, example)
    for split, clients in splits.items()
    for client, examples in clients.items()
    for example in examples
  ]
  with contextlib.closing(sqlite3.connect(path)) as connection:
    connection.execute(
      'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT '
      'NULL, serialized_example_proto BLOB NOT NULL)'
    )
    connection.execute(
      'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT '
      'NOT NULL, num_examples INTEGER NOT NULL)'
    )
    connection.executemany(
      'INSERT INTO examples VALUES (?, ?, ?)', rows[: len(rows) - missing]
    )
    connection.executemany(
      'INSERT INTO client_metadata VALUES (?, ?, ?)',
      [
        (client, split, len(examples))
        for split, clients in splits.items()
        for client, examples in clients.items()
      ],
    )
    connection.commit()
