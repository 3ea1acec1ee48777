"""Numbers of every client, collected at the server in the clients' order.

So a diagnostic costs a few numbers for each client, not its update.
"""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def collect(rows: tff.Value, names: Sequence[str]) -> tff.Value:
  """Returns the columns of the clients' rows, at the server.

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
    return tf.concat([rows, row[tf.newaxis]], axis=0)

  @tff.tensorflow.computation(rows_type, rows_type)
  def merge(left, right):
    return tf.concat([left, right], axis=0)

  @tff.tensorflow.computation(rows_type)
  def report(rows):
    return collections.OrderedDict(
      (name, rows[:, column]) for column, name in enumerate(names)
    )

  return tff.federated_aggregate(rows, zero(), accumulate, merge, report)
