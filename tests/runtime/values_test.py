"""Tests of what an argument may be: nothing is changed in silence."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.runtime import sequences, values

# (type, value): refused by TFF's native context as well.
_DOES_NOT_FIT = [
  (np.int32, 2**31),
  (np.int32, -(2**31) - 1),
  (np.int32, 10**30),
  (np.uint8, -1),
  (np.int64, 2**63),
  (np.uint64, 2**64),
  (np.float32, -1e300),
  (np.float32, 2**24 + 1),
  (np.float32, 10**400),
  (np.float64, 2**53 + 1),
  (np.float16, 70000.0),
  (np.int32, True),
  (np.float32, True),
  (np.int32, 1.0),
  (np.int32, 'a'),
  (np.int32, None),
  (np.bool_, 1),
  (np.str_, 1),
  (np.float32, 1j),
  (tff.TensorType(np.int32, [2]), [2**31, 1]),
  (tff.TensorType(np.float32, [2]), [1.0, 1e300]),
  (tff.TensorType(np.int32, [2]), [1, 2, 3]),
  (tff.TensorType(np.int32, [2]), [[1], [2, 3]]),
]
_FITS = [
  (np.int32, 2**31 - 1),
  (np.int8, -128),
  (np.int64, 2**63 - 1),
  (np.uint64, 2**64 - 1),
  (np.float32, 2**24),
  (np.float32, float('inf')),
  (np.float64, 1e300),
  (np.bool_, True),
  (tff.TensorType(np.float32, [2]), [1, 0.5]),
  (tff.TensorType(np.bool_, [2]), [True, False]),
  (tff.TensorType(np.int8, [2, 2]), [[1, 2], [3, 4]]),
  (tff.TensorType(np.float64, [0]), []),
]


@pytest.mark.parametrize(('dtype', 'value'), _DOES_NOT_FIT)
def test_a_value_that_does_not_fit_is_refused(dtype, value):
  with pytest.raises(TypeError, match='`argument` must be of type'):
    values.flatten(value, tff.to_type(dtype))
  with pytest.raises(TypeError, match=r'`argument\[1\]` must be of type'):
    values.flatten([_zero(dtype), value], tff.SequenceType(dtype))


def _zero(dtype):
  dtype = tff.to_type(dtype)
  if dtype.dtype is np.str_:
    return ''
  return np.zeros(dtype.shape, dtype.dtype)


@pytest.mark.parametrize(('dtype', 'value'), _FITS)
def test_a_value_that_fits_is_what_it_was(dtype, value):
  type_spec = tff.to_type(dtype)
  (array,) = values.flatten(value, type_spec)
  assert array.dtype == type_spec.dtype
  assert array.tolist() == value
  (dataset,) = values.flatten([value, value], tff.SequenceType(type_spec))
  for element in dataset.as_numpy_iterator():
    assert element.dtype == type_spec.dtype
    assert element.tolist() == value


def test_a_float_is_rounded():
  (array,) = values.flatten(0.1, tff.to_type(np.float32))
  assert array == np.float32(0.1)


@pytest.mark.parametrize(
  ('dtype', 'array', 'is_taken'),
  [
    (np.int32, np.int8(3), True),
    (np.float32, np.float16(1), True),
    (np.int32, tf.Variable(3), True),
    (np.int32, np.int64(3), False),
    (np.float32, np.float64(1.0), False),
    (np.int32, np.float32(1), False),
    (np.float32, np.int32(1), False),
    (np.int8, np.uint8(3), False),
    (np.int32, np.bool_(True), False),
    (np.int32, tf.constant(3, tf.int64), False),
  ],
)
def test_an_array_of_no_larger_dtype_is_taken(dtype, array, is_taken):
  if not is_taken:
    message = '`argument` .* of type .*(int|float|bool)'
    with pytest.raises(TypeError, match=message):
      values.flatten(array, tff.to_type(dtype))
    return
  (found,) = values.flatten(array, tff.to_type(dtype))
  assert found.dtype == dtype
  assert found == np.asarray(array)


def test_an_error_names_the_part_of_the_argument():
  type_spec = tff.to_type(
    collections.OrderedDict(x=np.int32, y=[('a', np.int8), ('b', np.int8)])
  )
  message = '^`y.b` must be of type int8 and fit in it, found 300.$'
  with pytest.raises(TypeError, match=message):
    values.flatten(dict(x=1, y=dict(a=1, b=300)), type_spec)


def test_an_error_names_the_client():
  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.int32, tff.CLIENTS),
    tff.FederatedType(tff.SequenceType(np.int32), tff.CLIENTS),
  )
  def comp(scale, numbers, data):
    del data
    return scale, tff.federated_sum(numbers)

  numbers = tf.data.Dataset.from_tensor_slices([1, 2])
  for argument, message in (
    ((1e300, [1, 2], [[], []]), '`scale` .* found 1e[+]300'),
    ((1.0, [1, 2**31], [[], []]), r'`numbers\[1\]` .* found 2147483648'),
    ((1.0, [1, 2], [[], [2**33 + 7]]), r'`data\[1\]\[0\]` .* found 8589934599'),
    ((1.0, 3, [[], []]), '`numbers` must be a list'),
    ((1.0, [1, 2], [[], numbers.batch(2)]), r'`data\[1\]` must be a data set'),
  ):
    with pytest.raises(TypeError, match=message):
      comp(*argument)


def test_elements_of_any_shape_in_the_order_of_the_type():
  element_type = tff.to_type(
    collections.OrderedDict(
      b=tff.TensorType(np.int32, [None]), a=np.str_, c=np.float32
    )
  )
  elements = [
    dict(b=list(range(i % 3)), a=str(i), c=float(i)) for i in (0, 3, 1, 2, 5)
  ]
  (dataset,) = values.flatten(elements, tff.SequenceType(element_type))
  found = list(dataset.as_numpy_iterator())
  assert [
    dict(b=e['b'].tolist(), a=e['a'].decode(), c=e['c']) for e in found
  ] == elements
  (dataset,) = values.flatten([], tff.SequenceType(element_type))
  assert list(dataset.as_numpy_iterator()) == []


@pytest.mark.slow
def test_elements_of_many_shapes_are_a_data_set():
  sequence_type = tff.SequenceType(tff.TensorType(np.int32, [None]))
  rows = [np.full(1 + i % 2, i, np.int32) for i in range(1500)]
  (dataset,) = values.flatten(rows, sequence_type)
  for found, row in zip(dataset.as_numpy_iterator(), rows, strict=True):
    np.testing.assert_array_equal(found, row)


def test_lists_leave_no_functions_behind():
  sequence_type = tff.SequenceType(
    tff.to_type(collections.OrderedDict(b=np.int32, a=[np.float32, np.str_]))
  )
  elements = [dict(b=1, a=[2.0, b'x']), dict(b=3, a=[4.0, b'y'])]
  (dataset,) = values.flatten(elements, sequence_type)
  found = list(dataset.as_numpy_iterator())
  assert found == [dict(b=1, a=(2.0, b'x')), dict(b=3, a=(4.0, b'y'))]
  assert [*found[0]] == ['b', 'a']
  # A `tf.function` of a data set would be kept for ever.
  graph = dataset._as_serialized_graph().numpy()
  assert not tf.compat.v1.GraphDef.FromString(graph).library.function


def test_a_data_set_without_end_is_no_result():
  endless = tf.data.Dataset.range(3).repeat()
  with pytest.raises(TypeError, match='without end'):
    sequences.elements(endless, tff.TensorType(np.int64))


def test_text_is_bytes_with_all_its_zeros():
  (array,) = values.flatten([b'a\0', 'ä'], tff.TensorType(np.str_, [2]))
  assert array.tolist() == [b'a\0', 'ä'.encode()]


@pytest.mark.parametrize(
  'change',
  [
    lambda dataset: dataset.unbatch(),
    lambda dataset: dataset.map(lambda e: e | {'x': tf.cast(e['x'], tf.int32)}),
    lambda dataset: dataset.map(lambda e: e['x']),
  ],
  ids=['examples', 'dtype', 'fields'],
)
def test_a_data_set_of_other_elements_is_refused(change):
  element_type = tff.to_type(
    collections.OrderedDict(
      y=tff.TensorType(np.int32, [None]), x=tff.TensorType(np.float32, [None])
    )
  )
  dataset = tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(y=np.int32([1, 2]), x=np.float32([1, 2]))
  ).batch(2)
  sequence_type = tff.SequenceType(element_type)
  values.flatten(dataset, sequence_type)
  with pytest.raises(TypeError, match='must be a data set of elements'):
    values.flatten(change(dataset), sequence_type)
