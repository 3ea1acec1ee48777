"""Tests of variables and tables that are initialized in the run of a graph."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime.tensorflow_computation import TensorFlowComputation


@tff.tensorflow.computation(np.float32)
def _in_a_loop(x):
  total = tf.Variable(x)

  def add(step):
    with tf.control_dependencies([total.assign_add(1.0)]):
      return step + 1

  (done,) = tf.while_loop(lambda step: step < 3, add, [tf.constant(0)])
  with tf.control_dependencies([done]):
    return total.read_value()


@tff.tensorflow.computation(np.float32)
def _in_a_function(x):
  total = tf.Variable(x)

  @tf.function
  def add():
    return total.assign_add(3.0)

  with tf.control_dependencies([add()]):
    return total.read_value()


@tff.tensorflow.computation(np.float32)
def _in_a_branch(x):
  total = tf.Variable(0.0)
  return tf.cond(
    x > 0.0, lambda: total.assign_add(x + 3.0), lambda: total.read_value()
  )


@tff.tensorflow.computation(np.float32)
def _from_another(x):
  first = tf.Variable(x)
  second = tf.Variable(first.read_value() + 1.0)
  with tf.control_dependencies([first.assign(2.0)]):
    return first.read_value() + second.read_value()


@tff.tensorflow.computation(np.float32)
def _with_a_table(x):
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(['three'], [3.0]), -1.0
  )
  return x + table.lookup(tf.constant('three'))


@tff.tensorflow.computation(np.float32)
def _by_another_handle(x):
  variable = tf.Variable(x, name='v')
  handle = tf.raw_ops.VarHandleOp(
    dtype=tf.float32, shape=[], shared_name=variable.name.partition(':')[0]
  )
  return 3.0 + tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


@pytest.mark.parametrize(
  'computation',
  [
    _in_a_loop,
    _in_a_function,
    _in_a_branch,
    _from_another,
    _with_a_table,
    _by_another_handle,
  ],
)
def test_each_run_begins_anew(computation):
  compiled = TensorFlowComputation(computation)
  for x in (1.0, 5.0, 1.0):
    np.testing.assert_array_equal(compiled(np.float32(x)), [x + 3.0])


def test_variables_that_nothing_takes_are_left_out():
  @tff.tensorflow.computation(np.float32)
  def comp(x):
    tf.Variable(x)
    return 2.0 * x

  np.testing.assert_array_equal(TensorFlowComputation(comp)(np.float32(4)), [8])


def test_a_variable_that_begins_with_a_draw_draws():
  @tff.tensorflow.computation
  def drawn():
    return tf.Variable(lambda: tf.random.uniform([])).read_value()

  assert TensorFlowComputation(drawn).draws
