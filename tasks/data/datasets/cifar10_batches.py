"""The files of CIFAR-10's 'python' and 'binary' distributions.

A Python batch is a pickled dictionary with `data`, uint8 [images, 3072], and
`labels`; a binary batch is 3073 bytes an image, the first of them its label.
The 3072 bytes are the red, the green and the blue plane.
"""

import io
import pathlib

import numpy as np

from tasks.data.datasets import array_pickles, data_files

_IMAGE_BYTES = 3 * 32 * 32
_NUM_CLASSES = 10


def read_batch(
  path: pathlib.Path, *, is_test: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Reads one batch.

  Args:
    path: A binary batch if it ends in .bin, else a Python batch.
    is_test: Whether it is to be the test batch. A Python batch says of itself
      what it is.

  Returns:
    Images uint8 [images, 32, 32, 3] and labels int32 [images].

  Raises:
    data_files.DataError: If the file is not such a batch.
  """
  read = _read_binary if path.suffix == '.bin' else _read_python
  rows, labels = read(path, is_test)
  data_files.check_labels(path, labels, _NUM_CLASSES)
  images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
  return np.ascontiguousarray(images), labels.astype(np.int32)


def _read_binary(
  path: pathlib.Path, is_test: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Reads a binary batch, which does not say whether it is a test batch."""
  del is_test
  content = data_files.read_bytes(path)
  if len(content) % (1 + _IMAGE_BYTES):
    raise data_files.DataError(
      f'{path} is truncated or no CIFAR-10 batch: its {len(content)} bytes are '
      f'no multiple of {1 + _IMAGE_BYTES}, the bytes of an image.'
    )
  records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _IMAGE_BYTES)
  return records[:, 1:], records[:, 0]


def _read_python(
  path: pathlib.Path, is_test: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Reads a Python batch."""
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
  if batch_label and ('test' in batch_label) != is_test:
    raise data_files.DataError(
      f'{path} is swapped with another batch: it calls itself {batch_label!r}.'
    )
  return rows, labels
