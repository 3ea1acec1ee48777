"""MNIST: 60,000 training and 10,000 test digits of 28×28."""

import hashlib
import pathlib

import numpy as np

from tasks.data.data_set import DataSet
from tasks.data.datasets import data_files, downloads, idx

FILES = (
  'train-images-idx3-ubyte',
  'train-labels-idx1-ubyte',
  't10k-images-idx3-ubyte',
  't10k-labels-idx1-ubyte',
)
WRITERS_FILE = 'writers.npz'

# MD5 of each of `FILES` without compression, as first distributed.
_MD5 = (
  '6bbc9ace898e44ae57da46a324031adb',
  'a25bea736e30d166cdddb491f175f624',
  '2646ac647ad5339dbf082846283269ea',
  '27ae3e4e09519cfbb04c329615203637',
)
_OFFICIAL = 60_000, 10_000
_NUM_CLASSES = 10
_SUBFOLDERS = ('mnist', 'MNIST/raw')


def read_mnist(
  data_dir: str | None = None, cache_dir: str | None = None
) -> DataSet:
  """Reads MNIST.

  Args:
    data_dir: Folder of the four IDX files; None to download them with Keras.
      It may hold writers.npz, with `writer_train` [60000], too: whose each
      digit is.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    Images uint8 [28, 28, 1] of 10 classes.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  writers = None
  if data_dir is None:
    arrays = _download(cache_dir)
    source = 'MNIST, downloaded by Keras'
  else:
    paths = data_files.find_files(data_dir, FILES, subfolders=_SUBFOLDERS)
    arrays, source = _read(paths)
    writers = _read_writers(paths[0].with_name(WRITERS_FILE), len(arrays[1]))
  x, y, x_test, y_test = arrays
  return DataSet(
    x=x,
    y=y,
    x_test=x_test,
    y_test=y_test,
    num_classes=_NUM_CLASSES,
    source=source,
    owners=writers,
  )


def _read(paths: list[pathlib.Path]) -> tuple[list[np.ndarray], str]:
  """Reads the four files; returns them and a line on their source."""
  arrays = idx.read_data_set(paths, _NUM_CLASSES)
  found = len(arrays[1]), len(arrays[3])
  source = data_files.describe_source('MNIST', paths[0], _OFFICIAL, found)
  if found != _OFFICIAL:
    return list(arrays), source
  for path, expected in zip(paths, _MD5, strict=True):
    digest = hashlib.md5(
      data_files.read_bytes(path), usedforsecurity=False
    ).hexdigest()
    if digest != expected:
      raise data_files.DataError(
        f'{path} is corrupted or not of MNIST: its content has the MD5 '
        f'{digest}, not {expected}.'
      )
  return list(arrays), f'{source}, the official files'


def _read_writers(path: pathlib.Path, num_train: int) -> np.ndarray | None:
  """Reads the writer of each training image, if there is such a file."""
  if not path.is_file():
    return None
  try:
    with np.load(path, allow_pickle=False) as arrays:
      writers = arrays['writer_train']
  except (OSError, ValueError, KeyError, EOFError) as e:
    raise data_files.DataError(
      f'{path} must be an .npz file with the integers writer_train: {e}.'
    ) from e
  if writers.shape != (num_train,) or writers.dtype.kind not in 'iu':
    raise data_files.DataError(
      f'{path} must hold one integer of writer_train for each of the '
      f'{num_train} training images, found {writers.dtype} '
      f'{list(writers.shape)}.'
    )
  # Zero-padded, so that the ids sort as the numbers do.
  return np.char.add('writer_', np.char.zfill(writers.astype(str), 5))


def _download(cache_dir: str | None) -> list[np.ndarray]:
  """Returns the four arrays from the cache, downloaded if need be."""
  folder = downloads.downloads_dir(cache_dir)
  with downloads.offline_advice('mnist', [f'{name}[.gz]' for name in FILES]):
    import tensorflow as tf

    (x_train, y_train), (x_test, y_test) = tf.keras.datasets.mnist.load_data(
      str(folder.absolute() / 'mnist.npz')
    )
  return [
    x_train[..., np.newaxis],
    y_train.astype(np.int32),
    x_test[..., np.newaxis],
    y_test.astype(np.int32),
  ]
