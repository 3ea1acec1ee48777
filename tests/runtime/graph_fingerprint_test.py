"""Tests of what tells one graph from another."""

import pytest
import tensorflow as tf

from tff_clipping.runtime import graph_fingerprint


def _fingerprint(build):
  """Returns that of a graph that `build` makes of a vector."""
  with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder(tf.float32, [2])
    result = build(x)
  return graph_fingerprint.compute_fingerprint(graph, [x.name], [result.name])


def _variables(first, second):
  """Returns what adds two variables with different factors."""

  def build(x):
    a, b = (
      tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=name)
      for name in (first, second)
    )
    read = tf.raw_ops.ReadVariableOp(resource=b, dtype=tf.float32)
    with tf.control_dependencies(
      [tf.raw_ops.AssignVariableOp(resource=a, value=x)]
    ):
      return 2.0 * read + tf.raw_ops.ReadVariableOp(
        resource=a, dtype=tf.float32
      )

  return build


def _function(factor, name='f'):
  def build(x):
    def body(x):
      return factor * x

    body.__name__ = name
    return tf.function(body)(x)

  return build


def _noise(build):
  """Returns what builds something else first, and then `build`."""

  def after(x):
    tf.identity(tf.function(lambda y: y + 1.0)(x))
    return build(x)

  return after


@pytest.mark.parametrize(
  ('one', 'other'),
  [
    (lambda x: x + 1.0, lambda x: tf.add(x, 1.0, name='another')),
    (_function(2.0), _function(2.0, 'g')),
    (_function(2.0), _noise(_function(2.0))),
    (_variables('a', 'b'), _variables('c', 'd')),
  ],
)
def test_names_do_not_count(one, other):
  assert _fingerprint(one) == _fingerprint(other)


@pytest.mark.parametrize(
  ('one', 'other'),
  [
    (lambda x: x + 1.0, lambda x: x + 2.0),
    (lambda x: x + 1.0, lambda x: x - 1.0),
    (lambda x: x - 1.0, lambda x: 1.0 - x),
    (lambda x: (x + 1.0) * x, lambda x: (x + 1.0) * (x + 1.0)),
    (lambda x: tf.split(x, 2)[0], lambda x: tf.split(x, 2)[1]),
    (_function(2.0), _function(3.0)),
    (_function(2.0), lambda x: 2.0 * x),
    (_variables('a', 'a'), _variables('a', 'b')),
  ],
)
def test_what_is_computed_counts(one, other):
  assert _fingerprint(one) != _fingerprint(other)


def test_the_order_of_what_is_fed_counts():
  with tf.Graph().as_default() as graph:
    x, y = (tf.compat.v1.placeholder(tf.float32, []) for _ in range(2))
    result = x - y
  found = {
    graph_fingerprint.compute_fingerprint(graph, feeds, [result.name])
    for feeds in ([x.name, y.name], [y.name, x.name])
  }
  assert len(found) == 2
