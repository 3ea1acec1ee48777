"""EMNIST digits: 240,000 training and 40,000 test digits of 28×28.

Source: Cohen et al., "EMNIST: an extension of MNIST to handwritten letters"
(2017). The distribution has its images transposed; here they are upright.
"""

import collections

import numpy as np

from tasks.data import task
from tasks.data.datasets import data_files, downloads, idx
from tasks.data.partitions import partition_config

FILES = (
  'emnist-digits-train-images-idx3-ubyte',
  'emnist-digits-train-labels-idx1-ubyte',
  'emnist-digits-test-images-idx3-ubyte',
  'emnist-digits-test-labels-idx1-ubyte',
)

# It holds five other splits of EMNIST, too.
ARCHIVE = downloads.Archive(
  file='emnist-gzip.zip',
  origin='https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip',
  hash_algorithm='md5',
  file_hash='58c8d27c78d21e728a6bc7b3cc06412e',
  members=tuple(f'gzip/{name}.gz' for name in FILES),
  folder='emnist-digits',
)
_OFFICIAL = 240_000, 40_000
_NUM_CLASSES = 10
_SUBFOLDERS = ('gzip', 'emnist', 'emnist/gzip', 'EMNIST/raw')


def create_emnist_digits_task(
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates the task of the EMNIST digits.

  Args:
    split: How to split the training digits over clients.
    data_dir: Folder of the four IDX files; None to download NIST's archive
      (536 MB) and take them from it.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The task, with upright images uint8 [28, 28, 1] and 10 classes.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  if data_dir is None:
    data_dir = downloads.fetch_members('emnist_digits', ARCHIVE, cache_dir)
  paths = data_files.find_files(data_dir, FILES, subfolders=_SUBFOLDERS)
  x_train, y_train, x_test, y_test = idx.read_data_set(paths, _NUM_CLASSES)
  # Turned upright.
  x_train, x_test = (
    np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (x_train, x_test)
  )
  source = data_files.describe_source(
    'EMNIST digits', paths[0], _OFFICIAL, (len(x_train), len(x_test))
  )
  return task.Task(
    name='emnist_digits',
    train=collections.OrderedDict(x=x_train, y=y_train),
    partition=split.split(y_train),
    test=collections.OrderedDict(x=x_test, y=y_test),
    num_classes=_NUM_CLASSES,
    source=source,
  )
