"""What every client has, collected at the server in the clients' order."""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def collect(rows: tff.Value, names: Sequence[str]) -> tff.Value:
  """Returns the columns of the clients' rows, at the server.

  So a diagnostic costs a few numbers for each client, not its update.

  Args:
    rows: Floating-point numbers of shape `[len(names)]` at the clients.
    names: What each number of a row is called, all different.

  Returns:
    A structure of `names` at the server, each with a value for every client, in
    the order of the clients: `float64` as `rows` are, else `float32`.
  """
  row_type = rows.type_signature.member
  if row_type.dtype not in (np.float32, np.float64):
    as_float32 = tff.tensorflow.computation(
      lambda row: tf.cast(row, tf.float32), row_type
    )
    rows = tff.federated_map(as_float32, rows)
    row_type = rows.type_signature.member
  num_columns = len(names)
  rows_type = tff.TensorType(row_type.dtype, [None, num_columns])

  @tff.tensorflow.computation
  def zero():
    return tf.compat.v1.placeholder_with_default(
      tf.zeros([0, num_columns], row_type.dtype), [None, num_columns]
    )

  @tff.tensorflow.computation(rows_type, row_type)
  def accumulate(rows, row):
    return tf.concat([rows, tf.expand_dims(row, 0)], axis=0)

  @tff.tensorflow.computation(rows_type, rows_type)
  def merge(left, right):
    return tf.concat([left, right], axis=0)

  @tff.tensorflow.computation(rows_type)
  def report(rows):
    return collections.OrderedDict(
      (name, rows[:, column]) for column, name in enumerate(names)
    )

  return tff.federated_aggregate(rows, zero(), accumulate, merge, report)


def stack(values: tff.Value) -> tff.Value:
  """Returns the clients' values on top of each other, at the server.

  Args:
    values: A structure of tensors of fixed shapes at the clients.

  Returns:
    The structure at the server, whose tensors have a leading dimension of
    clients, in their order.
  """
  value_type = values.type_signature.member
  stacked_type = tff.to_type(
    tff.types.structure_from_tensor_type_tree(
      lambda t: tff.TensorType(t.dtype, [None, *t.shape]), value_type
    )
  )

  @tff.tensorflow.computation
  def zero():
    return tff.types.structure_from_tensor_type_tree(
      lambda t: tf.compat.v1.placeholder_with_default(
        tf.zeros([0, *t.shape], t.dtype), [None, *t.shape]
      ),
      value_type,
    )

  @tff.tensorflow.computation(stacked_type, value_type)
  def accumulate(stacked, value):
    return tf.nest.map_structure(
      lambda rows, row: tf.concat([rows, tf.expand_dims(row, 0)], axis=0),
      stacked,
      value,
    )

  @tff.tensorflow.computation(stacked_type, stacked_type)
  def merge(left, right):
    return tf.nest.map_structure(
      lambda a, b: tf.concat([a, b], axis=0), left, right
    )

  @tff.tensorflow.computation(stacked_type)
  def report(stacked):
    return stacked

  return tff.federated_aggregate(values, zero(), accumulate, merge, report)
