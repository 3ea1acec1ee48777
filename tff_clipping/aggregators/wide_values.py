"""Sums 16-bit values in 32 bits.

A sum of `float16` or `bfloat16` values is rounded by up to 1/256 of itself at
every addition: with a few dozen clients the error exceeds what one client
contributes, and the sensitivity of the sum is no longer that of the real
numbers. So whatever is to be noised is summed in `float32` and returned in the
type that it had.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

_NARROW = (tf.float16, tf.bfloat16)


class WideValues:
  """The way from values of one type to wide ones, and back.

  Attributes:
    type: The type with `float32` in the place of 16-bit leaves.
  """

  def __init__(self, value_type: tff.Type):
    """Initializes the way for values of `value_type`.

    Args:
      value_type: A structure of floating-point tensors in Python containers.
    """
    self._dtypes: list[tf.DType] = []

    @tff.tensorflow.computation(value_type)
    def widen(value):
      self._dtypes = [t.dtype for t in tf.nest.flatten(value)]
      return tf.nest.map_structure(
        lambda t: tf.cast(t, tf.float32) if t.dtype in _NARROW else t, value
      )

    self._widen = widen
    self.type = widen.type_signature.result

  def widen(self, value: tff.Value) -> tff.Value:
    """Returns `value`, placed at the clients, with wide leaves."""
    if self.type == self._widen.type_signature.parameter:
      return value
    return tff.federated_map(self._widen, value)

  def narrow(self, value: Any) -> Any:
    """Returns `value`, a structure of tensors, in the dtypes it once had."""
    leaves = [
      tf.cast(leaf, dtype)
      for leaf, dtype in zip(tf.nest.flatten(value), self._dtypes, strict=True)
    ]
    return tf.nest.pack_sequence_as(value, leaves)
