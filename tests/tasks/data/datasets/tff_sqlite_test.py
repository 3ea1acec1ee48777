"""Tests for reading TFF's SQLite files, and of the tasks on them."""

import hashlib
import shutil
import urllib.error

import numpy as np
import pytest
import tensorflow_federated as tff

from tasks.data.datasets import data_files, shakespeare, tff_sqlite
from tasks.data.datasets.registry import create_task
from tasks.data.partitions import partition_config
from tests.tasks.data.datasets import sqlite_files

_NATURAL = partition_config.PartitionConfig('natural')


def _emnist_examples(pixels, labels):
  return [
    sqlite_files.serialize(pixels=(p / 255).astype(np.float32), label=y)
    for p, y in zip(pixels, labels, strict=True)
  ]


@pytest.fixture(name='emnist')
def _emnist(tmp_path):
  """A folder with two writers of 3 and 2 digits, and the images."""
  images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)
  writers = {
    'f0002_01': _emnist_examples(images[:3], [3, 1, 9]),
    'f0001_02': _emnist_examples(images[3:], [0, 2]),
  }
  letters = {'f0001_02': _emnist_examples(images[:2], [61, 10])}
  sqlite_files.write_sqlite(
    tmp_path / 'emnist_all.sqlite',
    {
      'digits_only_train': writers,
      'digits_only_test': writers,
      'all_train': letters,
      'all_test': letters,
    },
  )
  return tmp_path, images


def test_digits_come_by_writer(emnist):
  folder, images = emnist
  task = create_task('federated_emnist_digits', _NATURAL, data_dir=str(folder))
  assert task.num_classes == 10
  assert task.client_ids == ('f0001_02', 'f0002_01')
  assert task.test_is_of_clients
  assert task.train['x'].dtype == np.uint8
  for client, expected, labels in (
    (0, images[3:], [0, 2]),
    (1, images[:3], [3, 1, 9]),
  ):
    rows = task.partition.indices[client]
    np.testing.assert_array_equal(task.train['x'][rows][..., 0], expected)
    np.testing.assert_array_equal(task.train['y'][rows], labels)


def test_examples_are_those_that_tff_reads(emnist):
  folder, _ = emnist
  task = create_task('federated_emnist', _NATURAL, data_dir=str(folder))
  assert task.num_classes == 62
  train, _ = tff.simulation.datasets.emnist.load_data(
    only_digits=False, cache_dir=str(folder)
  )
  assert list(task.client_ids) == train.client_ids
  dataset = train.create_tf_dataset_for_client('f0001_02')
  rows = task.partition.indices[0]
  for row, example in zip(rows, dataset.as_numpy_iterator(), strict=True):
    assert task.train['y'][row] == example['label']
    np.testing.assert_allclose(
      task.train['x'][row][..., 0] / 255, example['pixels'], atol=1e-6
    )


def test_labels_of_letters_among_digits_are_refused(tmp_path):
  examples = {'w': _emnist_examples(np.zeros((1, 28, 28)), [35])}
  sqlite_files.write_sqlite(
    tmp_path / 'emnist_all.sqlite',
    {'digits_only_train': examples, 'digits_only_test': examples},
  )
  with pytest.raises(data_files.DataError, match='from 0 to 9, found 35 to 35'):
    create_task('federated_emnist_digits', _NATURAL, data_dir=str(tmp_path))


def test_cifar100_keeps_its_clients_and_pixels(tmp_path):
  images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3))
  examples = [
    sqlite_files.serialize(image=image, label=y, coarse_label=0)
    for image, y in zip(images, [99, 0, 50, 7], strict=True)
  ]
  sqlite_files.write_sqlite(
    tmp_path / 'cifar100.sqlite',
    {'train': {'0': examples[:3], '10': examples[3:]}, 'test': {'0': examples}},
  )
  task = create_task('cifar100', _NATURAL, data_dir=str(tmp_path))
  assert (task.num_classes, task.client_ids) == (100, ('0', '10'))
  np.testing.assert_array_equal(task.train['x'], images)
  np.testing.assert_array_equal(task.train['y'], [99, 0, 50, 7])
  assert task.train['x'].dtype == np.uint8


@pytest.fixture(name='plays')
def _plays(tmp_path):
  """A folder with TFF's synthetic Shakespeare as its data base."""
  data = tff.simulation.datasets.shakespeare.get_synthetic()
  clients = {
    client: [
      sqlite_files.serialize(snippets=example['snippets'])
      for example in data.create_tf_dataset_for_client(
        client
      ).as_numpy_iterator()
    ]
    for client in data.client_ids
  }
  sqlite_files.write_sqlite(
    tmp_path / 'shakespeare.sqlite', {'train': clients, 'test': clients}
  )
  return tmp_path, data


@pytest.mark.slow
def test_shakespeare_has_the_tokens_of_tffs_baseline(plays):
  folder, data = plays
  task = create_task('shakespeare', _NATURAL, data_dir=str(folder))
  assert list(task.client_ids) == sorted(data.client_ids)
  assert task.label_shape == (80,)
  assert task.test_is_of_clients
  assert (
    task.num_classes == tff.simulation.baselines.shakespeare.VOCAB_LENGTH == 90
  )
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
  pieces, snippet_of = shakespeare.to_sequences([b'd' * 161, b'h\x00'])
  assert pieces.shape == (4, 81)
  np.testing.assert_array_equal(snippet_of, [0, 0, 0, 1])
  begin, end, unknown = 88, 89, 87
  assert pieces[0].tolist() == [begin] + [1] * 80
  assert pieces[2].tolist() == [end] + [0] * 80
  assert pieces[3, :5].tolist() == [begin, 2, unknown, end, 0]


def test_label_partition_of_sequences_is_refused(plays):
  folder, _ = plays
  config = partition_config.PartitionConfig('label_skew', num_clients=2)
  with pytest.raises(ValueError, match="must be 'iid' or 'natural' for sequ"):
    create_task('shakespeare', config, data_dir=str(folder))


def _read(path):
  return tff_sqlite.read_split(
    path, 'train', {'snippets': ((), np.dtype(object), None)}
  )


def test_file_of_another_format_is_refused(tmp_path):
  path = tmp_path / 'x.sqlite'
  path.write_bytes(b'no data base' * 100)
  with pytest.raises(data_files.DataError, match="not one of TFF's SQLite"):
    _read(path)


def test_truncated_data_base_is_refused(plays):
  folder, _ = plays
  path = folder / 'shakespeare.sqlite'
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
  with pytest.raises(data_files.DataError, match=f'{path} is '):
    create_task('shakespeare', _NATURAL, data_dir=str(folder))


def test_missing_examples_are_noticed(tmp_path):
  example = sqlite_files.serialize(snippets=b'Hark!')
  sqlite_files.write_sqlite(
    tmp_path / 'shakespeare.sqlite',
    {'train': {'LEAR': [example] * 3}},
    missing=1,
  )
  with pytest.raises(
    data_files.DataError, match="'LEAR' .* should have 3 examples, found 2"
  ):
    create_task('shakespeare', _NATURAL, data_dir=str(tmp_path))


def test_missing_split_is_refused(plays):
  folder, _ = plays
  shutil.copy(folder / 'shakespeare.sqlite', folder / 'cifar100.sqlite')
  with pytest.raises(data_files.DataError, match='must hold examples of image'):
    create_task('cifar100', _NATURAL, data_dir=str(folder))
  with pytest.raises(data_files.DataError, match="examples of the split 'dev'"):
    tff_sqlite.read_split(folder / 'shakespeare.sqlite', 'dev', {})


def test_compressed_data_base_asks_to_decompress_it(tmp_path):
  (tmp_path / 'cifar100.sqlite.lzma').touch()
  with pytest.raises(data_files.DataError, match='xz --format=lzma'):
    create_task('cifar100', _NATURAL, data_dir=str(tmp_path))


def test_download_is_kept_and_checked(plays, tmp_path, monkeypatch):
  folder, _ = plays
  calls = []

  def load_data(cache_dir):
    calls.append(cache_dir)
    shutil.copy(folder / 'shakespeare.sqlite', cache_dir)

  monkeypatch.setattr(
    tff.simulation.datasets.shakespeare, 'load_data', load_data
  )
  cache = tmp_path / 'cache'
  for _ in range(2):
    task = create_task('shakespeare', _NATURAL, cache_dir=str(cache))
    assert task.num_clients == 3
  assert len(calls) == 1
  path = cache / 'downloads' / 'shakespeare.sqlite'
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  assert (cache / 'downloads' / 'shakespeare.sqlite.sha256').read_text() == (
    f'{digest}  shakespeare.sqlite\n'
  )
  with open(path, 'ab') as file:
    file.write(b'0')
  with pytest.raises(data_files.DataError, match='is corrupted: its SHA-256'):
    create_task('shakespeare', _NATURAL, cache_dir=str(cache))


def test_interrupted_download_leaves_nothing(tmp_path, monkeypatch):
  def load_data(cache_dir):
    with open(f'{cache_dir}/shakespeare.sqlite', 'w') as file:
      file.write('half')
    raise urllib.error.URLError('Connection reset by peer')

  monkeypatch.setattr(
    tff.simulation.datasets.shakespeare, 'load_data', load_data
  )
  with pytest.raises(data_files.DataError) as error:
    create_task('shakespeare', _NATURAL, cache_dir=str(tmp_path))
  assert str(error.value) == (
    'shakespeare is not in the cache and cannot be downloaded (<urlopen error '
    'Connection reset by peer>): put shakespeare.sqlite into a folder and name '
    'it with --data_dir.'
  )
  assert list((tmp_path / 'downloads').iterdir()) == []
