"""The IDX format, in which MNIST and EMNIST are distributed.

A file is a magic number (0, 0, the type of the values, the number of
dimensions), the size of each dimension as a big-endian 32-bit integer, and the
values. Source: the description of the format on the MNIST page, "THE IDX FILE
FORMAT".
"""

import math
import pathlib
import struct
from collections.abc import Sequence

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


def read_data_set(
  paths: Sequence[pathlib.Path], num_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Reads a training set and a test set.

  Args:
    paths: The images and the labels to train, then those to test.
    num_classes: The labels must be below this.

  Returns:
    The images and labels to train, then those to test.

  Raises:
    data_files.DataError: If a file is no such file, or they do not belong
      together.
  """
  x_train, x_test = read_images(paths[0]), read_images(paths[2])
  y_train, y_test = (read_labels(path, num_classes) for path in paths[1::2])
  for number, x, y in ((0, x_train, y_train), (2, x_test, y_test)):
    if len(x) != len(y):
      raise data_files.DataError(
        f'{paths[number]} has {len(x)} images but {paths[number + 1]} has '
        f'{len(y)} labels: they do not belong together.'
      )
  if len(x_test) > len(x_train):
    raise data_files.DataError(
      f'{paths[0]} and {paths[2]} are swapped: {len(x_train)} images to train, '
      f'{len(x_test)} to test.'
    )
  return x_train, y_train, x_test, y_test


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
