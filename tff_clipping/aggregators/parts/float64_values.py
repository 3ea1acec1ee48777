"""Sums values in wider types than their own: `float64` where noise is added.

A rounded sum is rounded anew at each addition, and one client more or less can
turn each of these roundings the other way: two sums of n values, each of norm c
at most, that differ by one of them differ by c and by up to n^2 c times the
precision. In `float32` that is several c for ten thousand clients, in 16 bits
for a few dozen, so that noise for a sensitivity of c would not hide a client.
In `float64` it is 1e-4 c for a million, and nothing for values on a grid, whose
sums are exact. So whatever is to be noised is rounded to a grid (see
`gaussian_draws`), summed in `float64`, gets noise on the grid, and is returned
in the type that it had.

A mean without noise is summed in `float32` at least: in 16 bits a sum of some
hundred values stays where it is, and a count has no room.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


class WideValues:
  """The way from values of one type to wide ones, and back.

  Attributes:
    type: The type with wide leaves.
  """

  def __init__(self, value_type: tff.Type, least: tf.DType = tf.float64):
    """Initializes the way for values of `value_type`.

    Args:
      value_type: A structure of floating-point tensors in Python containers.
      least: What narrower leaves become.
    """
    dtypes: list[tf.DType] = []

    @tff.tensorflow.computation(value_type)
    def widen(value):
      dtypes.extend(t.dtype for t in tf.nest.flatten(value))
      return tf.nest.map_structure(
        lambda t: t if t.dtype.size >= least.size else tf.cast(t, least), value
      )

    self._widen = widen
    self._dtypes = tuple(dtypes)
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
