"""Tests for tasks.data.datasets.idx."""

import gzip

import numpy as np
import pytest

from tasks.data.datasets import data_files, idx
from tests.tasks.data.datasets import idx_files

_IMAGES = np.arange(2 * 28 * 28, dtype=np.uint16).astype(np.uint8)
_IMAGES = _IMAGES.reshape(2, 28, 28)


@pytest.mark.parametrize('suffix', ['', '.gz'])
def test_images_and_labels_come_back(tmp_path, suffix):
  idx_files.write_idx(tmp_path / f'images{suffix}', _IMAGES)
  idx_files.write_idx(tmp_path / f'labels{suffix}', np.array([3, 9]))
  images = idx.read_images(tmp_path / f'images{suffix}')
  labels = idx.read_labels(tmp_path / f'labels{suffix}', 10)
  assert images.dtype == np.uint8
  np.testing.assert_array_equal(images, _IMAGES[..., np.newaxis])
  assert labels.dtype == np.int32
  np.testing.assert_array_equal(labels, [3, 9])


_WHOLE = idx_files.idx_bytes(_IMAGES)
_ZIPPED = gzip.compress(_WHOLE)


def _flipped(content, position):
  changed = bytearray(content)
  changed[position] ^= 0xFF
  return bytes(changed)


# The bytes of files, and what is said of them.
_WRONG = {
  'truncated': (
    _WHOLE[:-1],
    'is truncated: its header says 1568 values, it has 1567',
  ),
  'truncated header': (
    _WHOLE[:10],
    'is truncated: 10 bytes, and its header has 16',
  ),
  'too long': (_WHOLE + b'0', 'is too long'),
  'truncated.gz': (_ZIPPED[:-20], 'is truncated'),
  # A byte of the stream, and one of the checksum at its end.
  'corrupted.gz': (_flipped(_ZIPPED, 30), 'is corrupted'),
  'corrupted at its end.gz': (_flipped(_ZIPPED, -6), 'is corrupted'),
  'not zipped.gz': (_WHOLE, 'is corrupted: Not a gzipped file'),
  'labels': (
    idx_files.idx_bytes(np.arange(10)),
    r'must hold images \(3 dimensions\), found labels \(1 dimensions\)',
  ),
  'a picture': (
    b'\x89PNG' + bytes(20),
    'is no IDX file of unsigned bytes: it begins with 89 50 4e 47',
  ),
  'larger images': (
    idx_files.idx_bytes(np.zeros((2, 32, 32))),
    'must hold images of 28×28, found 32×32',
  ),
  'empty': (idx_files.idx_bytes(np.zeros((0, 28, 28))), 'is empty'),
}


@pytest.mark.parametrize('name', _WRONG)
def test_a_file_that_holds_no_images_is_refused(tmp_path, name):
  content, message = _WRONG[name]
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(data_files.DataError, match=message) as error:
    idx.read_images(path)
  assert str(error.value).startswith(str(path))
  assert '\n' not in str(error.value)


def test_label_out_of_range_is_refused(tmp_path):
  # As the letters of EMNIST have.
  idx_files.write_idx(tmp_path / 'labels', np.array([1, 26]))
  with pytest.raises(
    data_files.DataError, match='labels from 0 to 9, found 1 to 26'
  ):
    idx.read_labels(tmp_path / 'labels', 10)
