"""Tests of the bytes of a client."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_clipping.programs.clients import example_bytes

_SPECS = collections.OrderedDict(
  x=tf.TensorSpec([1_000_000], tf.uint8), y=tf.TensorSpec([], tf.int32)
)


# Below and above 2³¹ and 2³² bytes, and 1 EB.
@pytest.mark.parametrize('count', [0, 1, 2_300, 4_400, 10**12])
def test_bytes_are_counted_in_64_bits(count):
  places = example_bytes.byte_ranges(tf.constant(count, tf.int64), _SPECS)
  found = {k: tuple(map(int, place)) for k, place in places.items()}
  images = count * 1_000_000
  assert found == dict(x=(8, images), y=(8 + images, 4 * count))


@pytest.mark.parametrize('count', [0, 3])
def test_bytes_are_read_as_they_were_packed(count):
  specs = collections.OrderedDict(
    x=tf.TensorSpec([2, 3], tf.bool), y=tf.TensorSpec([], tf.float64)
  )
  arrays = [np.arange(6 * count).reshape(-1, 2, 3) % 2 == 0, np.arange(count)]
  arrays[1] = arrays[1] / 7
  found = example_bytes.unpack(tf.constant(example_bytes.pack(arrays)), specs)
  for values, array in zip(found.values(), arrays, strict=True):
    assert values.dtype == array.dtype
    np.testing.assert_array_equal(values, array)


@pytest.mark.parametrize('change', [lambda b: b[:-4], lambda b: b + b'0' * 4])
def test_other_bytes_than_those_of_the_examples_are_refused(change):
  specs = collections.OrderedDict(y=tf.TensorSpec([], tf.int32))
  content = change(example_bytes.pack([np.arange(5, dtype=np.int32)]))
  with pytest.raises(tf.errors.InvalidArgumentError, match='of its examples'):
    example_bytes.unpack(tf.constant(content), specs)

  @tf.function
  def read(content):
    return example_bytes.unpack(content, specs)

  with pytest.raises(tf.errors.InvalidArgumentError, match='of its examples'):
    read(tf.constant(content))
