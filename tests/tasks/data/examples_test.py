"""Tests of the examples that pack other formats for tasks."""

import gzip
import json
import pathlib
import pickle
import runpy
import shutil

import h5py
import numpy as np
import pytest
import tensorflow_federated as tff

from tasks.data import own, registry
from tasks.data.partitions import PartitionConfig

_FOLDER = pathlib.Path(__file__).parents[3] / 'examples/data'
_IID = PartitionConfig('iid', num_clients=2)


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


def _write_pfllib(folder):
  for part, clients in _PARTS.items():
    (folder / part).mkdir()
    for client, (x, y) in clients.items():
      path = folder / part / f'{client}.npz'
      np.savez_compressed(path, data=dict(x=x, y=y))
  return (folder,)


def _write_h5(folder):
  for part, clients in _PARTS.items():
    with h5py.File(folder / part, 'w') as file:
      for client, (x, y) in clients.items():
        file[f'examples/{client}/pixels'] = x
        file[f'examples/{client}/label'] = y
  return folder / 'train', folder / 'test'


def _make_client_data(folder):
  del folder
  return [
    tff.simulation.datasets.TestClientData(
      {c: dict(pixels=x, label=y) for c, (x, y) in part.items() if len(y)}
    )
    for part in _PARTS.values()
  ]


@pytest.mark.parametrize(
  ('function', 'write', 'num_clients'),
  [
    ('read_leaf', _write_leaf, 3),
    ('read_pfllib', _write_pfllib, 3),
    ('read_h5', _write_h5, 3),
    ('read_client_data', _make_client_data, 2),
  ],
)
def test_a_format_becomes_a_task(tmp_path, function, write, num_clients):
  read = runpy.run_path(str(_FOLDER / 'formats.py'))[function]
  arrays = read(*write(tmp_path))
  task = own.create_task('mine', PartitionConfig('natural'), **arrays)
  assert task.num_clients == num_clients
  assert task.client_ids[:2] == ('ann', 'bob')
  for client, rows in zip(task.client_ids, task.partition.indices, strict=True):
    x, y = _PARTS['train'][client]
    np.testing.assert_allclose(
      task.train['x'][rows], np.reshape(x, [-1, 2]), rtol=1e-6
    )
    np.testing.assert_array_equal(task.train['y'][rows], y)
  assert len(task.test['y']) == 8
  assert task.test_is_of_clients


def test_a_format_without_test_examples_becomes_a_task_without(tmp_path):
  (folder,) = _write_leaf(tmp_path)
  shutil.rmtree(folder / 'test')
  read = runpy.run_path(str(_FOLDER / 'formats.py'))['read_leaf']
  arrays = read(folder)
  assert set(arrays) == {'x', 'y', 'client', 'all_clients'}
  split = PartitionConfig('natural', held_out_clients=2)
  task = own.create_task('mine', split, **arrays)
  assert task.num_clients == 1
  assert not task.test_is_of_clients


def _write_idx(path, array):
  content = bytes([0, 0, 8, array.ndim])
  content += np.array(array.shape, '>i4').tobytes() + array.tobytes()
  if path.suffix == '.gz':
    content = gzip.compress(content)
  path.write_bytes(content)


def _pack(monkeypatch, name, folder):
  monkeypatch.setattr(
    'sys.argv', ['pack.py', name, str(folder), str(folder / f'{name}.npz')]
  )
  runpy.run_path(str(_FOLDER / 'pack.py'), run_name='__main__')


@pytest.mark.parametrize(
  ('name', 'task', 'prefix', 'test', 'suffix'),
  [
    ('mnist', 'mnist', '', 't10k', '.gz'),
    ('emnist', 'emnist.npz', 'emnist-digits-', 'test', ''),
  ],
)
def test_idx_files_become_a_task(
  tmp_path, monkeypatch, name, task, prefix, test, suffix
):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (30, 28, 28), np.uint8)
  labels = (np.arange(30) % 10).astype(np.uint8)
  for part, rows in (('train', slice(20)), (test, slice(20, 30))):
    for what, array in (('images-idx3', images), ('labels-idx1', labels)):
      path = tmp_path / f'{prefix}{part}-{what}-ubyte{suffix}'
      _write_idx(path, array[rows])
  _pack(monkeypatch, name, tmp_path)
  created = registry.create_task(task, _IID, data_dir=tmp_path)
  # The files of EMNIST have their images transposed.
  upright = images.swapaxes(1, 2) if name == 'emnist' else images
  both = np.concatenate([created.train['x'], created.test['x']])
  np.testing.assert_array_equal(both[..., 0], upright)
  assert created.input_dtype == 'uint8'
  np.testing.assert_array_equal(created.test['y'], labels[20:])


def test_batches_of_cifar10_become_a_task(tmp_path, monkeypatch):
  rows = np.random.default_rng(0).integers(0, 256, (60, 3072), np.uint8)
  names = [*(f'data_batch_{i}' for i in range(1, 6)), 'test_batch']
  for i, name in enumerate(names):
    batch = {
      b'data': rows[10 * i : 10 * i + 10],
      b'labels': list(range(10)),
    }
    (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
  _pack(monkeypatch, 'cifar10', tmp_path)
  created = registry.create_task('cifar10', _IID, data_dir=tmp_path)
  assert len(created.train['y']) == 50
  # Red, green and blue are planes of a row.
  pixel = created.train['x'][7, 1, 2]
  assert pixel.tolist() == rows[7, [34, 34 + 1024, 34 + 2048]].tolist()
