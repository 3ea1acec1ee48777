"""Clips a structure of tensors to an L2 norm that it provably never exceeds.

The clip of the paper is `x * min(1, c / ||x||)`. In floating point the norm,
the quotient and the product are all rounded, and the result can be longer than
`c`: then the noise, which is a multiple of `c`, protects less than it claims.
Here an upper bound of the norm is used instead, and the result is scaled to
slightly less than `c`, so that `||clip(x, c)|| <= c` holds for the real numbers
that the result stands for.

How the bound is found, for `S` the sum of squares as it is computed:

*   A leaf of up to 4096 elements, or of `float64`, is squared and added in
    `float64`. The squares of the shorter types are exact there, so that a sum
    of n terms in any order is wrong by less than n * 2^-52 of itself.
*   A longer leaf is reduced in `float32`, 32 elements at a time, and only the
    partial norms are added in `float64`: one pass over the memory, and no copy.
    A partial norm of 32 elements, in any order, has a square that is wrong by
    less than (32 + 2) * 2^-24, and 2^-21 covers its square root.
*   Squares below the smallest normal `float32`, and denormal inputs, may be
    flushed to zero: each costs less than 2^-126.

So `||x||^2 <= S * (1 + error) + n * 2^-126`. The scale is rounded once, the
products once more, by 2^-24 of themselves each: `_MARGIN` covers both, and
products that are denormal, since `c` is at least `MIN_CLIPPING_NORM`. Products
of the 16-bit types are rounded towards zero.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_clipping import argument_checks

# Clipping norms below this are refused: squares that far down are flushed to
# zero in float32. Norms above the other cannot be told from one that overflows.
MIN_CLIPPING_NORM = 1e-12
MAX_CLIPPING_NORM = 1e19

_MARGIN = 2.0**-22
_ROW = 32
_SHORT_LEAF = 4096
_ROW_ERROR = (_ROW + 2) * 2.0**-24 + 2.0**-21
_MAX_SUM_OF_SQUARES = float(np.finfo(np.float32).max)


def check_clipping_norm(name: str, clipping_norm: Any) -> float:
  """Returns `clipping_norm` as a float if an update can be clipped to it."""
  return argument_checks.check_between(
    name, clipping_norm, MIN_CLIPPING_NORM, MAX_CLIPPING_NORM
  )


class Clipped(NamedTuple):
  """What the clip makes of one value.

  Attributes:
    value: The clipped value, of the structure, shapes and dtypes of the input.
    norm: The L2 norm before the clip, `float32`; 0 for a value that was zeroed,
      so that no estimate that is fed with it becomes NaN.
    was_clipped: `int32`, 1 if the norm was above the clipping norm, and the
      value was not zeroed.
    was_zeroed: `int32`, 1 if the value was not finite or too long.
  """

  value: Any
  norm: tf.Tensor
  was_clipped: tf.Tensor
  was_zeroed: tf.Tensor


def clip_by_l2_norm(value: Any, clipping_norm: Any) -> Clipped:
  """Scales `value` to a norm of at most `clipping_norm`, never longer.

  | `value`                                  | result                         |
  |------------------------------------------|--------------------------------|
  | zero                                     | zero                           |
  | norm at most `clipping_norm`             | unchanged (*)                  |
  | longer                                   | norm in (1 - 3e-6, 1] * c (**) |
  | a NaN or an infinity in it               | zero, and counted              |
  | sum of squares above the largest float32 | zero, and counted              |

  (*) Within 2e-6 of `clipping_norm`, it may be scaled as if it were longer; and
  denormal numbers may become zero.
  (**) 16-bit leaves are rounded towards zero, by up to their precision.

  Args:
    value: A structure of `float16`, `bfloat16`, `float32` or `float64` tensors
      of defined shapes, which may differ in their dtypes.
    clipping_norm: A scalar, a Python number or a tensor of `float32` or
      `float64`; infinite to clip nothing, but make zero of the last two lines.
      A number that was rounded to `float32` is not exceeded either.
      Where it is a tensor that is NaN or below `MIN_CLIPPING_NORM`, the result
      is zero.

  Source: Eq. (clip) and line "Clip" of Alg. CE-FedAvg.
  """
  if not tf.is_tensor(clipping_norm):
    clipping_norm = tf.constant(clipping_norm, tf.float64)
  # What was rounded to `float32` may have been rounded up, or down.
  unit = 2.0**-23 if clipping_norm.dtype == tf.float32 else 0.0
  clipping_norm = tf.cast(clipping_norm, tf.float64)
  limit = clipping_norm * (1 - unit)

  leaves = tf.nest.flatten(value)
  sum_of_squares, upper_bound = _sum_of_squares(leaves)
  norm, norm_bound = tf.sqrt(sum_of_squares), tf.sqrt(upper_bound)
  # Multiplying by 1 is cheaper than a branch that returns the input: a runtime
  # that fetches it would have to copy it.
  factor = tf.where(
    norm_bound <= limit,
    tf.ones_like(norm_bound),
    limit * (1 - _MARGIN) / norm_bound,
  )
  # A comparison with NaN is false: both conditions are written to fail then.
  is_finite = sum_of_squares <= _MAX_SUM_OF_SQUARES
  scaled = tf.cond(
    is_finite & (clipping_norm >= MIN_CLIPPING_NORM * (1 - unit)),
    lambda: [_shrink(leaf, factor) for leaf in leaves],
    lambda: [tf.zeros_like(leaf) for leaf in leaves],
  )
  norm = tf.where(is_finite, norm, tf.zeros_like(norm))
  return Clipped(
    value=tf.nest.pack_sequence_as(value, scaled),
    norm=tf.cast(norm, tf.float32),
    was_clipped=tf.cast(is_finite & ~(norm <= clipping_norm), tf.int32),
    was_zeroed=tf.cast(~is_finite, tf.int32),
  )


def l2_norm(value: Any) -> tf.Tensor:
  """Returns the L2 norm of a structure of tensors, a `float64` scalar.

  It is not finite if `value` is not, or if the squares of elements overflow.
  """
  return tf.sqrt(_sum_of_squares(tf.nest.flatten(value))[0])


def _sum_of_squares(leaves):
  """Returns the sum of squares, as computed, and an upper bound of it."""
  total = tf.zeros([], tf.float64)
  bound = tf.zeros([], tf.float64)
  for leaf in leaves:
    size = leaf.shape.num_elements()
    if size == 0:
      continue
    flat = tf.reshape(leaf, [-1])
    if leaf.dtype == tf.float64 or size <= _SHORT_LEAF:
      squares = tf.square(tf.cast(flat, tf.float64))
      leaf_sum, error = tf.reduce_sum(squares), size * 2.0**-52
    else:
      leaf_sum, error = _long_sum_of_squares(flat, size)
    total += leaf_sum
    bound += leaf_sum * (1 + error) + size * 2.0**-126
  # Adding up a leaf each, in float64.
  return total, bound * (1 + (2 * len(leaves) + 2) * 2.0**-52)


def _long_sum_of_squares(flat, size):
  """Returns the sum of squares of a long vector, and its relative error."""
  flat = tf.cast(flat, tf.float32)
  num_rows = size // _ROW
  rows = tf.reshape(flat[: num_rows * _ROW], [num_rows, _ROW])
  # This operation squares and adds in one pass, without a copy of the vector.
  norms = tf.cast(tf.math.reduce_euclidean_norm(rows, axis=1), tf.float64)
  rest = tf.cast(flat[num_rows * _ROW :], tf.float64)
  total = tf.reduce_sum(tf.square(norms)) + tf.reduce_sum(tf.square(rest))
  return total, _ROW_ERROR + size * 2.0**-52


def _shrink(leaf, factor):
  """Returns `leaf * factor`, for a `float64` factor and a product near 1."""
  if leaf.dtype == tf.float64:
    return leaf * factor
  # A factor that is denormal in float32 would be rounded by far more.
  factor = tf.where(factor < 2.0**-126, tf.zeros_like(factor), factor)
  product = tf.cast(leaf, tf.float32) * tf.cast(factor, tf.float32)
  if leaf.dtype == tf.float32:
    return product
  # The neighbour towards zero of a number in sign and magnitude is one less.
  rounded = tf.cast(product, leaf.dtype)
  too_long = tf.abs(tf.cast(rounded, tf.float32)) > tf.abs(product)
  bits = tf.bitcast(rounded, tf.uint16) - tf.cast(too_long, tf.uint16)
  return tf.bitcast(bits, leaf.dtype)
