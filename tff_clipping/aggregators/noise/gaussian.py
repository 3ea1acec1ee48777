"""Draws independent Gaussian noise on its grid.

The law of a draw, of standard deviation s, is within 2e-32 in total variation
of the discrete Gaussian of a parameter from s to s (1 + 2^-17), on the
multiples of the step of `grid.grid_step`. Theorem 1 of the package has what
follows.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_clipping.aggregators.noise import grid, table
from tff_clipping.aggregators.noise import keys as noise_keys

# No draw is beyond so many standard deviations.
LARGEST_DRAW = 12.1

# How many elements are drawn at a time, at most. Larger blocks take little less
# time, and leave cores without one.
_MAX_BLOCK = 2**17

# The parameter of the table, and what a middle part counts for; `_draw_block`.
_TABLE_STDDEV = 2048.0
_MIDDLE_SCALE = 1024


def add_gaussian_noise(value: Any, stddev: Any, key: tf.Tensor) -> Any:
  """Returns a sum with noise on every element, on the grid of `stddev`.

  Args:
    value: A structure of `float64` tensors of defined shapes. If it is not on
      the grid, it is rounded, and two values may differ by a step more in each
      element.
    stddev: As for `draw_gaussian`.
    key: As for `draw_gaussian`.
  """
  shapes = [leaf.shape for leaf in tf.nest.flatten(value)]
  noises = draw_gaussian(shapes, stddev, key)
  return add_noise(value, noises, grid.grid_step(stddev))


def add_noise(value: Any, noises: Sequence[tf.Tensor], step: tf.Tensor) -> Any:
  """Returns a sum, rounded to a grid, with noises on the grid."""
  on_grid = tf.nest.flatten(grid.round_to_nearest(value, step))
  return tf.nest.pack_sequence_as(
    value, [leaf + noise for leaf, noise in zip(on_grid, noises, strict=True)]
  )


def draw_gaussian(
  shapes: Sequence[Any], stddev: Any, key: tf.Tensor
) -> list[tf.Tensor]:
  """Returns independent Gaussian noise on the grid of `stddev`.

  Args:
    shapes: Of the `float64` tensors to return; fully defined.
    stddev: The standard deviation: a number or a scalar tensor. It is public.
    key: An `int64` tensor of shape [2]. No two calls may share a key.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  size = sum(sizes)
  if not size:
    return [tf.zeros(shape, tf.float64) for shape in shapes]
  stddev = grid.as_float64(stddev)
  step = grid.grid_step(stddev)
  num_blocks = math.ceil(size / _MAX_BLOCK)
  block_size = math.ceil(size / num_blocks)
  # For the words and the ties of each block.
  keys = noise_keys.draw_words(key, [num_blocks, 2, 2])

  def draw_block(block, noises):
    noise = _draw_block(block_size, stddev, step, keys[block])
    return block + 1, noises.write(block, noise)

  # Blocks are drawn at the same time where there are cores.
  _, noises = tf.while_loop(
    lambda block, _: block < num_blocks,
    draw_block,
    (
      tf.constant(0),
      tf.TensorArray(tf.float64, num_blocks, element_shape=[block_size]),
    ),
  )
  *leaves, _ = tf.split(
    noises.concat(), [*sizes, num_blocks * block_size - size]
  )
  return [
    tf.reshape(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)
  ]


def _draw_block(
  size: int, stddev: tf.Tensor, step: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
  """Draws from a discrete Gaussian that is too wide for a table.

  With X_1, X_2, X_3 of parameter s = 2^11, a X_1 + 2^10 X_2 + X_3 is a discrete
  Gaussian of variance s^2 (a^2 + 2^20 + 1), but for a factor of at most
  1 + 3e-34 in each probability. For m X + Y, with X and Y discrete Gaussian and
  an integer m, the factor is 1 + 2 exp(-2 pi^2 r^2), where 1 / r^2 = m^2
  (1 / Var(m X) + 1 / Var(Y)); here Y is at least twice as wide as m.

  The parameter `stddev` is from 2^29 to 2^30 `step`. The draws are exact, since
  their size is below 2^35 steps.

  Source: the Poisson summation formula; Micciancio and Walter 2017, "Gaussian
    sampling over the integers", for sums of such parts.
  """
  largest = tf.math.ceil(
    tf.sqrt(tf.square(stddev / step / _TABLE_STDDEV) - _MIDDLE_SCALE**2 - 1)
  )

  def combine(first, second, third):
    rest = tf.cast(_MIDDLE_SCALE * second + third, tf.float64)
    return (largest * tf.cast(first, tf.float64) + rest) * step

  return table.draw_combined(size, keys, _TABLE_STDDEV, 3, combine)
