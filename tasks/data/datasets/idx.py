"""The IDX format, in which MNIST and EMNIST are distributed.

A file is a magic number (0, 0, the type of the values, the number of
dimensions), the size of each dimension as a big-endian 32-bit integer, and the
values. Source: the description of the format on the MNIST page, "THE IDX FILE
FORMAT".
"""

import math
import pathlib
import struct

import numpy as np

from tasks.data.datasets import data_files

_UNSIGNED_BYTE = 0x08
# The height and width of MNIST's images, and of EMNIST's.
_SIDE = 28
_KINDS = {1: 'labels', 3: 'images'}


def read_images(path: pathlib.Path) -> np.ndarray:
  """Reads images of one channel.

  Args:
    path: An IDX3 file, gzip-compressed if it ends in .gz.

  Returns:
    uint8 [images, 28, 28, 1].

  Raises:
    data_files.DataError: If the file is not such a file.
  """
  images = _read(path, 3)
  if images.shape[1:] != (_SIDE, _SIDE):
    raise data_files.DataError(
      f'{path} must hold images of {_SIDE}×{_SIDE}, found '
      f'{images.shape[1]}×{images.shape[2]}.'
    )
  return images[..., np.newaxis]


def read_labels(path: pathlib.Path, num_classes: int) -> np.ndarray:
  """Reads labels.

  Args:
    path: An IDX1 file, gzip-compressed if it ends in .gz.
    num_classes: The labels must be below this.

  Returns:
    int32 [labels].

  Raises:
    data_files.DataError: If the file is not such a file.
  """
  labels = _read(path, 1)
  data_files.check_labels(path, labels, num_classes)
  return labels.astype(np.int32)


def check_pair(
  images_path: pathlib.Path,
  images: np.ndarray,
  labels_path: pathlib.Path,
  labels: np.ndarray,
) -> None:
  """Refuses images and labels that are not of the same examples.

  Args:
    images_path: Where the images are from.
    images: [images, ...].
    labels_path: Where the labels are from.
    labels: [labels].

  Raises:
    data_files.DataError: If there are more of one than of the other.
  """
  if len(images) != len(labels):
    raise data_files.DataError(
      f'{images_path} has {len(images)} images but {labels_path} has '
      f'{len(labels)} labels: they do not belong together.'
    )


def check_not_swapped(
  train_path: pathlib.Path,
  num_train: int,
  test_path: pathlib.Path,
  num_test: int,
) -> None:
  """Refuses a test set that is larger than its training set.

  Args:
    train_path: Where the training images are from.
    num_train: How many they are.
    test_path: Where the test images are from.
    num_test: How many they are.

  Raises:
    data_files.DataError: If there are more to test than to train.
  """
  if num_test > num_train:
    raise data_files.DataError(
      f'{train_path} and {test_path} are swapped: {num_train} images to train, '
      f'{num_test} to test.'
    )


def _read(path: pathlib.Path, num_dims: int) -> np.ndarray:
  """Reads unsigned bytes with this number of dimensions."""
  content = data_files.read_bytes(path)
  header_size = 4 + 4 * num_dims
  if len(content) < header_size:
    raise data_files.DataError(
      f'{path} is truncated: {len(content)} bytes, and its header has '
      f'{header_size}.'
    )
  zeros, value_type, found_dims = struct.unpack('>HBB', content[:4])
  if zeros != 0 or value_type != _UNSIGNED_BYTE:
    raise data_files.DataError(
      f'{path} is no IDX file of unsigned bytes: it begins with '
      f'{content[:4].hex(" ")}.'
    )
  if found_dims != num_dims:
    raise data_files.DataError(
      f'{path} must hold {_KINDS[num_dims]} ({num_dims} dimensions), found '
      f'{_KINDS.get(found_dims, "something else")} ({found_dims} dimensions).'
    )
  shape = struct.unpack(f'>{num_dims}I', content[4:header_size])
  num_values = math.prod(shape)
  if len(content) - header_size != num_values:
    problem = (
      'truncated' if len(content) - header_size < num_values else 'too long'
    )
    raise data_files.DataError(
      f'{path} is {problem}: its header says {num_values} values, it has '
      f'{len(content) - header_size}.'
    )
  if not num_values:
    raise data_files.DataError(f'{path} is empty: its header says {shape}.')
  return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)
