"""Packs the publisher's files of a data set into one .npz file.

  python examples/data/pack.py mnist FOLDER mnist.npz
  python examples/data/pack.py cifar10 FOLDER cifar10.npz
  python examples/data/pack.py emnist FOLDER emnist.npz

FOLDER has the IDX files of MNIST or of the EMNIST digits, with or without .gz,
or data_batch_1 to data_batch_5 and test_batch of CIFAR-10. A batch is a pickle,
which can run any code: take it from the publisher's archive alone. --data_dir
reads mnist.npz and cifar10.npz; emnist.npz is for --task=emnist.npz.
"""

import gzip
import pathlib
import pickle
import sys

import numpy as np


def read_idx(path):
  """Returns the uint8 array of an IDX file, with or without .gz."""
  if not path.exists():
    path = path.with_name(f'{path.name}.gz')
  content = path.read_bytes()
  content = gzip.decompress(content) if path.suffix == '.gz' else content
  shape = np.frombuffer(content, '>i4', count=content[3], offset=4)
  return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(
    shape
  )


def read_batch(path):
  """Returns the images [n, 32, 32, 3] and the labels of a CIFAR-10 batch."""
  batch = pickle.loads(path.read_bytes(), encoding='bytes')
  images = batch[b'data'].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
  return images, np.array(batch[b'labels'], np.uint8)


def read(name, folder):
  """Returns the arrays of a data set, as --data_dir or --task takes them."""
  if name == 'cifar10':
    parts = [read_batch(folder / f'data_batch_{i}') for i in range(1, 6)]
    x, y = map(np.concatenate, zip(*parts, strict=True))
    x_test, y_test = read_batch(folder / 'test_batch')
    return dict(x_train=x, y_train=y, x_test=x_test, y_test=y_test)
  prefix, test = ('', 't10k') if name == 'mnist' else ('emnist-digits-', 'test')
  x, y, x_test, y_test = (
    read_idx(folder / f'{prefix}{part}-{what}-ubyte')
    for part in ('train', test)
    for what in ('images-idx3', 'labels-idx1')
  )
  if name == 'mnist':
    return dict(x_train=x, y_train=y, x_test=x_test, y_test=y_test)
  # The images of EMNIST are transposed. A model takes [28, 28, 1].
  x, x_test = (images.swapaxes(1, 2)[..., np.newaxis] for images in (x, x_test))
  return dict(x=x, y=y, x_test=x_test, y_test=y_test)


if __name__ == '__main__':
  _, data_set, files, output = sys.argv
  np.savez(output, **read(data_set, pathlib.Path(files)))
