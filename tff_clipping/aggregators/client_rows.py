"""What every client has, collected at the server in the clients' order."""

import tensorflow as tf
import tensorflow_federated as tff


def stack(values: tff.Value) -> tff.Value:
  """Returns clients' tensors of fixed shapes as rows of tensors, in order."""
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

  def join(left, right):
    return tf.nest.map_structure(
      lambda *rows: tf.concat(rows, axis=0), left, right
    )

  @tff.tensorflow.computation(stacked_type, value_type)
  def accumulate(stacked, value):
    return join(stacked, tf.nest.map_structure(lambda t: t[tf.newaxis], value))

  merge = tff.tensorflow.computation(join, stacked_type, stacked_type)
  report = tff.tensorflow.computation(lambda stacked: stacked, stacked_type)
  return tff.federated_aggregate(values, zero(), accumulate, merge, report)
