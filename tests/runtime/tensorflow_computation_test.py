"""Tests of data sets on their way into a session or another process."""

import numpy as np
import pytest
import tensorflow as tf

from tff_clipping.runtime import in_process, tensorflow_computation


def _doubled(x):
  return tf.py_function(lambda v: 2 * v, [x], tf.int64)


def _generated():
  return tf.data.Dataset.from_generator(
    lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int64)
  )


@pytest.mark.parametrize(
  ('dataset', 'expected'),
  [
    (lambda: tf.data.Dataset.range(3), False),
    (lambda: tf.data.Dataset.range(3).map(lambda x: 2 * x), False),
    (lambda: tf.data.Dataset.from_tensor_slices([b'PyFunc', b'']), False),
    (_generated, True),
    (lambda: _generated().batch(2), True),
    (lambda: tf.data.Dataset.range(3).map(_doubled), True),
  ],
)
def test_a_data_set_of_this_process_is_known(dataset, expected):
  graph = tensorflow_computation.portable(dataset())
  assert tensorflow_computation.is_of_this_process(graph) == expected


def test_a_data_set_that_is_too_large_is_refused(monkeypatch):
  # What TensorFlow gives of a graph above 2 GiB.
  monkeypatch.setattr(
    tf.raw_ops, 'DatasetToGraphV2', lambda **kwargs: tf.constant(b'')
  )
  with pytest.raises(ValueError, match='must be below 2 GiB .* client store'):
    tensorflow_computation.portable(tf.data.Dataset.range(3))


def test_a_client_is_not_named_by_bytes_of_its_data_set():
  dataset = tf.data.Dataset.range(3)
  graph = tensorflow_computation.portable(dataset)
  for leaf in (dataset, graph):
    assert in_process._describe([np.int32(7), leaf]) == '7, a data set'
