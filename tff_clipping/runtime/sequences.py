"""Converts between data sets and lists of their elements, by TFF type."""

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def elements(sequence, element_type: tff.Type) -> list:
  """Returns the elements of a sequence, as Python structures.

  Args:
    sequence: A `tf.data.Dataset`, or its serialized graph.
    element_type: The type of its elements.
  """
  if not isinstance(sequence, tf.data.Dataset):
    with tf.init_scope():
      sequence = tf.data.experimental.from_variant(
        tf.raw_ops.DatasetFromGraph(graph_def=sequence),
        structure=tff.types.type_to_tf_tensor_specs(element_type),
      )
  if sequence.cardinality() == tf.data.INFINITE_CARDINALITY:
    raise TypeError('A data set without end cannot be a list of its elements.')
  return list(sequence.as_numpy_iterator())


def dataset_of_rows(
  rows: Sequence[Sequence[np.ndarray]], element_type: tff.Type
) -> tf.data.Dataset:
  """Returns the data set of some elements, which may differ in shape.

  Args:
    rows: The arrays of each element.
    element_type: Its type, without sequences.
  """
  specs = tff.types.type_to_tf_tensor_specs(element_type)
  flat_types = tff.structure.flatten(element_type)
  # A data set for each run of elements of the same shapes. Not by `map`, whose
  # functions TensorFlow keeps for ever.
  parts = [
    tf.data.Dataset.from_tensor_slices(
      _packed(
        (
          _stacked(column, tf.as_dtype(t.dtype))
          for column, t in zip(zip(*run, strict=True), flat_types, strict=True)
        ),
        specs,
      )
    )
    for _, run in itertools.groupby(
      rows, key=lambda row: [np.shape(leaf) for leaf in row]
    )
  ]
  if not parts:
    zeros = (
      tf.zeros([d or 0 for d in t.shape], tf.as_dtype(t.dtype))
      for t in flat_types
    )
    return tf.data.Dataset.from_tensors(_packed(zeros, specs)).take(0)
  # As a tree: TensorFlow goes down into each, and its stack has an end.
  while len(parts) > 1:
    parts = [
      part.concatenate(parts[i + 1]) if i + 1 < len(parts) else part
      for i, part in enumerate(parts)
      if i % 2 == 0
    ]
  return parts[0]


def _stacked(column: Sequence, dtype: tf.DType) -> tf.Tensor:
  """Returns values of one shape as a tensor."""
  array_dtype = object if dtype == tf.string else None
  return tf.constant(
    np.stack([np.asarray(value, array_dtype) for value in column]), dtype
  )


def _packed(leaves: Iterator, specs):
  """Returns leaves in a structure of TensorFlow's, in its own order.

  `tf.nest` takes those of a dictionary in the order of the sorted names.
  """
  if isinstance(specs, dict):
    return type(specs)((k, _packed(leaves, v)) for k, v in specs.items())
  if attrs.has(type(specs)):
    fields = [f.name for f in attrs.fields(type(specs))]
    return type(specs)(*[_packed(leaves, getattr(specs, f)) for f in fields])
  if isinstance(specs, tuple) and hasattr(specs, '_fields'):
    return type(specs)(*[_packed(leaves, v) for v in specs])
  if isinstance(specs, (list, tuple)):
    # A list would be taken for one tensor.
    return tuple(_packed(leaves, v) for v in specs)
  return next(leaves)
