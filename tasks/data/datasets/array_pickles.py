"""Pickles of NumPy arrays and plain values, read without running code."""

import os
import pickle
import zipfile
from typing import IO, Any

import numpy as np

# What pickles of arrays are made of, by NumPy of any age.
_ALLOWED_GLOBALS = frozenset(
  {
    ('numpy', 'dtype'),
    ('numpy', 'ndarray'),
    ('numpy.core.multiarray', '_reconstruct'),
    ('numpy._core.multiarray', '_reconstruct'),
    ('_codecs', 'encode'),
  }
)


def load(file: IO[bytes]) -> Any:
  """Returns what a file has pickled.

  Args:
    file: The file, open to be read.

  Raises:
    pickle.UnpicklingError: If it has something else than arrays and plain
      values. A damaged pickle can raise nearly anything.
  """
  return _Unpickler(file, encoding='bytes').load()


def load_npz(path: str | os.PathLike, name: str) -> Any:
  """Returns an object that `numpy.savez` has pickled, such as a dictionary.

  Args:
    path: The `.npz` file.
    name: What the object is called in it.

  Raises:
    pickle.UnpicklingError: As for `load`.
  """
  with zipfile.ZipFile(path) as archive, archive.open(f'{name}.npy') as file:
    if np.lib.format.read_magic(file) == (1, 0):
      np.lib.format.read_array_header_1_0(file)
    else:
      np.lib.format.read_array_header_2_0(file)
    return load(file).item()


class _Unpickler(pickle.Unpickler):
  """Unpickles NumPy arrays and plain values; nothing that could run code."""

  def find_class(self, module: str, name: str):
    """Refuses every global that arrays do not need."""
    if (module, name) not in _ALLOWED_GLOBALS:
      raise pickle.UnpicklingError(f'{module}.{name} is not allowed in it')
    return super().find_class(module, name)
