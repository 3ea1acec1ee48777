"""Tests of client stores."""

import collections
import pathlib
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import computations, processes
from tff_clipping import runtime, storage_errors
from tff_clipping.programs.clients import client_store, store_files


def _examples(num_examples=10):
  rng = np.random.default_rng(0)
  return collections.OrderedDict(
    x=rng.integers(0, 256, (num_examples, 2, 3)).astype(np.uint8),
    y=rng.integers(0, 9, num_examples).astype(np.int32),
    z=rng.normal(size=(num_examples, 2)),
    even=np.arange(num_examples) % 2 == 0,
  )


_PARTITION = [np.array([3, 1, 4]), np.array([], np.int64), np.array([1, 9])]


def _write(folder, **kwargs):
  settings = dict(name='test', examples=_examples(), partition=_PARTITION)
  settings.update(kwargs)
  return client_store.write_client_store(folder, **settings)


def test_examples_that_are_not_finite_are_warned_of(tmp_path):
  examples = _examples()
  examples['z'][[2, 7], 1] = np.nan, np.inf
  words = "found 2 of 10 for 'z' .* in row 2"
  with pytest.warns(UserWarning, match=words) as caught:
    _write(tmp_path, examples=examples)
  assert caught[0].filename == __file__


def test_reads_what_was_written(tmp_path):
  store = _write(tmp_path)
  assert store.client_ids == ('00000', '00001', '00002')
  assert store.num_examples == (3, 0, 2)
  assert store.element_spec['x'] == tf.TensorSpec([2, 3], tf.uint8)
  examples = _examples()
  for client_id, indices in zip(store.client_ids, _PARTITION, strict=True):
    found = store.read_client(tf.constant(client_id))
    assert list(found) == ['x', 'y', 'z', 'even']
    for name, values in found.items():
      assert values.dtype == examples[name].dtype
      np.testing.assert_array_equal(values, examples[name][indices])


def test_preprocessing_is_applied_to_what_a_client_reads(tmp_path):
  store = _write(tmp_path)

  def halve(examples):
    return collections.OrderedDict(
      half={'x': tf.cast(examples['x'], tf.float32) / 2}, y=examples['y']
    )

  clients = store.preprocess(halve)
  assert clients.client_ids == store.client_ids
  assert clients.element_spec == collections.OrderedDict(
    half={'x': tf.TensorSpec([2, 3], tf.float32)},
    y=tf.TensorSpec([], tf.int32),
  )
  found = clients.read_client(tf.constant('00000'))
  half = _examples()['x'][[3, 1, 4]] / 2
  np.testing.assert_array_equal(found['half']['x'], half)
  np.testing.assert_array_equal(found['y'], _examples()['y'][[3, 1, 4]])
  found = clients.read_client(tf.constant('00001'))
  assert found['half']['x'].shape == [0, 2, 3]
  # One after the other.
  quarter = clients.preprocess(lambda found: {'x': found['half']['x'] / 2})
  assert quarter.element_spec == {'x': tf.TensorSpec([2, 3], tf.float32)}
  (row, *_) = quarter.create_dataset('00000')
  np.testing.assert_array_equal(row['x'], half[0] / 2)


def test_equal_data_are_written_once(tmp_path):
  first = _write(tmp_path)
  before = (first.path / 'manifest.json').stat().st_mtime_ns
  second = _write(tmp_path)
  assert second.path == first.path
  assert (second.path / 'manifest.json').stat().st_mtime_ns == before


@pytest.mark.parametrize(
  'change',
  [
    dict(client_ids=['a', 'b', 'c']),
    dict(partition=[np.array([3, 1]), np.array([4]), np.array([1, 9])]),
    dict(examples=_examples(11)),
  ],
)
def test_other_data_go_elsewhere(tmp_path, change):
  assert _write(tmp_path, **change).path != _write(tmp_path).path


def test_ids_may_hold_any_characters(tmp_path):
  client_ids = ['../../x', 'König Lear: 1/2', ' \n']
  store = _write(tmp_path, client_ids=client_ids)
  assert {p.parent for p in tmp_path.rglob('*') if p.is_file()} == {store.path}
  found = store.read_client(tf.constant(client_ids[1]))
  assert found['x'].shape == (0, 2, 3)
  np.testing.assert_array_equal(
    store.read_client(tf.constant(client_ids[2]))['y'],
    _examples()['y'][[1, 9]],
  )


def test_a_failed_write_leaves_nothing(tmp_path):
  with pytest.raises(ValueError, match="'a' twice"):
    _write(tmp_path, client_ids=['a', 'b', 'a'])
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    # Its keys would be taken for the indices.
    (
      dict(partition={(0, 1): [2, 3], (1, 0): [0]}),
      '`partition` must be a list .* a dict',
    ),
    *(
      (dict(name=name), '`name` must be that of a folder')
      for name in ('../other', 'a/b', '', 5)
    ),
    (dict(partition=[np.array([0, 10])]), '`partition` must index 10 examples'),
    (dict(partition=[np.array([-1])]), '`partition` must index 10 examples'),
    (
      dict(partition=[[0.5]]),
      '`partition` must hold an array of indices for each client, found',
    ),
    (dict(partition=[1, 2]), "an array of indices for each client, found '1'"),
    (dict(partition=[['a']]), 'an array of indices for each client, found'),
    (
      dict(examples=dict(x=np.zeros(10, np.uint32))),
      'but for uint32 and uint64, found uint32',
    ),
    (
      dict(examples=dict(x=np.zeros([10, 0]))),
      '`examples` must have numbers in each example',
    ),
    (dict(client_ids=['a']), '`client_ids` must be as many'),
    (dict(client_ids=['a', '', 'c']), '`client_ids` must be strings'),
    (dict(client_ids=['a', 0, 'c']), '`client_ids` must be strings.* found 0'),
    # Python reads such an id from the name of a file.
    (dict(client_ids=['a', 'b\udcff', 'c']), "of UTF-8, found 'b.udcff'"),
    (dict(client_ids=['a', 'a ', 'c']), "in one way, found 'a' and 'a '"),
    (dict(client_ids=['1', 'b', '1.0']), "in one way, found '1' and '1.0'"),
    (
      dict(examples=dict(x=np.array(['a'] * 10))),
      '`examples` must be booleans, integers or floating-point numbers',
    ),
    (
      dict(examples=dict(x=np.zeros(10), y=np.zeros(9))),
      '`examples` must have one number of examples',
    ),
  ],
)
def test_bad_arguments_are_refused(tmp_path, change, message):
  with pytest.raises((TypeError, ValueError), match=message):
    _write(tmp_path, **change)


@pytest.mark.slow
def test_clients_are_in_few_files(tmp_path):
  store = _write(
    tmp_path, partition=[np.array([i % 10]) for i in range(25_000)]
  )
  # Three batches, and one of what is kept of all clients; index and manifest.
  assert len(list(store.path.iterdir())) == 6
  for client in (0, 9_999, 10_000, 24_999):
    found = store.read_client(tf.constant(f'{client:05d}'))
    np.testing.assert_array_equal(found['y'], _examples()['y'][[client % 10]])


def _data_file(store):
  files = store.path.glob('*.data-*')
  return max(files, key=lambda path: path.stat().st_size)


def _flip_a_bit(path, position):
  content = bytearray(path.read_bytes())
  content[position] ^= 1
  path.write_bytes(content)


def test_a_damaged_client_ends_the_round_with_its_name(tmp_path):
  store = _write(tmp_path)
  _flip_a_bit(_data_file(store), 20)

  @tff.tensorflow.computation(np.str_)
  def count(client_id):
    return tf.shape(store.read_client(client_id)['y'])[0]

  count_all = computations.sum_of(count)
  context = runtime.InProcessContext()
  with tff.framework.get_context_stack().install(context):
    assert count_all(['00001', '00002']) == 2
    with pytest.raises(runtime.ClientError, match='00000.*Checksum'):
      count_all(['00002', '00000'])


@pytest.mark.parametrize('is_missing', [False, True])
def test_a_file_that_is_cut_off_or_missing_is_refused(tmp_path, is_missing):
  store = _write(tmp_path)
  file = _data_file(store)
  content = file.read_bytes()
  file.unlink()
  if not is_missing:
    file.write_bytes(content[:-1])
  for open_store in (
    lambda: client_store.ClientStore(store.path),
    lambda: _write(tmp_path),
  ):
    with pytest.raises(client_store.ClientStoreError, match='damaged'):
      open_store()


def _content(path):
  store = client_store.ClientStore(path)
  examples = [store.read_client(tf.constant(i)) for i in store.client_ids]
  return [
    store.client_ids,
    store.num_examples,
    [
      (name, values.dtype, values.numpy().tolist())
      for client in examples
      for name, values in client.items()
    ],
  ]


def test_every_flipped_bit_is_found_or_changes_nothing(tmp_path):
  path = _write(tmp_path).path
  content = _content(path)
  num_found = 0
  for file in path.iterdir():
    for position in range(0, file.stat().st_size, 3):
      _flip_a_bit(file, position)
      try:
        assert _content(path) == content
      except (client_store.ClientStoreError, tf.errors.DataLossError):
        num_found += 1
      _flip_a_bit(file, position)
  # The index ends in a few bytes that nobody reads.
  assert num_found > 200


_KILLED_WRITER = """
import os, signal, sys
from tff_clipping.programs.clients import client_store, store_files
import numpy as np
import tensorflow_federated as tff

store_files._BATCH_CLIENTS = 1

def take(array, indices, axis):
  if 9 in indices:
    os.kill(os.getpid(), signal.SIGKILL)
  return np_take(array, indices, axis)

np_take, np.take = np.take, take
client_store.write_client_store(
  sys.argv[1],
  'test',
  dict(x=np.arange(10)),
  [np.array([3, 1, 4]), np.array([], np.int64), np.array([1, 9])],
)
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_no_store(tmp_path):
  killed = processes.run_python('-c', _KILLED_WRITER, str(tmp_path))
  assert killed.code == -signal.SIGKILL
  (left,) = tmp_path.iterdir()
  assert left.name.startswith('.')
  # The next writer tidies up, whatever it writes.
  store = _write(tmp_path)
  assert list(tmp_path.iterdir()) == [store.path]


def test_what_others_are_writing_is_left_alone(tmp_path, monkeypatch):
  pack_clients = store_files._pack_clients

  def pack(path, clients):
    pack_clients(path, clients)
    monkeypatch.setattr(store_files, '_pack_clients', pack_clients)
    _write(tmp_path, client_ids=['a', 'b', 'c'])

  monkeypatch.setattr(store_files, '_pack_clients', pack)
  store = _write(tmp_path)
  assert client_store.ClientStore(store.path).num_examples == (3, 0, 2)
  assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize('manifest', ['', '{', '{}', '[]', '{"format": 1}'])
def test_a_folder_that_is_no_store_is_refused(tmp_path, manifest):
  (tmp_path / 'manifest.json').write_text(manifest)
  with pytest.raises(client_store.ClientStoreError, match='no client store'):
    client_store.ClientStore(tmp_path)


def test_a_store_without_its_manifest_is_written_again_once_deleted(tmp_path):
  path = _write(tmp_path).path
  (path / 'manifest.json').unlink()
  with pytest.raises(client_store.ClientStoreError, match='Delete the folder'):
    _write(tmp_path)
  shutil.rmtree(path)
  assert _write(tmp_path).path == path


@pytest.mark.parametrize('name', ['run[1]', 'run\\1'])
def test_a_path_that_tensorflow_takes_for_a_pattern_is_refused(tmp_path, name):
  store = _write(tmp_path)
  with pytest.raises(client_store.ClientStoreError, match='must have no'):
    _write(tmp_path / name)
  assert not (tmp_path / name).exists()
  moved = store.path.rename(tmp_path / name)
  with pytest.raises(client_store.ClientStoreError, match='must have no'):
    client_store.ClientStore(moved)


def test_preprocessing_that_drops_examples_of_a_client_fails(tmp_path):
  clients = _write(tmp_path).preprocess(
    lambda row: {
      name: tf.boolean_mask(values, row['y'] < 0)
      for name, values in row.items()
    }
  )
  client_id = tf.constant(clients.client_ids[0])
  for read in (clients.read_client, tf.function(clients.read_client)):
    with pytest.raises(
      tf.errors.InvalidArgumentError, match='must keep the number of examples'
    ):
      read(client_id)


def test_an_unknown_client_is_named(tmp_path):
  store = _write(tmp_path)
  for read in (store.create_dataset, store.read_client):
    with pytest.raises(KeyError, match="must be in the store, found 'nobody'"):
      read('nobody')


def _client_data(values):
  return tff.simulation.datasets.TestClientData(values)


def test_client_data_of_tff_are_read_as_they_were(tmp_path):
  tensors = {
    name: collections.OrderedDict(
      pixels=np.full([n, 4], n, np.float32), label=np.arange(n, dtype=np.int64)
    )
    for name, n in (('f_1', 3), ('f_2', 1))
  }
  store = client_store.write_client_data(tmp_path, 'tff', _client_data(tensors))
  assert set(store.client_ids) == {'f_1', 'f_2'}
  for client_id, expected in tensors.items():
    found = store.read_client(tf.constant(client_id))
    for name, values in expected.items():
      np.testing.assert_array_equal(found[name], values)
    (row,) = store.create_dataset(client_id).batch(9)
    np.testing.assert_array_equal(row['label'], expected['label'])


_VALUES = {str(i): np.full([2], i, np.float32) for i in range(7)}


@pytest.mark.parametrize(
  'values',
  [
    _VALUES | {'1': np.full([2], 7, np.float32)},
    _VALUES | {'1': np.full([3], 1, np.float32)},
    {name: values for name, values in _VALUES.items() if name != '1'},
    {name: np.float64(values) for name, values in _VALUES.items()},
  ],
)
def test_a_correction_in_any_client_is_another_store(tmp_path, values):
  def write(values):
    return client_store.write_client_data(
      tmp_path, 'tff', _client_data({k: {'x': v} for k, v in values.items()})
    )

  first, again, other = write(_VALUES), write(_VALUES), write(values)
  assert again.path == first.path
  assert other.path != first.path
  assert list(other.client_ids) == list(values)
  for client_id, expected in values.items():
    found = other.read_client(tf.constant(client_id))
    np.testing.assert_array_equal(found['x'], expected)


@pytest.mark.parametrize(
  ('call', 'error', 'message'),
  [
    (
      lambda path: client_store.write_client_data(path, 'a', {'a': [1]}),
      TypeError,
      '`client_data` must be .*TestClientData',
    ),
    (
      lambda path: client_store.write_client_data(
        path, 'a', _client_data({'a': collections.OrderedDict(t=['hello'])})
      ),
      ValueError,
      '`client_data` must have numbers',
    ),
    (
      lambda path: _write(path).preprocess(lambda features: None),
      TypeError,
      '`preprocess_fn` must return tensors',
    ),
    *(
      (
        lambda path, drop=drop: _write(path).preprocess(drop),
        ValueError,
        'must keep the first dimension',
      )
      for drop in (
        # Made for one example.
        lambda row: {'x': tf.reshape(row['x'], [-1]), 'y': row['y']},
        lambda row: {'x': row['x'][0], 'y': row['y']},
        lambda row: {'x': row['x'], 'y': tf.constant(1)},
      )
    ),
  ],
)
def test_what_is_no_data_and_no_preprocessing_is_refused(
  tmp_path, call, error, message
):
  with pytest.raises(error, match=message):
    call(tmp_path)


def test_the_cache_follows_xdg_and_a_user_without_home_is_told(
  monkeypatch, tmp_path
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  assert client_store.default_cache_dir() == tmp_path / 'tff_clipping'
  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setenv('HOME', str(tmp_path))
  assert (
    client_store.default_cache_dir() == tmp_path / '.cache' / 'tff_clipping'
  )

  def fail():
    raise RuntimeError('Could not determine home directory.')

  monkeypatch.setattr(pathlib.Path, 'home', fail)
  with pytest.raises(storage_errors.StorageError, match='by --cache_dir or by'):
    client_store.default_cache_dir()


_SPECS = collections.OrderedDict(
  x=tf.TensorSpec([1_000_000], tf.uint8), y=tf.TensorSpec([], tf.int32)
)


# Below and above 2³¹ and 2³² bytes, and 1 EB.
@pytest.mark.parametrize('count', [0, 1, 2_300, 4_400, 10**12])
def test_bytes_are_counted_in_64_bits(count):
  places = store_files.byte_ranges(tf.constant(count, tf.int64), _SPECS)
  found = {k: tuple(map(int, place)) for k, place in places.items()}
  images = count * 1_000_000
  assert found == dict(x=(8, images), y=(8 + images, 4 * count))
