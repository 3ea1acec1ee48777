"""The grid of releases, which is fixed before the data.

A step is a power of 2, so that a quotient by it is exact.
"""

import math
from typing import Any

import tensorflow as tf

# What the step of a grid is at most, in standard deviations; and that of a sum
# of shares, in standard deviations of one share.
RELATIVE_STEP = 2.0**-29
RELATIVE_STEP_OF_SHARES = 2.0**-16

# The noise multiplier up to which rounding is always paid for.
_PAID_MULTIPLIER = 32.0

# What is between this and its inverse is a normal number of `float32`, as is
# its product with a 32-bit integer.
_SMALLEST = 2.0**-90


def grid_step(stddev: Any) -> tf.Tensor:
  """Returns the step of the grid, in (2^-30, 2^-29] times `stddev`.

  `stddev` is public, positive, a number or a scalar tensor.
  """
  bits = tf.bitcast(as_float64(stddev), tf.int64)
  power = tf.bitwise.bitwise_and(bits, tf.constant(0x7FF << 52, tf.int64))
  return tf.bitcast(power, tf.float64) * RELATIVE_STEP


def round_towards_zero(
  value: Any, step: tf.Tensor, bound: Any = math.inf
) -> Any:
  """Returns `value` on a grid; no element, and so no norm, is larger then.

  Args:
    value: A structure of floating-point tensors; the result is `float64`.
    step: Of the grid.
    bound: The largest size of an element, which a clip ensures: a public number
      or scalar tensor; infinite without a clip. A small bound saves time; an
      element beyond it, or NaN, would give any number.
  """
  leaves = tf.nest.flatten(value)
  inverse = 1 / step

  def cut(leaf):
    steps = tf.cast(leaf, tf.float64) * inverse
    return tf.sign(steps) * tf.floor(tf.abs(steps)) * step

  def cut_narrow(leaf):
    if leaf.dtype == tf.float64:
      return cut(leaf)
    # By way of 32-bit integers it takes a third of the time.
    steps = tf.cast(leaf, tf.float32) * tf.cast(inverse, tf.float32)
    return tf.cast(tf.cast(steps, tf.int32), tf.float64) * step

  fits_32_bits = as_float64(bound) * inverse < 2.0**31
  rounded = tf.cond(
    fits_32_bits & (step > _SMALLEST) & (inverse > _SMALLEST),
    lambda: [cut_narrow(leaf) for leaf in leaves],
    lambda: [cut(leaf) for leaf in leaves],
  )
  return tf.nest.pack_sequence_as(value, rounded)


def round_to_nearest(value: Any, step: tf.Tensor) -> Any:
  """Returns `float64` tensors on a grid; what is there stays as it is."""
  return tf.nest.map_structure(lambda t: tf.round(t / step) * step, value)


def round_noise(noise: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns noise on a coarser grid: x + result is x + `noise`, rounded.

  That is so for each x on the grid. Ties go up: if they went to the even
  neighbour, they would tell whether x is even.
  """
  return tf.floor(noise / step + 0.5) * step


def noise_factor(dim: int, shift: float, multiplier: float) -> float:
  """Returns by how much noise is to be larger to pay for rounding.

  Let two sums of d elements differ by v, and by up to v + sqrt(d) `shift` s'
  after rounding, where s' = f s is the standard deviation of the larger noise.
  With noise of s' the multiplier is s / v all the same if 1 / f + sqrt(d)
  `shift` s / v <= 1.

  Returns f for d = `dim` and each s / v of at most the larger of `multiplier`
  and 32.

  Raises:
    ValueError: If rounding takes more than half of the multiplier.
  """
  moved = shift * math.sqrt(dim)
  paid = max(multiplier, _PAID_MULTIPLIER)
  if not moved * paid <= 0.5:
    raise ValueError(
      f'Values of {dim:,} elements are rounded by {moved:.3g} standard '
      f'deviations of the noise, and must be by at most {0.5 / paid:.3g}: '
      'correlated noise must have a strategy for fewer rounds, or with smaller '
      'coefficients.'
    )
  return 1 / (1 - paid * moved)


def as_float64(number: Any) -> tf.Tensor:
  """Returns a number, or a scalar tensor, as one of `float64`."""
  # A Python number would be of `float32` on its way.
  if not tf.is_tensor(number):
    return tf.constant(number, tf.float64)
  return tf.cast(number, tf.float64)
