"""CIFAR-10: 50,000 training and 10,000 test images of 32×32×3.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images"
(2009), in its 'python' and its 'binary' distribution.
"""

import collections
import pathlib

import numpy as np

from tasks.data import task
from tasks.data.datasets import cifar10_batches, data_files, downloads
from tasks.data.partitions import partition_config

PYTHON_FILES = (*(f'data_batch_{i}' for i in range(1, 6)), 'test_batch')
BINARY_FILES = tuple(f'{name}.bin' for name in PYTHON_FILES)
PYTHON_FOLDER = 'cifar-10-batches-py'
BINARY_FOLDER = 'cifar-10-batches-bin'

_ARCHIVE = 'cifar-10-python.tar.gz'
_ARCHIVE_ORIGIN = f'https://www.cs.toronto.edu/~kriz/{_ARCHIVE}'
_ARCHIVE_SHA256 = (
  '6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce'
)
_OFFICIAL = 50_000, 10_000
_NUM_CLASSES = 10


def create_cifar10_task(
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates the task of CIFAR-10.

  Args:
    split: How to split the training images over clients.
    data_dir: Folder that holds cifar-10-batches-py or cifar-10-batches-bin, or
      is one of them; None to download the former (170 MB).
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The task, with images uint8 [32, 32, 3] and 10 classes.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  paths = _find(data_dir) if data_dir is not None else _download(cache_dir)
  batches = [
    cifar10_batches.read_batch(path, is_test=path.stem == 'test_batch')
    for path in paths
  ]
  data_files.check_no_duplicates(paths, [images for images, _ in batches])
  x_train = np.concatenate([images for images, _ in batches[:-1]])
  y_train = np.concatenate([labels for _, labels in batches[:-1]])
  x_test, y_test = batches[-1]
  source = data_files.describe_source(
    'CIFAR-10', paths[0], _OFFICIAL, (len(x_train), len(x_test))
  )
  return task.Task(
    name='cifar10',
    train=collections.OrderedDict(x=x_train, y=y_train),
    partition=split.split(y_train),
    test=collections.OrderedDict(x=x_test, y=y_test),
    num_classes=_NUM_CLASSES,
    source=source,
  )


def _find(data_dir: str) -> list[pathlib.Path]:
  """Finds the batches of either distribution."""
  root = pathlib.Path(data_dir).expanduser()
  names, folder = PYTHON_FILES, PYTHON_FOLDER
  if (root / BINARY_FOLDER).is_dir() or any(root.glob('*_batch*.bin')):
    names, folder = BINARY_FILES, BINARY_FOLDER
  if (root / PYTHON_FOLDER).is_dir():
    names, folder = PYTHON_FILES, PYTHON_FOLDER
  return data_files.find_files(
    root, names, subfolders=(folder,), optional_suffix=''
  )


def _download(cache_dir: str | None) -> list[pathlib.Path]:
  """Returns the batches from the cache, downloaded if need be."""
  folder = downloads.downloads_dir(cache_dir)
  extracted = folder / PYTHON_FOLDER
  if not extracted.is_dir():
    with downloads.offline_advice(
      'cifar10', [f'{PYTHON_FOLDER}/{name}' for name in PYTHON_FILES]
    ):
      archive = downloads.fetch(
        _ARCHIVE, _ARCHIVE_ORIGIN, _ARCHIVE_SHA256, 'sha256', folder
      )
    downloads.extract(
      archive, [f'{PYTHON_FOLDER}/{name}' for name in PYTHON_FILES], extracted
    )
    archive.unlink()
  return data_files.find_files(extracted, PYTHON_FILES, optional_suffix='')
