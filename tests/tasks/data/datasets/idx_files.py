"""Writes small files in the IDX format, for tests."""

import gzip
import pathlib
import struct

import numpy as np


def idx_bytes(array: np.ndarray) -> bytes:
  """Returns a uint8 array as an IDX file."""
  header = struct.pack('>HBB', 0, 8, array.ndim)
  sizes = struct.pack(f'>{array.ndim}I', *array.shape)
  return header + sizes + array.astype(np.uint8).tobytes()


def write_idx(path: pathlib.Path, array: np.ndarray) -> None:
  """Writes a uint8 array, compressed if the name ends in .gz."""
  content = idx_bytes(array)
  if path.suffix == '.gz':
    content = gzip.compress(content)
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)


def write_digits(
  folder: pathlib.Path,
  names: tuple[str, str, str, str],
  *,
  num_train: int = 60,
  num_test: int = 20,
  suffix: str = '',
  side: int = 28,
) -> dict[str, np.ndarray]:
  """Writes random digits under the four names; returns what it wrote."""
  rng = np.random.default_rng(0)
  arrays = {}
  for i, count in ((0, num_train), (2, num_test)):
    arrays[names[i]] = rng.integers(0, 256, (count, side, side), np.uint8)
    arrays[names[i + 1]] = (np.arange(count) % 10).astype(np.uint8)
  for name, array in arrays.items():
    write_idx(folder / f'{name}{suffix}', array)
  return arrays
