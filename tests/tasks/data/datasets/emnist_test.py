"""Tests for tasks.data.datasets.emnist."""

import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest

from tasks.data.datasets import data_files, emnist
from tasks.data.datasets.registry import create_task
from tasks.data.partitions import partition_config
from tests.tasks.data.datasets import idx_files

_IID = partition_config.PartitionConfig('iid', num_clients=6)


@pytest.mark.parametrize('suffix', ['', '.gz'])
@pytest.mark.parametrize('folder', ['', 'gzip'])
def test_images_are_turned_upright(tmp_path, folder, suffix):
  written = idx_files.write_digits(
    tmp_path / folder, emnist.FILES, suffix=suffix
  )
  task = create_task('emnist_digits', _IID, data_dir=str(tmp_path))
  assert task.num_classes == 10
  stored = written[emnist.FILES[0]]
  # What the file has in row 3 and column 20 is in row 20 and column 3.
  assert task.train['x'][5, 20, 3, 0] == stored[5, 3, 20]
  np.testing.assert_array_equal(
    task.train['x'][..., 0], stored.transpose(0, 2, 1)
  )
  np.testing.assert_array_equal(
    task.test['x'][..., 0], written[emnist.FILES[2]].transpose(0, 2, 1)
  )
  np.testing.assert_array_equal(task.test['y'], written[emnist.FILES[3]])


def test_letters_under_the_names_of_digits_are_refused(tmp_path):
  idx_files.write_digits(tmp_path, emnist.FILES)
  idx_files.write_idx(tmp_path / emnist.FILES[1], np.arange(60) % 26 + 1)
  with pytest.raises(data_files.DataError, match='from 0 to 9, found 1 to 26'):
    create_task('emnist_digits', _IID, data_dir=str(tmp_path))


def _put_archive(monkeypatch, path, **changes):
  archive = dataclasses.replace(emnist.ARCHIVE, origin=path.as_uri(), **changes)
  monkeypatch.setattr(emnist, 'ARCHIVE', archive)


def test_download_takes_the_digits_out_of_the_archive(tmp_path, monkeypatch):
  idx_files.write_digits(tmp_path / 'files', emnist.FILES, suffix='.gz')
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, 'w') as archive:
    archive.writestr('gzip/emnist-letters-mapping.txt', 'not needed')
    for path in (tmp_path / 'files').iterdir():
      archive.writestr(f'gzip/{path.name}', path.read_bytes())
  (tmp_path / 'gzip.zip').write_bytes(buffer.getvalue())
  _put_archive(
    monkeypatch,
    tmp_path / 'gzip.zip',
    file_hash=hashlib.md5(buffer.getvalue()).hexdigest(),
  )
  cache = tmp_path / 'cache'
  task = create_task('emnist_digits', _IID, cache_dir=str(cache))
  assert task.train['x'].shape == (60, 28, 28, 1)
  assert sorted(path.name for path in (cache / 'downloads').iterdir()) == [
    'emnist-digits'
  ]
  # From now on the archive is not needed.
  (tmp_path / 'gzip.zip').unlink()
  again = create_task('emnist_digits', _IID, cache_dir=str(cache))
  np.testing.assert_array_equal(again.train['x'], task.train['x'])


def test_download_with_a_wrong_checksum_is_refused(tmp_path, monkeypatch):
  (tmp_path / 'gzip.zip').write_bytes(b'not the archive')
  _put_archive(monkeypatch, tmp_path / 'gzip.zip')
  with pytest.raises(data_files.DataError) as error:
    create_task('emnist_digits', _IID, cache_dir=str(tmp_path / 'cache'))
  assert 'hash does not match' in str(error.value)
  assert '\n' not in str(error.value)


def test_offline_error_says_which_files_to_put_where(tmp_path, monkeypatch):
  _put_archive(monkeypatch, tmp_path / 'nowhere.zip')
  with pytest.raises(data_files.DataError) as error:
    create_task('emnist_digits', _IID, cache_dir=str(tmp_path / 'cache'))
  message = str(error.value)
  assert message.startswith('emnist_digits is not in the cache and cannot be')
  assert all(name in message for name in emnist.FILES)
  assert message.endswith('into a folder and name it with --data_dir.')
  assert '\n' not in message
