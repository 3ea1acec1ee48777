"""Tests of tff_clipping.runtime.accumulation."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime import accumulation
from tff_clipping.runtime.accumulation import Accumulation

_VECTOR = tff.TensorType(np.float32, [3])
_ROWS = tff.TensorType(np.int32, [None])
_BOTH = tff.to_type([_VECTOR, np.int64, _ROWS])
_TABLE = tff.TensorType(np.float32, [None, 3])


@tff.tensorflow.computation(_BOTH, _BOTH)
def _add(x, y):
  return [x[0] + y[0], y[1] + x[1], tf.concat([x[2], y[2]], axis=0)]


def _leaves(start):
  return [
    np.arange(start, start + 3, dtype=np.float32),
    np.array(start, np.int64),
    np.array([start], np.int32),
  ]


def test_sums_are_added_in_place_and_the_rest_is_computed():
  total = _leaves(1)
  result = Accumulation(_add)(total, _leaves(5))
  expected = [[6.0, 8.0, 10.0], 6, [1, 5]]
  for found, values, before in zip(result, expected, _leaves(1), strict=True):
    assert isinstance(found, np.ndarray)
    assert found.dtype == before.dtype
    np.testing.assert_array_equal(found, values)
  # Rows did not have room behind them.
  assert [a is b for a, b in zip(result, total, strict=True)] == [
    True,
    True,
    False,
  ]


@pytest.mark.parametrize(
  'zero',
  [
    np.array([0, -0.0, 2], np.float32),
    -np.zeros(3, np.float32),
    np.int64(4),
    np.zeros([0, 2], np.float64),
    np.array([b'a', b''], object),
  ],
  ids=repr,
)
def test_a_total_begins_with_what_nobody_can_write(zero):
  total = accumulation.begin(zero)
  assert not total.flags.writeable
  assert (total.dtype, total.shape) == (zero.dtype, zero.shape)
  np.testing.assert_array_equal(total, zero)
  if zero.dtype.kind == 'f':
    np.testing.assert_array_equal(np.signbit(total), np.signbit(zero))


def test_only_the_first_sum_of_a_total_takes_room():
  start = accumulation.begin(np.array([1, 2, 3], np.float32))
  add = Accumulation(_add)
  for _ in range(2):
    total = [start, *_leaves(0)[1:]]
    first = add(total, _leaves(1))
    np.testing.assert_array_equal(first[0], [2, 4, 6])
    # A session takes it without a copy.
    assert first[0].ctypes.data % 64 == 0
    second = add(first, _leaves(1))
    assert second[0] is first[0]
    np.testing.assert_array_equal(second[0], [3, 6, 9])
  np.testing.assert_array_equal(start, [1, 2, 3])


_STRING = tff.TensorType(np.str_)


@pytest.mark.parametrize(
  ('function', 'total_type', 'addend_type'),
  [
    (lambda x, y: [x[0] + x[0] + 0 * y[0]], [_VECTOR], [_VECTOR]),
    (lambda x, y: [x[0] - y[0]], [_VECTOR], [_VECTOR]),
    (lambda x, y: [x[0]], [_VECTOR], [_VECTOR]),
    (lambda x, y: [x[0] + x[0] + tf.zeros_like(y[0])], [_VECTOR], [_VECTOR]),
    (lambda x, y: [x[0] + y[1], x[1] + y[0]], [_VECTOR] * 2, [_VECTOR] * 2),
    # Its shape is not known, and another in the sum.
    (lambda x, y: [x[0] + y[0]], [_ROWS], [tff.TensorType(np.int32, [2])]),
    # Rows in another order, and in another dimension.
    (
      lambda x, y: [tf.concat([tf.expand_dims(y[0], 0), x[0]], axis=0)],
      [_TABLE],
      [_VECTOR],
    ),
    (
      lambda x, y: [tf.reshape(tf.concat([x[0], y[0]], axis=1), [-1, 3])],
      [_TABLE],
      [_TABLE],
    ),
    (lambda x, y: [x[0] + y[0]], [_STRING], [_STRING]),
  ],
)
def test_what_is_no_sum_is_computed(function, total_type, addend_type):
  computation = tff.tensorflow.computation(
    function, [tff.to_type(total_type), tff.to_type(addend_type)]
  )
  total, addend = (
    [_value(t, start + i) for i, t in enumerate(types)]
    for start, types in ((1, total_type), (5, addend_type))
  )
  expected = [np.asarray(each) for each in function(total, addend)]
  found = Accumulation(computation)(total, addend)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)


def _value(type_spec, start):
  """Returns a value of a type; 1 for a dimension that is not known."""
  if type_spec.dtype.type is np.str_:
    return np.array(b'text %d' % start, object)
  shape = [1 if size is None else size for size in type_spec.shape]
  size = int(np.prod(shape))
  return np.arange(start, start + size, dtype=type_spec.dtype).reshape(shape)


@tff.tensorflow.computation(_TABLE, _VECTOR)
def _one_more(rows, row):
  return tf.concat([rows, tf.expand_dims(row, 0)], axis=0)


def test_rows_are_put_below_others():
  append = Accumulation(_one_more)
  rows = np.arange(60, dtype=np.float32).reshape(20, 3)
  total, copies = np.zeros([0, 3], np.float32), 0
  for count, row in enumerate(rows, start=1):
    before = total
    (total,) = append([total], [row])
    copies += not np.shares_memory(before, total)
    np.testing.assert_array_equal(total, rows[:count])
  # With room for 8, 16 and 32; TensorFlow would copy all of them each time.
  assert copies == 3


def test_a_row_is_not_put_into_what_is_no_room():
  # The middle of an array, a transposed one, and another type.
  whole = np.arange(18, dtype=np.float32).reshape(6, 3)
  for rows in (
    whole[2:4],
    whole[:3].T.copy().T[:2],
    whole.T[:2, :3],
    whole.view(np.int32).view(np.float32)[::2],
  ):
    expected, before = np.vstack([rows, [7, 8, 9]]), whole.copy()
    row = np.array([7, 8, 9], np.float32)
    (found,) = Accumulation(_one_more)([rows], [row])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(whole, before)


def test_what_a_client_has_sent_is_copied_to_a_total():
  vector = tff.TensorType(np.float32, [1000])

  @tff.tensorflow.computation(vector, vector)
  def last(total, addend):
    del total
    return addend

  # Memory that a session takes as it is, and returns.
  room = np.ones(1000 + 16, np.float32)
  start = -room.ctypes.data % 64 // room.itemsize
  sent = room[start : start + 1000]
  (total,) = Accumulation(last)([np.zeros(1000)], [sent])
  sent[:] = 2
  np.testing.assert_array_equal(total, np.ones(1000))


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
  result = Accumulation(accumulate)(total, addend)
  np.testing.assert_array_equal(result[0], [2, 3, 4])
  # Of the sum as it was.
  assert result[1] == 13
  assert result[2] == 8
  assert result[0] is total[0]
