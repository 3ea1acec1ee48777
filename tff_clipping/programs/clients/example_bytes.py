"""The examples of one client as bytes, and back.

First the number of examples, then the bytes of each feature of all of them, one
feature after the other. Nothing is counted in 32 bits: a client may hold more
than 2 GiB.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

# The number of examples, of int64, as all numbers with the low byte first.
_COUNT = np.dtype('<i8')


def pack(arrays: Sequence[np.ndarray]) -> bytes:
  """Returns the bytes of a client.

  Args:
    arrays: Of each feature, with a leading dimension of examples.
  """
  count = np.array(len(arrays[0]), _COUNT)
  return b''.join(
    np.ascontiguousarray(array).data for array in (count, *arrays)
  )


def unpack(
  content: tf.Tensor, specs: Mapping[str, tf.TensorSpec]
) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the features of a client; a TensorFlow function.

  Args:
    content: A string scalar, what `pack` has returned.
    specs: What each feature of one example is, in the order of the arrays.

  Raises:
    tf.errors.InvalidArgumentError: If there are not as many bytes as so many
      examples have.
  """
  count = tf.reshape(
    tf.io.decode_raw(_substr(content, 0, _COUNT.itemsize), tf.int64), []
  )
  places = byte_ranges(count, specs)
  start, size = list(places.values())[-1]
  check = tf.debugging.assert_equal(
    # What TensorFlow counts of a string are the lower 32 bits.
    tf.strings.length(content),
    tf.cast(start + size, tf.int32),
    message='The content of a client must be of the length of its examples.',
  )
  with tf.control_dependencies([check] if check is not None else []):
    content = tf.identity(content)
  return collections.OrderedDict(
    (
      feature,
      tf.reshape(
        tf.io.decode_raw(_substr(content, *places[feature]), spec.dtype),
        tf.concat([[count], np.array(spec.shape, np.int64)], axis=0),
      ),
    )
    for feature, spec in specs.items()
  )


def byte_ranges(
  count: tf.Tensor, specs: Mapping[str, tf.TensorSpec]
) -> collections.OrderedDict[str, tuple[tf.Tensor, tf.Tensor]]:
  """Returns where the bytes of each feature start, and how many they are.

  Args:
    count: The number of examples, an int64 scalar.
    specs: As for `unpack`.
  """
  places = collections.OrderedDict()
  start = tf.constant(_COUNT.itemsize, tf.int64)
  for feature, spec in specs.items():
    size = count * (spec.shape.num_elements() * spec.dtype.size)
    places[feature] = start, size
    start += size
  return places


def _substr(content: tf.Tensor, start, size) -> tf.Tensor:
  return tf.strings.substr(
    content, tf.cast(start, tf.int64), tf.cast(size, tf.int64)
  )
