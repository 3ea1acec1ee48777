"""EMNIST digits: 240,000 training and 40,000 test digits of 28×28.

Source: Cohen et al., "EMNIST: an extension of MNIST to handwritten letters"
(2017). The distribution has its images transposed; here they are upright.
"""

import numpy as np

from tasks.data.data_set import DataSet
from tasks.data.datasets import data_files, downloads, idx

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


def read_emnist_digits(
  data_dir: str | None = None, cache_dir: str | None = None
) -> DataSet:
  """Reads the EMNIST digits.

  Args:
    data_dir: Folder of the four IDX files; None to download NIST's archive
      (536 MB) and take them from it.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    Upright images uint8 [28, 28, 1] of 10 classes.

  Raises:
    data_files.DataError: If files are missing or refused.
  """
  if data_dir is None:
    data_dir = downloads.fetch_members('emnist_digits', ARCHIVE, cache_dir)
  paths = data_files.find_files(data_dir, FILES, subfolders=_SUBFOLDERS)
  x, y, x_test, y_test = idx.read_data_set(paths, _NUM_CLASSES)
  # Turned upright.
  x, x_test = (
    np.ascontiguousarray(images.transpose(0, 2, 1, 3)) for images in (x, x_test)
  )
  return DataSet(
    x=x,
    y=y,
    x_test=x_test,
    y_test=y_test,
    num_classes=_NUM_CLASSES,
    source=data_files.describe_source(
      'EMNIST digits', paths[0], _OFFICIAL, (len(x), len(x_test))
    ),
  )
