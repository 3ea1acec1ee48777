"""Tests of tff_clipping.runtime.accumulation."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime.accumulation import Accumulation

_VECTOR = tff.TensorType(np.float32, [3])
_ROWS = tff.TensorType(np.int32, [None])
_BOTH = tff.to_type([_VECTOR, np.int64, _ROWS])


@tff.tensorflow.computation(_BOTH, _BOTH)
def _add(x, y):
  return [x[0] + y[0], y[1] + x[1], tf.concat([x[2], y[2]], axis=0)]


def _leaves(start):
  return [
    np.arange(start, start + 3, dtype=np.float32),
    np.array(start, np.int64),
    np.array([start], np.int32),
  ]


@pytest.mark.parametrize('in_place', [True, False])
def test_sums_are_added_and_the_rest_is_computed(in_place):
  total = _leaves(1)
  result = Accumulation(_add)(total, _leaves(5), in_place=in_place)
  expected = [[6.0, 8.0, 10.0], 6, [1, 5]]
  for found, values, before in zip(result, expected, _leaves(1), strict=True):
    assert isinstance(found, np.ndarray)
    assert found.dtype == before.dtype
    np.testing.assert_array_equal(found, values)
  # Sums alone take the place of what was there.
  assert [a is b for a, b in zip(result, total, strict=True)] == [
    in_place,
    in_place,
    False,
  ]
  if not in_place:
    for found, before in zip(total, _leaves(1), strict=True):
      np.testing.assert_array_equal(found, before)


def _doubled(x, y):
  return x + x + 0 * y


def _difference(x, y):
  return x - y


def _first(x, y):
  del y
  return x


def _of_one(x, y):
  return x + x + tf.zeros_like(y)


@pytest.mark.parametrize('function', [_doubled, _difference, _first, _of_one])
def test_what_is_no_sum_is_computed(function):
  computation = tff.tensorflow.computation(function, [_VECTOR, _VECTOR])
  x, y = _leaves(1)[0], _leaves(5)[0]
  (found,) = Accumulation(computation)([x.copy()], [y], in_place=True)
  np.testing.assert_array_equal(found, function(x, y))


def test_sums_across_are_computed():
  pair = tff.to_type([_VECTOR, _VECTOR])

  @tff.tensorflow.computation(pair, pair)
  def crossed(x, y):
    return [x[0] + y[1], x[1] + y[0]]

  x, y = [_leaves(1)[0], _leaves(2)[0]], [_leaves(5)[0], _leaves(7)[0]]
  found = Accumulation(crossed)([a.copy() for a in x], y, in_place=True)
  np.testing.assert_array_equal(found[0], x[0] + y[1])
  np.testing.assert_array_equal(found[1], x[1] + y[0])


def test_shapes_that_are_not_known_are_computed():
  @tff.tensorflow.computation(_ROWS, _ROWS)
  def add(x, y):
    return x + y

  one, two = np.array([1], np.int32), np.array([1, 2], np.int32)
  (found,) = Accumulation(add)([one], [two], in_place=True)
  np.testing.assert_array_equal(found, [2, 3])


def test_strings_are_computed():
  @tff.tensorflow.computation(np.str_, np.str_)
  def add(x, y):
    return x + y

  left, right = np.array(b'a', object), np.array(b'b', object)
  (found,) = Accumulation(add)([left], [right], in_place=True)
  assert found == b'ab'


def test_what_is_added_may_be_of_another_structure():
  # A sum, a largest value that comes from the sum before, and a count.
  total_type = tff.to_type([_VECTOR, np.float32, np.int64])
  addend_type = tff.to_type([np.float32, _VECTOR])

  @tff.tensorflow.computation(total_type, addend_type)
  def accumulate(total, addend):
    return [
      total[0] + addend[1],
      tf.reduce_max(total[0]) + addend[0],
      total[2] + 1,
    ]

  total = [
    np.array([1, 2, 3], np.float32),
    np.array(0, np.float32),
    np.array(7, np.int64),
  ]
  addend = [np.array(10, np.float32), np.array([1, 1, 1], np.float32)]
  result = Accumulation(accumulate)(total, addend, in_place=True)
  np.testing.assert_array_equal(result[0], [2, 3, 4])
  # Of the sum as it was.
  assert result[1] == 13
  assert result[2] == 8
  assert result[0] is total[0]
