"""Tests of public data sets.

MNIST and CIFAR-10 come from .npz files that are only read, or from Keras; TFF's
data have the clients and the examples that TFF's own loaders have.
"""

import inspect
import urllib.error

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.data import public, registry, shakespeare
from tasks.data.partitions import PartitionConfig

_IID = PartitionConfig('iid', num_clients=2)
_NATURAL = PartitionConfig('natural')
_SHAPES = {'mnist': (28, 28), 'cifar10': (32, 32, 3)}


def _arrays(name, **changes):
  rng = np.random.default_rng(0)
  arrays = dict(
    x_train=rng.integers(0, 256, (40, *_SHAPES[name]), np.uint8),
    y_train=np.arange(40, dtype=np.uint8) % 10,
    x_test=rng.integers(0, 256, (20, *_SHAPES[name]), np.uint8),
    y_test=np.arange(20, dtype=np.uint8) % 10,
  )
  arrays |= changes
  return {key: array for key, array in arrays.items() if array is not None}


def _create(folder, name, split=_IID, **changes):
  np.savez(folder / f'{name}.npz', **_arrays(name, **changes))
  return registry.create_task(name, split, data_dir=str(folder))


@pytest.mark.parametrize('name', ['mnist', 'cifar10'])
def test_a_folder_of_arrays_is_read_and_not_written(tmp_path, name):
  given = _arrays(name)
  np.savez(tmp_path / f'{name}.npz', **given)
  before = (tmp_path / f'{name}.npz').read_bytes()
  tmp_path.chmod(0o500)
  task = registry.create_task(name, _IID, data_dir=str(tmp_path))
  shape = (*_SHAPES[name], 1)[:3]
  assert (task.input_shape, task.input_dtype) == (shape, 'uint8')
  for part, examples in (('train', task.train), ('test', task.test)):
    np.testing.assert_array_equal(
      examples['x'], given[f'x_{part}'].reshape(-1, *shape)
    )
    np.testing.assert_array_equal(examples['y'], given[f'y_{part}'])
  assert task.num_classes == 10
  assert not task.test_is_of_clients
  assert [path.name for path in tmp_path.iterdir()] == [f'{name}.npz']
  assert (tmp_path / f'{name}.npz').read_bytes() == before


def test_writers_are_natural_clients(tmp_path):
  writers = np.repeat([12, 7], 20)
  task = _create(tmp_path, 'mnist', _NATURAL, writer_train=writers)
  assert task.client_ids == ('writer_00007', 'writer_00012')
  assert task.partition.indices[0].tolist() == list(range(20, 40))


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(x_test=None), 'must hold mnist.npz with x_train, .*y_test'),
    (dict(x_train=np.zeros([40, 28, 28])), '`x_train` .* uint8 images .*float'),
    (dict(x_train=np.zeros([40, 32, 32, 3], np.uint8)), r'\[28, 28, 1\]'),
    (dict(y_train=np.arange(39) % 10), '`y` must have .* 40, found 39'),
    (dict(y_test=np.arange(20) % 11), '`y` .* below .* 10, found 0 to 10'),
    (dict(y_train=np.full(40, None)), 'mnist.npz cannot be read: .*allow_pick'),
    (dict(writer_train=np.arange(39)), '`client` must have .* 40, found 39'),
    (dict(writer_train=np.arange(40.0)), '`writer_train` .* integers'),
  ],
)
def test_other_arrays_are_refused(tmp_path, changes, words):
  with pytest.raises(ValueError, match=words):
    _create(tmp_path, 'mnist', **changes)


@pytest.mark.parametrize(
  ('name', 'channels_first'),
  [('mnist', False), ('cifar10', False), ('cifar10', True)],
)
def test_keras_downloads_what_no_folder_has(monkeypatch, name, channels_first):
  given = _arrays(name)

  def load_data():  # Keras is given no folder of the user's.
    parts = []
    for part in ('train', 'test'):
      x, y = given[f'x_{part}'], given[f'y_{part}']
      if name == 'cifar10':
        y = y[:, None]
        x = x.transpose(0, 3, 1, 2) if channels_first else x
      parts.append((x, y))
    return parts

  module = getattr(tf.keras.datasets, name)
  monkeypatch.setattr(module, 'load_data', load_data)
  task = registry.create_task(name, _IID)
  expected = given['x_train'].reshape(task.train['x'].shape)
  np.testing.assert_array_equal(task.train['x'], expected)
  np.testing.assert_array_equal(task.train['y'], given['y_train'])


def _offline(*args, **kwargs):
  del args, kwargs
  raise urllib.error.URLError('no network')


def test_being_offline_names_the_file_to_get(monkeypatch):
  monkeypatch.setattr(tf.keras.datasets.mnist, 'load_data', _offline)
  monkeypatch.setattr(tff.simulation.datasets.emnist, 'load_data', _offline)
  for name, file in (
    ('mnist_even', 'mnist.npz'),
    ('federated_emnist', 'emnist_all.sqlite'),
  ):
    words = f'no network.*: put {file} into a folder, .* `data_dir`'
    with pytest.raises(ValueError, match=words):
      registry.create_task(name, _IID)


def test_halves_have_no_example_in_common(tmp_path):
  writers = np.arange(40) // 2
  np.savez(tmp_path / 'mnist.npz', **_arrays('mnist', writer_train=writers))
  whole, even, odd = (
    public.READERS[name](str(tmp_path))
    for name in ('mnist', 'mnist_even', 'mnist_odd')
  )
  for half, first in ((even, 0), (odd, 1)):
    for name in ('x', 'y', 'client'):
      np.testing.assert_array_equal(half[name], whole[name][first::2])
    np.testing.assert_array_equal(half['x_test'], whole['x_test'])
  assert odd['source'].endswith('every other training image, from 1 on')


def test_embedded_digits_are_split_4000_to_1000_by_class():
  task = registry.create_task('embedded_digits', _IID)
  x, x_test = task.train['x'], task.test['x']
  assert (x.shape, x_test.shape) == ((4000, 28, 28, 1), (1000, 28, 28, 1))
  np.testing.assert_array_equal(np.bincount(task.train['y']), [400] * 10)
  np.testing.assert_array_equal(np.bincount(task.test['y']), [100] * 10)
  # No digit is in both: the pixels of the 5,000 are all different.
  rows = np.concatenate([x, x_test]).reshape(5000, -1)
  assert len(np.unique(rows, axis=0)) == 5000
  # Ink is bright: the borders are empty.
  assert (x[:, 0].max(), x.max()) == (0, 255)


@pytest.mark.parametrize(
  ('name', 'words'),
  [
    ('foo', "one of embedded_digits, .* found 'foo'"),
    ('mnist', '`data_dir` must hold mnist.npz .*, found none in'),
    ('shakespeare', 'must hold shakespeare.sqlite.*xz'),
    ('embedded_digits', '`data_dir` must not be given'),
  ],
)
def test_a_task_that_is_not_there_is_refused(tmp_path, name, words):
  with pytest.raises(ValueError, match=words):
    registry.create_task(name, _IID, data_dir=str(tmp_path))


def _load(monkeypatch, folder, name, loader, file, clients, **options):
  """Returns a task of TFF's whose loader finds these clients in a folder."""
  module = getattr(tff.simulation.datasets, loader)
  # Another name would be downloaded.
  assert f'/{file}.lzma' in inspect.getsource(module)
  (folder / file).touch()

  def load_data(**given):
    assert given == options | dict(cache_dir=str(folder))
    return clients, clients

  monkeypatch.setattr(module, 'load_data', load_data)
  return registry.create_task(name, _NATURAL, data_dir=str(folder))


_EMNIST = ('emnist', 'emnist_all.sqlite', ('pixels', 'label'))
_CIFAR100 = ('cifar100', 'cifar100.sqlite', ('image', 'label'))


@pytest.mark.parametrize(
  ('name', 'of_loader', 'options', 'num_classes'),
  [
    ('federated_emnist', _EMNIST, dict(only_digits=False), 62),
    ('federated_emnist_digits', _EMNIST, dict(only_digits=True), 10),
    ('cifar100', _CIFAR100, {}, 100),
  ],
)
def test_clients_and_images_are_those_that_tff_has(
  monkeypatch, tmp_path, name, of_loader, options, num_classes
):
  loader, file, features = of_loader
  rng = np.random.default_rng(0)
  shape = (28, 28, 1) if loader == 'emnist' else (32, 32, 3)
  images = {
    client: rng.integers(0, 256, (n, *shape), np.uint8)
    for client, n in (('w2', 3), ('w1', 2))
  }
  labels = dict(w2=[3, num_classes - 1, 9], w1=[0, 2])
  given = images
  if loader == 'emnist':
    given = {k: np.float32(x[..., 0] / 255) for k, x in images.items()}
  clients = tff.simulation.datasets.TestClientData(
    {k: dict(zip(features, (given[k], labels[k]), strict=True)) for k in given}
  )
  task = _load(monkeypatch, tmp_path, name, loader, file, clients, **options)
  assert task.client_ids == ('w1', 'w2')
  assert task.num_classes == num_classes
  # The clients of CIFAR-100 have no part in its test set.
  assert task.test_is_of_clients == (loader == 'emnist')
  assert task.input_dtype == 'uint8'
  for client, rows in zip(task.client_ids, task.partition.indices, strict=True):
    np.testing.assert_array_equal(task.train['y'][rows], labels[client])
    np.testing.assert_array_equal(task.train['x'][rows], images[client])


def test_snippets_are_tffs_sequences(monkeypatch, tmp_path):
  data = tff.simulation.datasets.shakespeare.get_synthetic()
  task = _load(
    *(monkeypatch, tmp_path, 'shakespeare'),
    *('shakespeare', 'shakespeare.sqlite', data),
  )
  assert task.has_padding
  assert task.num_classes == shakespeare.VOCAB_SIZE == 90
  baseline = (
    tff.simulation.baselines.shakespeare.create_character_prediction_task(
      tff.simulation.baselines.ClientSpec(
        num_epochs=1, batch_size=100, shuffle_buffer_size=1
      ),
      use_synthetic_data=True,
    )
  )
  for client, rows in zip(task.client_ids, task.partition.indices, strict=True):
    dataset = baseline.datasets.train_preprocess_fn(
      data.create_tf_dataset_for_client(client)
    )
    ((x, y),) = dataset.as_numpy_iterator()
    np.testing.assert_array_equal(task.train['x'][rows], x)
    np.testing.assert_array_equal(task.train['y'][rows], y)


def test_long_snippets_are_cut_and_padded():
  # 161 characters with a begin and an end token: 163 = 2 · 81 + 1 tokens.
  x, y = shakespeare.to_examples([b'd' * 161, b'h\x00'])
  assert x.shape == y.shape == (4, 80)
  begin, end, unknown = 88, 89, 87
  assert (x[0].tolist(), y[0].tolist()) == ([begin] + [1] * 79, [1] * 80)
  assert (x[2].tolist(), y[2].tolist()) == ([end] + [0] * 79, [0] * 80)
  assert x[3, :5].tolist() == [begin, 2, unknown, end, 0]
  assert y[3, :4].tolist() == [2, unknown, end, 0]


def test_a_file_of_tff_that_is_damaged_is_refused(tmp_path):
  (tmp_path / 'cifar100.sqlite').write_bytes(b'SQLite format 3\0' + bytes(999))
  with pytest.raises(ValueError, match='cannot be .* put cifar100.sqlite'):
    registry.create_task('cifar100', _NATURAL, data_dir=str(tmp_path))
