"""Tests of computations that have no MapReduce form."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import runtime

_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
_EQUAL_INT = tff.FederatedType(np.int32, tff.CLIENTS, all_equal=True)


@tff.tensorflow.computation(np.int32, np.int32)
def _add(x, y):
  return x + y


@tff.tensorflow.computation(np.int32)
def _double(x):
  return 2 * x


def test_results_at_the_clients_are_a_list():
  @tff.federated_computation(_INTS)
  def same(values):
    return values

  @tff.federated_computation(_INTS)
  def doubled(values):
    return collections.OrderedDict(
      each=tff.federated_map(_double, values), total=tff.federated_sum(values)
    )

  assert same([1, 2, 3]) == [1, 2, 3]
  assert same([]) == []
  assert doubled([1, 2]) == collections.OrderedDict(each=[2, 4], total=3)


def test_results_at_the_clients_have_the_containers_of_their_type():
  @tff.tensorflow.computation(np.int32)
  def pair(x):
    return collections.OrderedDict(b=x, a=(x, [2 * x]))

  @tff.federated_computation(_INTS)
  def comp(values):
    return tff.federated_map(pair, values)

  assert comp([1, 2]) == [
    collections.OrderedDict(b=i, a=(i, [2 * i])) for i in (1, 2)
  ]


def test_values_equal_at_all_clients():
  @tff.federated_computation(_INTS, _EQUAL_INT)
  def comp(values, offset):
    moved = tff.federated_map(_add, (values, offset))
    return moved, tff.federated_sum(moved), offset

  assert comp([1, 2, 3], 10) == ([11, 12, 13], 36, 10)

  @tff.federated_computation(tff.FederatedType(np.int32, tff.SERVER))
  def broadcast(value):
    return tff.federated_broadcast(value)

  assert broadcast(5) == 5


def test_several_broadcasts():
  @tff.federated_computation(_INTS)
  def comp(values):
    for _ in range(3):
      total = tff.federated_sum(values)
      values = tff.federated_map(_add, (values, tff.federated_broadcast(total)))
    return tff.federated_sum(values)

  # With 2 clients, each step is 3 times the sum before.
  assert comp([1, 2]) == 3**4


def test_select():
  model_type = tff.to_type(
    collections.OrderedDict(
      rows=tff.TensorType(np.float32, [4, 2]), scale=np.float32
    )
  )
  keys_type = tff.TensorType(np.int32, [2])

  @tff.tensorflow.computation(model_type, np.int32)
  def row(model, key):
    return model['scale'] * tf.gather(model['rows'], key)

  @tff.tensorflow.computation(tff.SequenceType(row.type_signature.result))
  def total(rows):
    return rows.reduce(tf.zeros([2]), lambda a, b: a + b)

  @tff.tensorflow.computation
  def num_keys():
    return 4

  @tff.federated_computation(
    tff.FederatedType(model_type, tff.SERVER),
    tff.FederatedType(keys_type, tff.CLIENTS),
  )
  def comp(model, keys):
    max_key = tff.federated_eval(num_keys, tff.SERVER)
    rows = tff.federated_select(keys, max_key, model, row)
    return rows, tff.federated_sum(tff.federated_map(total, rows))

  model = dict(rows=np.arange(8, dtype=np.float32).reshape(4, 2), scale=10.0)
  keys = [np.array(k, np.int32) for k in ([0, 3], [3, 1])]
  rows, summed = comp(model, keys)
  np.testing.assert_array_equal(
    rows, [[[0, 10], [60, 70]], [[60, 70], [20, 30]]]
  )
  np.testing.assert_array_equal(summed, [140, 180])
  with pytest.raises(ValueError, match='keys of client 1 .* from 0 to 3.* 4'):
    comp(model, [keys[0], np.array([0, 4], np.int32)])


def test_select_of_strings():
  @tff.tensorflow.computation(tff.TensorType(np.str_, [3]), np.int32)
  def pick(words, key):
    return tf.gather(words, key)

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def join(words):
    return words.reduce('', lambda a, b: tf.strings.join([a, b]))

  @tff.tensorflow.computation
  def num_keys():
    return 3

  @tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.str_, [3]), tff.SERVER),
    tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS),
  )
  def comp(words, keys):
    max_key = tff.federated_eval(num_keys, tff.SERVER)
    return tff.federated_map(
      join, tff.federated_select(keys, max_key, words, pick)
    )

  keys = [np.array(k, np.int32) for k in ([2, 0], [1, 1])]
  assert comp(['a', 'b\0', 'c'], keys) == [b'ca', b'b\0b\0']


def test_every_kind_of_aggregation():
  @tff.federated_computation(_FLOATS, _FLOATS, _INTS)
  def comp(floats, weights, ints):
    return (
      floats,
      tff.federated_mean(floats),
      tff.federated_mean(floats, weights),
      tff.federated_min(floats),
      tff.federated_max(floats),
      tff.federated_secure_sum(ints, 9),
      tff.federated_secure_sum_bitwidth(ints, 4),
      tff.backends.mapreduce.federated_secure_modular_sum(ints, 10),
      tff.federated_aggregate(
        ints,
        np.int32(100),
        accumulate=_add,
        merge=_add,
        report=_double,
      ),
    )

  assert comp([1.0, 2.0, 6.0], [1.0, 0.0, 3.0], [7, 8, 9]) == (
    [1.0, 2.0, 6.0],
    3.0,
    4.75,
    1.0,
    6.0,
    24,
    24,
    4,
    248,
  )
  with pytest.raises(runtime.ClientError, match='Client 0 .* from 0 to 9'):
    comp([1.0], [1.0], [10])


def test_sequences():
  @tff.federated_computation(tff.SequenceType(np.int32))
  def comp(sequence):
    doubled = tff.sequence_map(_double, sequence)
    return (
      doubled,
      tff.sequence_sum(doubled),
      tff.sequence_reduce(sequence, np.int32(1), _add),
    )

  assert comp([1, 2, 4]) == ([2, 4, 8], 14, 8)
  data = tf.data.Dataset.from_tensor_slices(np.array([1, 2], np.int32))
  assert comp(data) == ([2, 4], 6, 4)


def test_the_sum_does_not_depend_on_the_threads_nor_on_the_way():
  values = list(
    np.random.default_rng(0).normal(size=60).astype(np.float32) * 1e3
  )
  expected = np.float32(0)
  for value in values:
    expected += value
  assert float(np.sum(values)) != expected  # The order matters here.
  sums = set()
  for num_threads in (1, 2, 5):
    tff.framework.set_default_context(
      runtime.InProcessContext(num_threads=num_threads)
    )

    @tff.federated_computation(_FLOATS)
    def interpreted(values):
      return values, tff.federated_sum(values)

    @tff.federated_computation(_FLOATS)
    def compiled(values):
      return tff.federated_sum(values)

    sums |= {float(interpreted(values)[1]), float(compiled(values))}
  assert sums == {float(expected)}


def test_an_error_names_the_client():
  @tff.tensorflow.computation(np.int32)
  def check(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 5)]):
      return tf.identity(x)

  @tff.federated_computation(_INTS)
  def comp(values):
    return tff.federated_map(check, values)

  with pytest.raises(runtime.ClientError, match=r'Client 2 of 4 failed \(7\)'):
    comp([1, 2, 7, 3])
  assert comp([1, 2]) == [1, 2]


def test_parts_of_different_numbers_of_clients_are_refused():
  @tff.federated_computation(_INTS, _INTS)
  def comp(left, right):
    return left, right

  with pytest.raises(ValueError, match='same number of clients'):
    comp([1], [1, 2])


def test_what_nothing_runs_names_the_native_context():
  with pytest.raises(
    runtime.UnsupportedComputationError, match='set_sync_local_cpp'
  ):
    _takes_a_function(lambda x: x)


@tff.federated_computation(tff.FunctionType(np.int32, np.int32), _INTS)
def _takes_functions(function, values):
  return tff.federated_map(function, values)


def _takes_a_function(function):
  return _takes_functions(function, [1])
