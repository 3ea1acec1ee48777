"""Tests for tasks.data.datasets.idx."""

import gzip
import re

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


def _refused(path, content, message, read=idx.read_images):
  path.write_bytes(content)
  with pytest.raises(data_files.DataError) as error:
    read(path)
  text = str(error.value)
  assert text.startswith(str(path))
  assert '\n' not in text
  assert re.search(message, text), text


def test_truncated_file_is_refused(tmp_path):
  _refused(
    tmp_path / 'images',
    idx_files.idx_bytes(_IMAGES)[:-1],
    'is truncated: its header says 1568 values, it has 1567',
  )


def test_truncated_header_is_refused(tmp_path):
  _refused(
    tmp_path / 'images',
    idx_files.idx_bytes(_IMAGES)[:10],
    'is truncated: 10 bytes, and its header has 16',
  )


def test_too_long_file_is_refused(tmp_path):
  _refused(
    tmp_path / 'images', idx_files.idx_bytes(_IMAGES) + b'0', 'is too long'
  )


def test_truncated_gzip_is_refused(tmp_path):
  content = gzip.compress(idx_files.idx_bytes(_IMAGES))
  _refused(tmp_path / 'images.gz', content[:-20], 'is truncated')


@pytest.mark.parametrize('position', [30, -6])
def test_corrupted_gzip_is_refused(tmp_path, position):
  # A byte of the stream, and one of the checksum at its end.
  content = bytearray(gzip.compress(idx_files.idx_bytes(_IMAGES)))
  content[position] ^= 0xFF
  _refused(tmp_path / 'images.gz', bytes(content), 'is corrupted')


def test_file_that_is_no_gzip_is_refused(tmp_path):
  _refused(
    tmp_path / 'images.gz',
    idx_files.idx_bytes(_IMAGES),
    'is corrupted: Not a gzipped file',
  )


def test_labels_in_place_of_images_are_refused(tmp_path):
  _refused(
    tmp_path / 'images',
    idx_files.idx_bytes(np.arange(10)),
    r'must hold images \(3 dimensions\), found labels \(1 dimensions\)',
  )


def test_file_of_another_format_is_refused(tmp_path):
  _refused(
    tmp_path / 'images',
    b'\x89PNG' + bytes(20),
    'is no IDX file of unsigned bytes: it begins with 89 50 4e 47',
  )


def test_images_of_another_size_are_refused(tmp_path):
  _refused(
    tmp_path / 'images',
    idx_files.idx_bytes(np.zeros((2, 32, 32))),
    'must hold images of 28×28, found 32×32',
  )


def test_empty_file_is_refused(tmp_path):
  _refused(
    tmp_path / 'images', idx_files.idx_bytes(np.zeros((0, 28, 28))), 'is empty'
  )


def test_label_out_of_range_is_refused(tmp_path):
  # As the letters of EMNIST have.
  _refused(
    tmp_path / 'labels',
    idx_files.idx_bytes(np.array([1, 26])),
    'must hold labels from 0 to 9, found 1 to 26',
    lambda path: idx.read_labels(path, 10),
  )
