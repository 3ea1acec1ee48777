"""Tests for tasks.data.datasets.mnist."""

import gzip

import numpy as np
import pytest

from tasks.data.datasets import data_files, mnist
from tasks.data.datasets.registry import create_task
from tasks.data.partitions import partition_config
from tests.tasks.data.datasets import idx_files

_IID = partition_config.PartitionConfig('iid', num_clients=6)
_NATURAL = partition_config.PartitionConfig('natural')


@pytest.mark.parametrize('suffix', ['', '.gz'])
@pytest.mark.parametrize('folder', ['', 'mnist', 'MNIST/raw'])
def test_official_layouts_are_read(tmp_path, folder, suffix):
  written = idx_files.write_digits(
    tmp_path / folder, mnist.FILES, suffix=suffix
  )
  task = create_task('mnist', _IID, data_dir=str(tmp_path))
  assert task.num_classes == 10
  assert task.input_shape == (28, 28, 1)
  assert task.num_clients == 6
  np.testing.assert_array_equal(
    task.train['x'][..., 0], written[mnist.FILES[0]]
  )
  np.testing.assert_array_equal(task.train['y'], written[mnist.FILES[1]])
  np.testing.assert_array_equal(task.test['x'][..., 0], written[mnist.FILES[2]])
  np.testing.assert_array_equal(task.test['y'], written[mnist.FILES[3]])


def test_task_says_that_files_are_not_official(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES)
  task = create_task('mnist', _IID, data_dir=str(tmp_path))
  assert task.source == 'not the official MNIST: 60 + 20 images'


def test_writers_are_the_natural_clients(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES)
  writers = np.repeat(np.array([7, 12, 3], np.uint16), 20)
  np.savez(tmp_path / 'writers.npz', writer_train=writers)
  task = create_task('mnist', _NATURAL, data_dir=str(tmp_path))
  assert task.client_ids == ('writer_00003', 'writer_00007', 'writer_00012')
  np.testing.assert_array_equal(task.partition.indices[1], np.arange(20))


def test_natural_partition_without_writers_is_refused(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES)
  with pytest.raises(ValueError, match='as writers.npz does'):
    create_task('mnist', _NATURAL, data_dir=str(tmp_path))


@pytest.mark.parametrize(
  'arrays',
  [
    dict(writer_train=np.arange(59)),
    dict(writer_train=np.zeros(60)),
    dict(writers=np.arange(60)),
  ],
)
def test_wrong_writers_are_refused(tmp_path, arrays):
  idx_files.write_digits(tmp_path, mnist.FILES)
  np.savez(tmp_path / 'writers.npz', **arrays)
  with pytest.raises(data_files.DataError, match='writers.npz must '):
    create_task('mnist', _NATURAL, data_dir=str(tmp_path))


def test_missing_folder_is_refused(tmp_path):
  with pytest.raises(data_files.DataError, match='must be a folder'):
    create_task('mnist', _IID, data_dir=str(tmp_path / 'nowhere'))


def test_missing_file_is_named(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES)
  (tmp_path / mnist.FILES[3]).unlink()
  with pytest.raises(data_files.DataError) as error:
    create_task('mnist', _IID, data_dir=str(tmp_path))
  assert str(error.value).endswith(f'{tmp_path} lacks {mnist.FILES[3]}.')


def test_empty_folder_names_all_files(tmp_path):
  with pytest.raises(data_files.DataError, match='found none of them') as error:
    create_task('mnist', _IID, data_dir=str(tmp_path))
  assert all(name in str(error.value) for name in mnist.FILES)


def test_swapped_train_and_test_are_refused(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES, num_train=20, num_test=60)
  with pytest.raises(data_files.DataError, match='are swapped: 20 images to'):
    create_task('mnist', _IID, data_dir=str(tmp_path))


def test_labels_of_other_images_are_refused(tmp_path):
  idx_files.write_digits(tmp_path, mnist.FILES)
  train, test = (tmp_path / mnist.FILES[i] for i in (1, 3))
  train_bytes, test_bytes = train.read_bytes(), test.read_bytes()
  train.write_bytes(test_bytes)
  test.write_bytes(train_bytes)
  with pytest.raises(data_files.DataError, match='has 60 images but .* 20 lab'):
    create_task('mnist', _IID, data_dir=str(tmp_path))


def test_official_counts_without_official_content_are_refused(tmp_path):
  sizes = ((60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,))
  for name, size in zip(mnist.FILES, sizes, strict=True):
    content = idx_files.idx_bytes(np.broadcast_to(np.uint8(1), size))
    (tmp_path / f'{name}.gz').write_bytes(gzip.compress(content, 1))
  with pytest.raises(data_files.DataError, match='corrupted or not of MNIST'):
    create_task('mnist', _IID, data_dir=str(tmp_path))
