"""Tests of what a server computes before its clients are done."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, runtime
from tff_clipping.runtime import early_work
from tff_clipping.runtime.map_reduce import MapReduceRound

_PRIVATE = dict(clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=2.0)


def _draws(start):
  """Returns a number that takes a loop."""
  return tf.while_loop(
    lambda i, _: i < 3,
    lambda i, total: (i + 1, total + tf.random.uniform([])),
    (tf.constant(0), start),
  )[1]


def _round(noise_key):
  process = aggregators.dp_mean_factory(**_PRIVATE, noise_key=noise_key).create(
    tff.TensorType(np.float32, [7])
  )
  state = process.initialize()
  compiled = MapReduceRound(process.next)
  server, clients = compiled.split_argument(
    [state, [np.float32([0.1] * 7), np.float32([-0.2] * 7)]]
  )
  return compiled, server, clients, process.next.type_signature.result


def _total(compiled, server, clients):
  broadcast = compiled.prepare(server)
  total = compiled.zero()
  for client in clients:
    total = compiled.accumulate(total, compiled.work(client, broadcast))
  return total


@pytest.mark.parametrize('is_begun', [True, False])
def test_a_round_that_was_begun_has_the_same_bits(monkeypatch, is_begun):
  runtime.set_default_context()
  compiled, server, clients, result_type = _round((3, 4))
  total = _total(compiled, server, clients)
  begun = compiled.begin(server)
  assert begun
  found = compiled.finish(server, begun if is_begun else (), total, result_type)
  monkeypatch.setattr(early_work, 'find_cut', lambda *args: [])
  whole, *_ = _round((3, 4))
  assert not whole.begin(server)
  expected = whole.finish(server, (), total, result_type)
  for one, other in zip(*map(tf.nest.flatten, (found, expected)), strict=True):
    np.testing.assert_array_equal(one, other)


def test_noise_that_is_fresh_is_drawn_once():
  runtime.set_default_context()
  compiled, server, clients, result_type = _round(None)
  begun = compiled.begin(server)
  assert begun
  once, again, other = (
    compiled.finish(
      server, given, _total(compiled, server, clients), result_type
    ).result
    for given in (begun, begun, compiled.begin(server))
  )
  np.testing.assert_array_equal(once, again)
  assert np.all(once != other)


@pytest.mark.parametrize('num_clients', [0, 1, 2, 5])
def test_the_server_begins_while_the_last_clients_are_at_work(
  monkeypatch, num_clients
):
  has_begun = threading.Event()
  begin, work = MapReduceRound.begin, MapReduceRound.work

  def noted_begin(self, server):
    has_begun.set()
    return begin(self, server)

  def waiting_work(self, client, broadcast):
    # The last one holds the only thread that another does not.
    if client[0] == num_clients - 1:
      assert has_begun.wait(60)
    return work(self, client, broadcast)

  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def comp(at_server, values):
    drawn = tff.federated_map(
      tff.tensorflow.computation(_draws, np.float32), at_server
    )
    return drawn, tff.federated_sum(values)

  monkeypatch.setattr(MapReduceRound, 'begin', noted_begin)
  monkeypatch.setattr(MapReduceRound, 'work', waiting_work)
  context = runtime.InProcessContext(num_threads=2)
  drawn, total = context.invoke(
    comp, [np.float32(5), list(np.arange(num_clients, dtype=np.float32))]
  )
  assert 5 < drawn < 8
  assert total == sum(range(num_clients))


def test_an_error_of_what_was_begun_is_that_of_the_round():
  @tff.tensorflow.computation(np.float32)
  def fail(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 3.0)]):
      return _draws(x)

  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def comp(at_server, values):
    return tff.federated_map(fail, at_server), tff.federated_sum(values)

  context = runtime.InProcessContext()
  context.invoke(comp, [np.float32(1), [np.float32(1)]])
  with pytest.raises(tf.errors.InvalidArgumentError):
    context.invoke(comp, [np.float32(5), [np.float32(1)]])


def _begin(function, x, y):
  """Returns what is begun of a server's value, and what a round gives."""

  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def comp(at_server, values):
    return tff.federated_map(
      tff.tensorflow.computation(function, (np.float32, np.float32)),
      (at_server, tff.federated_sum(values)),
    )

  compiled = MapReduceRound(comp)
  server, clients = compiled.split_argument([np.float32(x), [np.float32(y)]])
  begun = compiled.begin(server)
  total = _total(compiled, server, clients)
  return begun, compiled.finish(
    server, begun, total, comp.type_signature.result
  )


def test_results_are_in_their_order():
  begun, found = _begin(
    lambda x, y: (y + 1.0, _draws(x), x, y + _draws(x)), 10.0, 20.0
  )
  assert len(begun) == 2
  np.testing.assert_array_equal(found[0], 21)
  assert 10 < found[1] < 13
  np.testing.assert_array_equal(found[2], 10)
  assert 30 < found[3] < 33


@pytest.mark.parametrize(
  'function',
  [
    # A loop that ends late.
    lambda x, y: tf.while_loop(
      lambda i, *_: i < 3.0,
      lambda i, a, b: (i + 1.0, a + 1.0, b + a),
      (0.0, x, y),
    )[2],
    # One that begins late.
    lambda x, y: x + _draws(y),
    # Nothing that takes time.
    lambda x, y: 2.0 * x + y,
  ],
)
def test_nothing_is_begun_that_cannot_be_or_takes_no_time(function):
  begun, _ = _begin(function, 1.0, 2.0)
  assert not begun


def _early_branch(x, y):
  drawn = _draws(x)
  return drawn, tf.cond(
    x > 0.0, lambda: tf.zeros([2]) + y, lambda: tf.ones([2]) * tf.exp(x)
  )


def _constant_of_a_branch(x, y):
  return _draws(x), tf.cond(x > 0.0, lambda: y - 1.0, lambda: y + tf.exp(x))


def _branches_in_a_branch(x, y):
  def inner():
    return y * tf.cond(x > 2.0, lambda: x + 1.0, lambda: tf.exp(x))

  return _draws(x), tf.cond(x > 0.0, inner, lambda: y * tf.sin(x))


def _loop_in_a_branch(x, y):
  return _draws(x), tf.cond(
    x > 0.0, lambda: y, lambda: y * tf.stop_gradient(_draws(x) * 0.0)
  )


def _loop_in_a_late_loop(x, y):
  def body(i, total):
    inner = tf.while_loop(
      lambda k, _: k < 2, lambda k, t: (k + 1, t + x), (tf.constant(0), 0.0)
    )[1]
    return i + 1, total + inner

  return _draws(x), tf.while_loop(
    lambda i, _: i < 2, body, (tf.constant(0), y)
  )[1]


@pytest.mark.parametrize(
  'function',
  [
    _early_branch,
    _constant_of_a_branch,
    _branches_in_a_branch,
    _loop_in_a_branch,
    _loop_in_a_late_loop,
  ],
)
@pytest.mark.parametrize('x', [-1.0, 1.0, 3.0])
def test_branches_and_loops_give_what_they_give_whole(monkeypatch, function, x):
  _, found = _begin(function, x, 2.0)
  monkeypatch.setattr(early_work, 'find_cut', lambda *args: [])
  _, expected = _begin(function, x, 2.0)
  np.testing.assert_array_equal(found[1], expected[1])


def test_what_runs_after_something_early_is_left_whole():
  def function(x, y):
    with tf.control_dependencies([tf.debugging.assert_less(x, 3.0)]):
      return y + _draws(x), -y

  begun, found = _begin(function, 1.0, 2.0)
  assert not begun
  np.testing.assert_array_equal(found[1], -2)
  with pytest.raises(tf.errors.InvalidArgumentError):
    _begin(function, 5.0, 2.0)
