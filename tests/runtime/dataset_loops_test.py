"""Tests of the loops that stand for reductions of data sets."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime import dataset_loops
from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation

_SEQUENCE = tff.SequenceType(np.int32)


def _digits(data):
  """Returns the elements of a data set as digits of a number."""
  return data.reduce(0, lambda total, x: 10 * total + x)


def _data(*elements):
  return tf.data.Dataset.from_tensor_slices(np.array(elements, np.int32))


def _compile(function, *types):
  return TensorFlowComputation(tff.tensorflow.computation(*types)(function))


@pytest.fixture(name='no_reduction', autouse=True)
def _no_reduction(monkeypatch):
  """Lets no session have the operation that is replaced."""
  open_session = TensorFlowComputation._open_session

  def checked(self):
    text = str(self._graph.as_graph_def())
    assert 'op: "ReduceDataset"' not in text
    return open_session(self)

  monkeypatch.setattr(TensorFlowComputation, '_open_session', checked)


@pytest.mark.parametrize('elements', [(), (7,), (1, 2, 3)])
def test_elements_are_reduced_in_their_order(elements):
  (found,) = _compile(_digits, _SEQUENCE)(_data(*elements))
  assert found == int(''.join(map(str, elements)) or 0)


def test_what_a_step_captures_is_there():
  def weighted(data, weight):
    return data.reduce(0.0, lambda t, x: t + weight * tf.cast(x, tf.float32))

  (found,) = _compile(weighted, _SEQUENCE, np.float32)(_data(1, 2), 3.0)
  assert found == 9.0


def test_steps_change_variables_one_after_the_other():
  def descend(data):
    x = tf.Variable(1.0)

    @tf.function
    def run(data):
      def step(count, element):
        # Each step reads what the one before wrote.
        x.assign(2.0 * x + tf.cast(element, tf.float32))
        return count + 1

      count = data.reduce(0, step)
      return count, x.read_value()

    return run(data)

  call = _compile(descend, _SEQUENCE)
  elements = np.arange(50) % 3
  expected = 1.0
  for element in elements:
    expected = np.float32(2) * np.float32(expected) + np.float32(element)
  for _ in range(2):
    count, x = call(_data(*elements))
    assert (count, x) == (50, expected)


def test_a_reduction_in_a_function_is_replaced():
  @tf.function
  def inner(data):
    return _digits(data), data.reduce(0, lambda count, _: count + 1)

  def outer(data):
    # A loop is no place that a function is moved to.
    return tf.while_loop(
      lambda i, *_: i < 2,
      lambda i, total, count: (i + 1, *inner(data)),
      (0, 0, 0),
    )

  assert _compile(outer, _SEQUENCE)(_data(4, 5)) == [2, 45, 2]


def test_a_reduction_in_a_reduction_is_replaced():
  def outer(data):
    def step(total, x):
      return total + tf.data.Dataset.range(tf.cast(x, tf.int64)).reduce(
        0, lambda count, _: count + 1
      )

    return data.reduce(0, step)

  assert _compile(outer, _SEQUENCE)(_data(4, 5)) == [9]


def test_structures_are_reduced():
  element = collections.OrderedDict(x=np.float32, y=np.int32)

  def both(data):
    return data.reduce(
      (0.0, 0), lambda s, e: (s[0] + e['x'], tf.maximum(s[1], e['y']))
    )

  data = tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(
      x=np.array([0.5, 1.5], np.float32), y=np.array([3, 2], np.int32)
    )
  )
  found = _compile(both, tff.SequenceType(element))(data)
  assert found == [2.0, 3]


def test_an_element_that_fails_is_an_error():
  def checked(x):
    tf.debugging.assert_less(x, 3)
    return x

  call = _compile(_digits, _SEQUENCE)
  with pytest.raises(tf.errors.InvalidArgumentError, match='x < y'):
    call(_data(1, 2, 3).map(checked))


def test_what_a_data_set_asks_for_is_done():
  call = _compile(_digits, _SEQUENCE)
  options = tf.data.Options()
  options.experimental_optimization.map_parallelization = True
  data = (
    _data(1, 2, 3, 4)
    .map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE)
    .prefetch(tf.data.AUTOTUNE)
    .with_options(options)
  )
  assert call(data) == [2345]
  shuffled = {int(call(_data(1, 2, 3).shuffle(3, seed=1))[0]) for _ in 'ab'}
  assert len(shuffled) == 1


def test_a_graph_without_a_reduction_stays_as_it_is():
  with tf.Graph().as_default() as graph:
    tf.function(lambda x: x + 1)(tf.compat.v1.placeholder(tf.float32))
  before = graph.as_graph_def()
  after = graph.as_graph_def()
  dataset_loops.replace_reductions(after)
  assert after == before
