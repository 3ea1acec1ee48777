"""CIFAR-10: 50,000 training and 10,000 test images of 32×32×3.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images"
(2009), in its 'python' and its 'binary' distribution. A Python batch is a
pickled dictionary with `data`, uint8 [images, 3072], and `labels`; a binary
batch is 3073 bytes an image, the first of them its label. The 3072 bytes are
the red, the green and the blue plane.
"""

import io
import pathlib

import numpy as np

from tasks.data.data_set import DataSet
from tasks.data.datasets import array_pickles, data_files, downloads

PYTHON_FILES = (*(f'data_batch_{i}' for i in range(1, 6)), 'test_batch')
BINARY_FILES = tuple(f'{name}.bin' for name in PYTHON_FILES)
PYTHON_FOLDER = 'cifar-10-batches-py'
BINARY_FOLDER = 'cifar-10-batches-bin'

ARCHIVE = downloads.Archive(
  file='cifar-10-python.tar.gz',
  origin='https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz',
  hash_algorithm='sha256',
  file_hash='6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce',
  members=tuple(f'{PYTHON_FOLDER}/{name}' for name in PYTHON_FILES),
  folder=PYTHON_FOLDER,
)
_OFFICIAL = 50_000, 10_000
_NUM_CLASSES = 10
_IMAGE_BYTES = 3 * 32 * 32


def read_cifar10(
  data_dir: str | None = None, cache_dir: str | None = None
) -> DataSet:
  """Reads CIFAR-10.

  Args:
    data_dir: Folder that holds cifar-10-batches-py or cifar-10-batches-bin, or
      is one of them; None to download the former (170 MB).
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    Images uint8 [32, 32, 3] of 10 classes.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  if data_dir is None:
    data_dir = downloads.fetch_members('cifar10', ARCHIVE, cache_dir)
  paths = _find(pathlib.Path(data_dir).expanduser())
  batches = [_read_batch(path) for path in paths]
  data_files.check_no_duplicates(paths, [images for images, _ in batches])
  x = np.concatenate([images for images, _ in batches[:-1]])
  y = np.concatenate([labels for _, labels in batches[:-1]])
  x_test, y_test = batches[-1]
  return DataSet(
    x=x,
    y=y,
    x_test=x_test,
    y_test=y_test,
    num_classes=_NUM_CLASSES,
    source=data_files.describe_source(
      'CIFAR-10', paths[0], _OFFICIAL, (len(x), len(x_test))
    ),
  )


def _find(root: pathlib.Path) -> list[pathlib.Path]:
  """Finds the batches of either distribution."""
  names, folder = PYTHON_FILES, PYTHON_FOLDER
  if not (root / PYTHON_FOLDER).is_dir() and (
    (root / BINARY_FOLDER).is_dir() or any(root.glob('*_batch*.bin'))
  ):
    names, folder = BINARY_FILES, BINARY_FOLDER
  return data_files.find_files(
    root, names, subfolders=(folder,), optional_suffix=''
  )


def _read_batch(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Returns images uint8 [images, 32, 32, 3] and labels int32 [images]."""
  read = _read_binary if path.suffix == '.bin' else _read_python
  rows, labels = read(path)
  data_files.check_labels(path, labels, _NUM_CLASSES)
  images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
  return np.ascontiguousarray(images), labels.astype(np.int32)


def _read_binary(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Reads a binary batch, which does not say whether it is a test batch."""
  content = data_files.read_bytes(path)
  if len(content) % (1 + _IMAGE_BYTES):
    raise data_files.DataError(
      f'{path} is truncated or no CIFAR-10 batch: its {len(content)} bytes are '
      f'no multiple of {1 + _IMAGE_BYTES}, the bytes of an image.'
    )
  records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _IMAGE_BYTES)
  return records[:, 1:], records[:, 0]


def _read_python(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Reads a Python batch, which says of itself whether it is a test batch."""
  content = data_files.read_bytes(path)
  try:
    batch = array_pickles.load(io.BytesIO(content))
  except Exception as e:  # A damaged pickle can raise nearly anything.
    reason = ' '.join(str(e).split()) or type(e).__name__
    raise data_files.DataError(
      f'{path} is truncated, corrupted or no CIFAR-10 batch: {reason}.'
    ) from e
  if not isinstance(batch, dict):
    raise data_files.DataError(
      f'{path} must hold a dictionary, found {type(batch).__name__}.'
    )
  batch = {
    key.decode() if isinstance(key, bytes) else key: value
    for key, value in batch.items()
  }
  if not {'data', 'labels'} <= set(batch):
    raise data_files.DataError(
      f'{path} must hold data and labels, found {", ".join(map(str, batch))}.'
    )
  rows, labels = np.asarray(batch['data']), np.asarray(batch['labels'])
  if rows.dtype != np.uint8 or rows.shape != (len(rows), _IMAGE_BYTES):
    raise data_files.DataError(
      f'{path} must hold data as uint8 [images, {_IMAGE_BYTES}], found '
      f'{rows.dtype} {list(rows.shape)}.'
    )
  if labels.dtype.kind not in 'iu' or labels.shape != (len(rows),):
    raise data_files.DataError(
      f'{path} must hold one integer label for each of its {len(rows)} images, '
      f'found {labels.dtype} {list(labels.shape)}.'
    )
  batch_label = batch.get('batch_label', '')
  if isinstance(batch_label, bytes):
    batch_label = batch_label.decode(errors='replace')
  is_test = path.name == 'test_batch'
  if batch_label and ('test' in batch_label) != is_test:
    raise data_files.DataError(
      f'{path} is swapped with another batch: it calls itself {batch_label!r}.'
    )
  return rows, labels
