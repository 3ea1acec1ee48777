"""Tests for tasks.data.datasets.cifar10."""

import dataclasses
import hashlib
import os
import pickle
import tarfile

import numpy as np
import pytest

from tasks.data.datasets import cifar10, data_files
from tasks.data.datasets.registry import create_task
from tasks.data.partitions import partition_config

_IID = partition_config.PartitionConfig('iid', num_clients=5)
_PER_BATCH = 12


def _batches():
  """Returns random rows [12, 3072] and labels of the six batches."""
  rng = np.random.default_rng(0)
  return [
    (
      rng.integers(0, 256, (_PER_BATCH, 3072), np.uint8),
      (np.arange(_PER_BATCH) + i) % 10,
    )
    for i in range(6)
  ]


def _write_python(folder, batches, **replaced):
  folder.mkdir(parents=True)
  labels = [
    *(f'training batch {i} of 5' for i in range(1, 6)),
    'testing batch 1 of 1',
  ]
  for name, (rows, y), label in zip(
    cifar10.PYTHON_FILES, batches, labels, strict=True
  ):
    batch = {
      b'batch_label': label.encode(),
      b'labels': [int(value) for value in y],
      b'data': rows,
    }
    batch.update(replaced.get(name, {}))
    with open(folder / name, 'wb') as file:
      pickle.dump(batch, file, protocol=2)


def _write_binary(folder, batches):
  folder.mkdir(parents=True)
  for name, (rows, y) in zip(cifar10.BINARY_FILES, batches, strict=True):
    records = np.concatenate([y[:, np.newaxis].astype(np.uint8), rows], axis=1)
    (folder / name).write_bytes(records.tobytes())


@pytest.mark.parametrize('below', [True, False])
@pytest.mark.parametrize('layout', ['python', 'binary'])
def test_official_layouts_are_read(tmp_path, layout, below):
  batches = _batches()
  folder = tmp_path / (
    cifar10.PYTHON_FOLDER if layout == 'python' else cifar10.BINARY_FOLDER
  )
  write = _write_python if layout == 'python' else _write_binary
  write(folder, batches)
  task = create_task(
    'cifar10', _IID, data_dir=str(tmp_path if below else folder)
  )
  assert task.input_shape == (32, 32, 3)
  assert task.train['x'].dtype == np.uint8
  assert task.train['x'].shape == (60, 32, 32, 3)
  assert task.test['x'].shape == (12, 32, 32, 3)
  # Image 13 is the second of the second batch. The planes are red, green and
  # blue, each row after row: green in row 2 and column 7 is 1024 + 2·32 + 7.
  assert task.train['x'][13, 2, 7, 1] == batches[1][0][1, 1024 + 2 * 32 + 7]
  np.testing.assert_array_equal(
    task.train['y'], np.concatenate([y for _, y in batches[:5]])
  )
  np.testing.assert_array_equal(task.test['y'], batches[5][1])
  assert task.source == 'not the official CIFAR-10: 60 + 12 images'


def _refused(folder, message):
  with pytest.raises(data_files.DataError, match=message) as error:
    create_task('cifar10', _IID, data_dir=str(folder))
  assert '\n' not in str(error.value)


def test_missing_batch_is_named(tmp_path):
  _write_python(tmp_path / 'data', _batches())
  (tmp_path / 'data' / 'data_batch_3').unlink()
  _refused(tmp_path / 'data', 'lacks data_batch_3')


@pytest.mark.parametrize('share', [0.0, 0.3, 0.99])
def test_truncated_python_batch_is_refused(tmp_path, share):
  _write_python(tmp_path / 'data', _batches())
  path = tmp_path / 'data' / 'data_batch_2'
  path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
  _refused(tmp_path / 'data', 'data_batch_2 is truncated, corrupted or no')


def test_truncated_binary_batch_is_refused(tmp_path):
  _write_binary(tmp_path / 'data', _batches())
  path = tmp_path / 'data' / 'data_batch_2.bin'
  path.write_bytes(path.read_bytes()[:-1])
  _refused(tmp_path / 'data', 'data_batch_2.bin is truncated or no CIFAR-10')


def test_swapped_train_and_test_batches_are_refused(tmp_path):
  folder = tmp_path / 'data'
  _write_python(folder, _batches())
  os.rename(folder / 'test_batch', folder / 'x')
  os.rename(folder / 'data_batch_4', folder / 'test_batch')
  os.rename(folder / 'x', folder / 'data_batch_4')
  _refused(folder, "data_batch_4 is swapped .* itself 'testing batch 1 of 1'")


@pytest.mark.parametrize('write', [_write_python, _write_binary])
def test_batch_that_is_there_twice_is_refused(tmp_path, write):
  batches = _batches()
  batches[2] = batches[0]
  write(tmp_path / 'data', batches)
  _refused(tmp_path / 'data', 'data_batch_3.* has the same content as .*_1')


@pytest.mark.parametrize(
  ('replaced', 'message'),
  [
    ({b'data': np.zeros((12, 784), np.uint8)}, r'found uint8 \[12, 784\]'),
    ({b'data': np.zeros((12, 3072))}, r'found float64 \[12, 3072\]'),
    ({b'labels': [0] * 11}, r'each of its 12 images, found int64 \[11\]'),
    ({b'labels': [0.5] * 12}, 'found float64'),
    ({b'labels': [99] * 12}, 'from 0 to 9, found 99 to 99'),
    ({b'labels': [-1] * 12}, 'from 0 to 9, found -1 to -1'),
  ],
)
def test_wrong_content_of_python_batch_is_refused(tmp_path, replaced, message):
  _write_python(tmp_path / 'data', _batches(), data_batch_1=replaced)
  _refused(tmp_path / 'data', f'data_batch_1 must hold .*{message}')


def test_cifar100_batch_is_refused(tmp_path):
  folder = tmp_path / 'data'
  _write_python(folder, _batches())
  with open(folder / 'test_batch', 'wb') as file:
    pickle.dump({b'fine_labels': [1], b'data': np.zeros((1, 3072))}, file)
  _refused(folder, 'must hold data and labels, found fine_labels, data')


def test_label_out_of_range_in_binary_batch_is_refused(tmp_path):
  batches = _batches()
  batches[4] = batches[4][0], np.full(12, 10)
  _write_binary(tmp_path / 'data', batches)
  _refused(tmp_path / 'data', 'data_batch_5.bin must hold labels from 0 to 9')


class _RunsCode:
  """Pickles to a call of `os.mkdir`."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (str(self.path),)


def test_batch_cannot_run_code(tmp_path):
  trap = tmp_path / 'trap'
  _write_python(
    tmp_path / 'data', _batches(), test_batch={b'data': _RunsCode(trap)}
  )
  _refused(tmp_path / 'data', 'test_batch .*mkdir is not allowed in it')
  assert not trap.exists()


def test_download_is_extracted_once(tmp_path, monkeypatch):
  _write_python(tmp_path / cifar10.PYTHON_FOLDER, _batches())
  archive = tmp_path / 'archive.tar.gz'
  with tarfile.open(archive, 'w:gz') as file:
    file.add(tmp_path / cifar10.PYTHON_FOLDER, cifar10.PYTHON_FOLDER)
  there = dataclasses.replace(
    cifar10.ARCHIVE,
    origin=archive.as_uri(),
    file_hash=hashlib.sha256(archive.read_bytes()).hexdigest(),
  )
  monkeypatch.setattr(cifar10, 'ARCHIVE', there)
  cache = tmp_path / 'cache'
  first = create_task('cifar10', _IID, cache_dir=str(cache))
  archive.unlink()
  second = create_task('cifar10', _IID, cache_dir=str(cache))
  np.testing.assert_array_equal(first.train['x'], second.train['x'])
