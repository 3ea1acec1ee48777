"""Tests of client stores."""

import collections
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.programs import client_store


def _examples(num_examples=10):
  rng = np.random.default_rng(0)
  return collections.OrderedDict(
    x=rng.integers(0, 256, (num_examples, 2, 3)).astype(np.uint8),
    y=rng.integers(0, 9, num_examples).astype(np.int32),
    z=rng.normal(size=(num_examples, 2)),
  )


_PARTITION = [np.array([3, 1, 4]), np.array([], np.int64), np.array([1, 9])]


def _write(folder, **kwargs):
  settings = dict(examples=_examples(), partition=_PARTITION)
  settings.update(kwargs)
  return client_store.write_client_store(folder, 'test', **settings)


def test_reads_what_was_written(tmp_path):
  store = _write(tmp_path)
  assert store.client_ids == ('00000', '00001', '00002')
  assert store.num_examples == (3, 0, 2)
  examples = _examples()
  for client_id, indices in zip(store.client_ids, _PARTITION, strict=True):
    found = store.read_client(tf.constant(client_id))
    assert list(found) == ['x', 'y', 'z']
    for name, values in found.items():
      assert values.dtype == examples[name].dtype
      np.testing.assert_array_equal(values, examples[name][indices])


def test_element_spec_is_of_one_example(tmp_path):
  spec = _write(tmp_path).element_spec
  assert spec['x'] == tf.TensorSpec([2, 3], tf.uint8)
  assert spec['y'] == tf.TensorSpec([], tf.int32)
  assert spec['z'] == tf.TensorSpec([2], tf.float64)


def test_preprocessing_is_applied_to_what_a_client_reads(tmp_path):
  store = _write(tmp_path)

  def halve(examples):
    return collections.OrderedDict(
      half=tf.cast(examples['x'], tf.float32) / 2, y=examples['y']
    )

  clients = store.preprocess(halve)
  assert clients.client_ids == store.client_ids
  assert clients.element_spec == collections.OrderedDict(
    half=tf.TensorSpec([2, 3], tf.float32), y=tf.TensorSpec([], tf.int32)
  )
  found = clients.read_client(tf.constant('00000'))
  np.testing.assert_array_equal(found['half'], _examples()['x'][[3, 1, 4]] / 2)
  np.testing.assert_array_equal(found['y'], _examples()['y'][[3, 1, 4]])
  assert clients.read_client(tf.constant('00001'))['half'].shape == [0, 2, 3]


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
    (dict(partition=[np.array([0, 10])]), '`partition` must index 10 examples'),
    (dict(partition=[np.array([-1])]), '`partition` must index 10 examples'),
    (dict(client_ids=['a']), '`client_ids` must be as many'),
    (dict(client_ids=['a', '', 'c']), '`client_ids` must be strings'),
    (dict(client_ids=['a', 'b' * 200, 'c']), 'at most 190 bytes'),
    (
      dict(examples=dict(x=np.array(['a'] * 10))),
      '`examples` must be numbers',
    ),
    (
      dict(examples=dict(x=np.zeros(10), y=np.zeros(9))),
      '`examples` must have one number of examples',
    ),
  ],
)
def test_bad_arguments_are_refused(tmp_path, change, message):
  with pytest.raises(ValueError, match=message):
    _write(tmp_path, **change)


def test_a_cut_off_file_is_refused_on_opening(tmp_path):
  store = _write(tmp_path)
  file = max(
    store.path.iterdir(),
    key=lambda p: p.stat().st_size * (p.name != 'manifest.json'),
  )
  file.write_bytes(file.read_bytes()[:-1])
  with pytest.raises(client_store.ClientStoreError, match='damaged'):
    client_store.ClientStore(store.path)


def test_a_missing_file_is_refused_on_opening(tmp_path):
  store = _write(tmp_path)
  next(p for p in store.path.iterdir() if p.name != 'manifest.json').unlink()
  with pytest.raises(client_store.ClientStoreError, match='damaged'):
    _write(tmp_path)


@pytest.mark.parametrize('manifest', ['', '{', '{}', '[]', '{"format": 99}'])
def test_a_folder_that_is_no_store_is_refused(tmp_path, manifest):
  (tmp_path / 'manifest.json').write_text(manifest)
  with pytest.raises(client_store.ClientStoreError, match='no client store'):
    client_store.ClientStore(tmp_path)


def test_manifest_is_readable_by_people(tmp_path):
  manifest = json.loads((_write(tmp_path).path / 'manifest.json').read_text())
  assert manifest['features'][0] == ['x', [2, 3], 'uint8']


def test_client_data_of_tff_round_trips(tmp_path):
  tensors = {
    name: collections.OrderedDict(
      pixels=np.full([n, 4], n, np.float32), label=np.arange(n, dtype=np.int64)
    )
    for name, n in (('f_1', 3), ('f_2', 1))
  }
  client_data = tff.simulation.datasets.TestClientData(tensors)
  store = client_store.write_client_data(tmp_path, 'tff', client_data)
  assert set(store.client_ids) == {'f_1', 'f_2'}
  found = store.read_client(tf.constant('f_1'))
  np.testing.assert_array_equal(found['pixels'], tensors['f_1']['pixels'])
  np.testing.assert_array_equal(found['label'], tensors['f_1']['label'])

  back = store.to_client_data()
  rows = list(back.create_tf_dataset_for_client('f_2').as_numpy_iterator())
  assert len(rows) == 1
  np.testing.assert_array_equal(rows[0]['pixels'], np.ones(4))


def test_client_data_of_strings_is_refused(tmp_path):
  client_data = tff.simulation.datasets.TestClientData(
    {'a': collections.OrderedDict(text=['hello'])}
  )
  with pytest.raises(ValueError, match='`client_data` must have numbers'):
    client_store.write_client_data(tmp_path, 'tff', client_data)


def test_create_dataset_of_an_unknown_client_raises(tmp_path):
  with pytest.raises(KeyError, match='`client_id` must be in the store'):
    _write(tmp_path).create_dataset('nobody')


def test_cache_follows_xdg(monkeypatch, tmp_path):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  assert client_store.default_cache_dir() == tmp_path / 'tff_clipping'
  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setenv('HOME', str(tmp_path))
  assert (
    client_store.default_cache_dir() == tmp_path / '.cache' / 'tff_clipping'
  )
