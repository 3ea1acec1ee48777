"""Tests of the example that reads formats of others."""

import json
import pathlib
import pickle
import runpy

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tasks.data.datasets import array_pickles, own_data
from tasks.data.partitions.partition_config import PartitionConfig
from tests.tasks.data.datasets import sqlite_files

_EXAMPLE = pathlib.Path(__file__).parents[4] / 'examples/data/formats.py'


def _clients(seed):
  """Returns x and y by client, of which one has none."""
  rng = np.random.default_rng(seed)
  sizes = dict(ann=3, bob=5, eve=0)
  return {
    client: (
      rng.normal(size=(size, 2)).astype(np.float32),
      np.arange(size) % 2,
    )
    for client, size in sizes.items()
  }


_PARTS = dict(train=_clients(0), test=_clients(1))


def _write_leaf(folder):
  for part, clients in _PARTS.items():
    (folder / part).mkdir()
    for client, (x, y) in clients.items():
      content = dict(
        users=[client],
        num_samples=[len(y)],
        user_data={client: dict(x=x.tolist(), y=y.tolist())},
      )
      path = folder / part / f'{client}.json'
      path.write_text(json.dumps(content))
  return (folder,)


def _write_folders(folder, *, pickles=False):
  for part, clients in _PARTS.items():
    (folder / part).mkdir()
    for client, (x, y) in clients.items():
      arrays = dict(data=dict(x=x, y=y)) if pickles else dict(x=x, y=y)
      np.savez_compressed(folder / part / f'{client}.npz', **arrays)
  return (folder,)


def _write_pfllib(folder):
  return _write_folders(folder, pickles=True)


def _write_h5(folder):
  for part, clients in _PARTS.items():
    with h5py.File(folder / part, 'w') as file:
      for client, (x, y) in clients.items():
        file[f'examples/{client}/pixels'] = x
        file[f'examples/{client}/label'] = y
  return folder / 'train', folder / 'test'


def _write_sqlite(folder):
  sqlite_files.write_sqlite(
    folder / 'mine.sqlite',
    {
      part: {
        client: [
          sqlite_files.serialize(pixels=a, label=b)
          for a, b in zip(x, y, strict=True)
        ]
        for client, (x, y) in clients.items()
      }
      for part, clients in _PARTS.items()
    },
  )
  features = dict(pixels=((2,), tf.float32, None), label=((), tf.int64, None))
  return folder / 'mine.sqlite', features


@pytest.mark.parametrize(
  ('function', 'write', 'num_clients'),
  [
    ('read_leaf', _write_leaf, 3),
    ('read_folders', _write_folders, 3),
    ('read_pfllib', _write_pfllib, 3),
    ('read_h5', _write_h5, 3),
    ('read_sqlite', _write_sqlite, 2),
  ],
)
def test_a_format_becomes_a_task(tmp_path, function, write, num_clients):
  arrays = runpy.run_path(str(_EXAMPLE))[function](*write(tmp_path))
  task = own_data.create_task('mine', PartitionConfig('natural'), **arrays)
  assert task.num_clients == num_clients
  assert task.client_ids[:2] == ('ann', 'bob')
  for client, rows in zip(task.client_ids, task.partition.indices, strict=True):
    x, y = _PARTS['train'][client]
    np.testing.assert_allclose(task.train['x'][rows], x, rtol=1e-6)
    np.testing.assert_array_equal(task.train['y'][rows], y)
  assert len(task.test['y']) == 8
  assert task.test_is_of_clients


def test_a_pickle_that_runs_code_is_refused(tmp_path):
  np.savez(tmp_path / 'bad.npz', data=dict(x=pathlib.PurePath('a')))
  with pytest.raises(pickle.UnpicklingError, match='is not allowed in it'):
    array_pickles.load_npz(tmp_path / 'bad.npz', 'data')
