"""What every client has, collected at the server in the clients' order."""

import tensorflow as tf
import tensorflow_federated as tff


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
