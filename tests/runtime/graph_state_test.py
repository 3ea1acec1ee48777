"""Tests that no call of a computation sees another."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.computations import sum_of
from tff_clipping import runtime
from tff_clipping.runtime import graph_state

_CLIENTS = tff.FederatedType(np.int64, tff.CLIENTS)


@pytest.fixture(autouse=True)
def context():
  runtime.set_default_context(num_threads=2)


def _own_table(x):
  """A table made of what is fed."""
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(
      tf.reshape(x, [1]), tf.reshape(10 * x, [1])
    ),
    default_value=-1,
  )
  return table.lookup(x)


def _mutable_table(x):
  table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
  with tf.control_dependencies([table.insert([x], [x])]):
    return table.size()


def _queue(x):
  queue = tf.queue.FIFOQueue(10, [tf.int64], shapes=[[]])
  with tf.control_dependencies([queue.enqueue(x)]):
    return tf.cast(queue.size(), tf.int64)


def _queue_in_a_function(x):
  return tf.function(_queue)(x)


def _variable(x):
  counter = tf.Variable(tf.zeros([], tf.int64))

  @tf.function
  def add():
    counter.assign_add(x)
    return counter.read_value()

  return add()


def _constant_table(x):
  """A table that one session serves for all clients."""
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(
      tf.constant([1, 2], tf.int64), tf.constant([10, 20], tf.int64)
    ),
    default_value=-1,
  )
  return table.lookup(x)


_KEPT = [_own_table, _mutable_table, _queue, _queue_in_a_function]
_NEW = [
  _variable,
  _constant_table,
  lambda x: x + tf.random.uniform([], 0, 1, tf.int64),
]


@pytest.mark.parametrize('function', [*_KEPT, *_NEW])
def test_a_client_sees_nothing_of_another_or_of_an_earlier_round(function):
  total = sum_of(tff.tensorflow.computation(function, np.int64))
  # One by one, each in a context of its own.
  alone = []
  for client in range(1, 7):
    runtime.set_default_context(num_threads=1)
    alone.append(int(total([np.int64(client)])))
  runtime.set_default_context(num_threads=2)
  clients = [np.int64(i) for i in range(1, 7)]
  for _ in range(2):
    assert int(total(clients)) == sum(alone)


def test_noise_with_a_seed_is_another_in_each_round():
  @tff.tensorflow.computation
  def noise():
    return tf.random.normal([], seed=7)

  @tff.tensorflow.computation(np.int64)
  def add_noise(total):
    return tf.cast(total, tf.float32) + tf.random.normal([], seed=7)

  @tff.federated_computation(_CLIENTS)
  def release(clients):
    return tff.federated_map(add_noise, tff.federated_sum(clients))

  assert len({float(noise()) for _ in range(5)}) == 5
  clients = [np.int64(0)] * 3
  assert len({float(release(clients)) for _ in range(5)}) == 5


@pytest.mark.parametrize('function', [*_KEPT, *_NEW])
def test_only_what_a_session_keeps_takes_a_session_for_each_call(function):
  with tf.Graph().as_default() as graph:
    function(tf.compat.v1.placeholder(tf.int64, []))
  assert graph_state.keeps_state(graph) == (function in _KEPT)


def _in_a_branch():
  return tf.function(
    lambda: tf.cond(
      tf.constant(True),
      lambda: tf.random.uniform([]),
      lambda: tf.constant(0.0),
    )
  )()


@pytest.mark.parametrize(
  ('build', 'expected'),
  [
    (lambda: tf.random.uniform([]), True),
    (_in_a_branch, True),
    (lambda: tf.random.stateless_uniform([], [0, 1]), False),
  ],
)
def test_draws_of_what_is_fetched_are_seen(build, expected):
  with tf.Graph().as_default() as graph:
    tf.random.uniform([])  # Nothing fetches it.
    fetched = build()
  assert graph_state.draws(graph, [fetched.name]) == expected


def test_what_the_server_draws_is_the_same_for_clients_and_itself():
  @tff.tensorflow.computation
  def draw():
    return tf.random.uniform([], 0, 2**40, tf.int64)

  @tff.tensorflow.computation(np.int64, np.int64)
  def add(x, y):
    return x + y

  @tff.federated_computation(_CLIENTS)
  def comp(clients):
    drawn = tff.federated_eval(draw, tff.SERVER)
    sent = tff.federated_map(add, (clients, tff.federated_broadcast(drawn)))
    return drawn, tff.federated_sum(sent)

  for _ in range(3):
    at_server, at_client = comp([np.int64(0)])
    assert at_server == at_client


def test_results_can_not_be_written_and_change_with_nothing():
  @tff.tensorflow.computation
  def zeros():
    return tf.zeros([3])

  result = zeros()
  with pytest.raises(ValueError, match='read-only'):
    result += 1

  server_type = tff.FederatedType(tff.TensorType(np.int64, [2]), tff.SERVER)

  @tff.federated_computation(server_type, _CLIENTS)
  def at_server(value, clients):
    return value, tff.federated_sum(clients)

  argument = np.array([1, 2])
  returned, _ = at_server(argument, [np.int64(1)])
  argument[0] = 6
  np.testing.assert_array_equal(returned, [1, 2])
  with pytest.raises(ValueError, match='read-only'):
    returned[0] = 5


def test_only_what_may_change_is_copied_to_a_result():
  @tff.tensorflow.computation(tff.TensorType(np.float32, [1000]))
  def same(value):
    return value

  @tff.tensorflow.computation(np.float32)
  def fill(number):
    return tf.fill([1000], number)

  def is_same(value):
    return np.shares_memory(same(value), value)

  result = fill(np.float32(1))
  assert is_same(result)
  assert is_same(same(result))
  # Memory that a session takes as it is, and that somebody else may write.
  room = np.zeros(1000 + 16, np.float32)
  start = -room.ctypes.data % 64 // room.itemsize
  borrowed = room[start : start + 1000]
  assert not is_same(borrowed)
  view = borrowed.view()
  view.flags.writeable = False
  assert not is_same(view)
