"""Draws Gaussian noise on a grid that is fixed before the data, and adds it.

A sum of floating-point numbers can be reached from some values and not from
others, and so proves what was noised (Mironov 2012; Haney et al. 2022). Here
values are multiples of a step, a power of 2 from 2^-30 to 2^-29 standard
deviations, and so is the noise: x + k * step is exact, whatever x is, and each
multiple of the step is a possible result of each x.

Theorem: for values on the grid, x + round(N) = round(x + N), where N is
continuous Gaussian noise and `round` goes to the nearest multiple of the step.
Noise of the law of round(N) is thus the Gaussian mechanism and a function of
its result: each accountant of that mechanism holds. What is drawn is a discrete
Gaussian in place of round(N). For a standard deviation of s steps its
chi-squared distance from it is s^-4 / 288, so that n draws together are within
1e-19 * sqrt(n) in total variation; and the table and the sum of three parts
(see `_draw_block`) are within 2e-32 for each draw. Together these are below
4e-13 for 1e13 draws (1e8 elements in 1e5 rounds), by which a guarantee with
delta holds with delta + 4e-13 * (1 + e^epsilon). No floating-point number is
between the generator and the draw.

That what Philox makes of a secret key is random is taken for granted: it is no
generator that cryptographers have examined. How long a draw takes is not hidden
either, but does not depend on what is noised.

Fresh keys are drawn when the computation runs, never when it is built: what was
built once may run many times, and is sent to others.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.aggregators.parts import gaussian_table, table_draws

# A number of `float32` may be 34 times as large.
MAX_NOISE_STDDEV = 1e37
MIN_NOISE_STDDEV = 1e-37

# No draw is beyond so many standard deviations.
LARGEST_DRAW = 12.1

# A file that has another 122 random bits each time that it is read.
_ENTROPY = '/proc/sys/kernel/random/uuid'

# What the step of a grid is at most, in standard deviations.
RELATIVE_STEP = 2.0**-29

# What is between this and its inverse is a normal number of `float32`, as is
# its product with a 32-bit integer.
_SMALLEST = 2.0**-90

# How many elements are drawn at a time, at most. Larger blocks take little less
# time, and leave cores without one.
_MAX_BLOCK = 2**17

# The parameter of the table, and what a middle part counts for; `_draw_block`.
_TABLE_STDDEV = 2048.0
_MIDDLE_SCALE = 1024

# What factories take as `noise_key`.
NoiseKey = tuple[int, int] | None


def check_noise_stddev(noise_stddev: Any) -> float:
  """Returns a standard deviation as a float, if `float32` holds such noise.

  Args:
    noise_stddev: What the user passed.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not positive, below `MIN_NOISE_STDDEV`, or above
      `MAX_NOISE_STDDEV`.
  """
  number = argument_checks.check_positive('noise_stddev', noise_stddev)
  if number < MIN_NOISE_STDDEV:
    raise ValueError(
      f'`noise_stddev` must be at least {MIN_NOISE_STDDEV}, found '
      f'{noise_stddev!r}: `float32` holds no less.'
    )
  if number > MAX_NOISE_STDDEV:
    raise ValueError(
      f'`noise_stddev` must be at most {MAX_NOISE_STDDEV}, found '
      f'{noise_stddev!r}: `float32` holds no more of its draws.'
    )
  return number


def check_noise_key(noise_key: Any) -> NoiseKey:
  """Returns `noise_key` if it is a pair of 64-bit integers or `None`.

  Args:
    noise_key: What the user passed.

  Raises:
    TypeError: If it is none of them.
    ValueError: If one of the integers does not fit.
  """
  if noise_key is None:
    return None
  if (
    not isinstance(noise_key, (tuple, list))
    or len(noise_key) != 2
    or any(
      isinstance(k, bool) or not isinstance(k, (int, np.integer))
      for k in noise_key
    )
  ):
    raise TypeError(
      f'`noise_key` must be a pair of integers or None, found {noise_key!r}.'
    )
  if any(not -(2**63) <= k < 2**63 for k in noise_key):
    raise ValueError(
      f'`noise_key` must be of 64-bit integers, found {noise_key!r}.'
    )
  return int(noise_key[0]), int(noise_key[1])


def fresh_key() -> tf.Tensor:
  """Returns a key that is fresh each time that the graph around it runs.

  It comes from the random numbers of the kernel of the machine that runs the
  graph, so that no secret is in the graph. TensorFlow's generator is seeded
  with 32 bits, which can be searched.

  Returns:
    An `int64` tensor of shape [2]. Where there is no Linux kernel, the graph
    fails when it runs.
  """
  # A source of records is read anew in each run; `tf.io.read_file`, without
  # state, may become a constant of the graph.
  texts = tf.data.TextLineDataset([_ENTROPY] * 2).batch(2).get_single_element()
  codes = tf.io.decode_raw(
    tf.strings.regex_replace(texts, '-', ''), tf.uint8, fixed_length=32
  )
  digits = tf.cast(codes, tf.int64) - tf.cast(
    tf.where(codes < ord('a'), ord('0'), ord('a') - 10), tf.int64
  )
  words = tf.reduce_sum(
    tf.bitwise.left_shift(
      tf.reshape(digits, [2, 2, 16]), tf.range(0, 64, 4, tf.int64)
    ),
    axis=-1,
  )
  # Six bits of each text are always the same: those of one are not where those
  # of the other are.
  key = tf.bitwise.bitwise_xor(words[0], words[1][::-1])
  fresh = tf.raw_ops.NonDeterministicInts(
    shape=tf.constant([2], tf.int64), dtype=tf.int64
  )
  return tf.bitwise.bitwise_xor(key, fresh)


def derive_key(key: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
  """Returns the key that belongs to two counters, all 128 bits of it new.

  Args:
    key: An `int64` tensor of shape [2].
    counters: An `int64` tensor of shape [2], different for each use of `key`.

  Returns:
    An `int64` tensor of shape [2]. Without `key`, nothing tells the keys of
    two pairs of counters from independent ones.
  """
  # A pair of counters has a place of its own in a range that `key` hides.
  place = table_draws.draw_words(key, [2]) + counters
  return table_draws.draw_words(place, [2])


def grid_step(stddev: Any) -> tf.Tensor:
  """Returns the step of the grid of noise, a power of 2.

  Args:
    stddev: The standard deviation: a public number, or a scalar tensor of one.

  Returns:
    A `float64` scalar: from 2^-30, exclusive, to 2^-29 of `stddev`.
  """
  bits = tf.bitcast(_as_float64(stddev), tf.int64)
  power = tf.bitwise.bitwise_and(bits, tf.constant(0x7FF << 52, tf.int64))
  return tf.bitcast(power, tf.float64) * RELATIVE_STEP


def round_towards_zero(
  value: Any, step: tf.Tensor, bound: Any = math.inf
) -> Any:
  """Returns `value` on a grid; no element, and so no norm, is larger then.

  Args:
    value: A structure of `float32` and `float64` tensors. What is on the grid
      and between zero and an element is of the same type.
    step: Of the grid, a power of 2, `float64`.
    bound: No element is larger, nor NaN: a number or a scalar tensor. Where it
      is infinite, all elements are looked at, which takes as long as to round
      them.
  """
  leaves = tf.nest.flatten(value)
  inverse = 1 / step

  def fits_32_bits(largest):
    return tf.cast(largest, tf.float64) * inverse < 2.0**31

  def looks_as_if_it_fits():
    return tf.reduce_all(
      [
        fits_32_bits(tf.reduce_max(tf.abs(leaf)))
        for leaf in leaves
        if leaf.dtype == tf.float32 and leaf.shape.num_elements() != 0
      ]
    )

  # By way of 32-bit integers it takes a fifth of the time, and is exact too,
  # where the numbers of steps are some, and `float32` holds a step.
  is_usual = (step > _SMALLEST) & (inverse > _SMALLEST)
  is_usual &= tf.cond(
    fits_32_bits(_as_float64(bound)),
    lambda: tf.constant(True),
    looks_as_if_it_fits,
  )

  def cut(leaf):
    if leaf.dtype == tf.float64:
      return cut_any(leaf)
    steps = tf.cast(leaf * tf.cast(inverse, tf.float32), tf.int32)
    return tf.cast(steps, tf.float32) * tf.cast(step, tf.float32)

  def cut_any(leaf):
    steps = tf.cast(leaf, tf.float64) * inverse
    whole = tf.sign(steps) * tf.floor(tf.abs(steps))
    return tf.cast(whole * step, leaf.dtype)

  rounded = tf.cond(
    is_usual,
    lambda: [cut(leaf) for leaf in leaves],
    lambda: [cut_any(leaf) for leaf in leaves],
  )
  return tf.nest.pack_sequence_as(value, rounded)


def round_to_nearest(value: Any, step: tf.Tensor) -> Any:
  """Returns `value` on a grid; what is there already stays as it is.

  Args:
    value: A structure of `float64` tensors.
    step: Of the grid, a power of 2.
  """
  return tf.nest.map_structure(lambda t: tf.round(t / step) * step, value)


def round_noise(noise: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns noise on a coarser grid: x + result is x + `noise`, rounded.

  That is so for each x on the grid. Ties go up: to the even neighbour, they
  would tell whether x is even.

  Args:
    noise: A `float64` tensor.
    step: Of the grid, a power of 2.
  """
  return tf.floor(noise / step + 0.5) * step


def add_gaussian_noise(value: Any, stddev: Any, key: tf.Tensor) -> Any:
  """Returns `value` on the grid of `stddev`, with noise on every element.

  Args:
    value: A structure of `float64` tensors of defined shapes. If it is not on
      the grid, it is rounded, and two values may differ by a step more in each
      element.
    stddev: The standard deviation, in the unit of `value`: a number or a scalar
      tensor. It is public.
    key: An `int64` tensor of shape [2]. No two calls may share a key.

  Returns:
    A structure like `value`: what is nearest to the exact sum.
  """
  leaves = tf.nest.flatten(round_to_nearest(value, grid_step(stddev)))
  noises = draw_gaussian([leaf.shape for leaf in leaves], stddev, key)
  return tf.nest.pack_sequence_as(
    value, [leaf + noise for leaf, noise in zip(leaves, noises, strict=True)]
  )


def draw_gaussian(
  shapes: Sequence[Any], stddev: Any, key: tf.Tensor
) -> list[tf.Tensor]:
  """Returns independent Gaussian noise on the grid of `stddev`.

  Args:
    shapes: Of the tensors; fully defined.
    stddev: The standard deviation: a number or a scalar tensor. That of the
      draws is above it, by less than 2^-17 of itself.
    key: An `int64` tensor of shape [2]. No two calls may share a key.

  Returns:
    `float64` tensors, multiples of `grid_step(stddev)`.

  Raises:
    ValueError: If a dimension is not known.
  """
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  if None in sizes:
    raise ValueError(
      '`shapes` must be known when the graph is built, found '
      f'{shapes[sizes.index(None)]}.'
    )
  size = sum(sizes)
  if not size:
    return [tf.zeros(shape, tf.float64) for shape in shapes]
  stddev = _as_float64(stddev)
  step = grid_step(stddev)
  num_blocks = math.ceil(size / _MAX_BLOCK)
  block_size = math.ceil(size / num_blocks)
  # For the words and the ties of each block.
  keys = table_draws.draw_words(key, [num_blocks, 2, 2])
  table = tuple(map(tf.constant, gaussian_table.alias_table(_TABLE_STDDEV)))

  def draw_block(block, noises):
    noise = _draw_block(block_size, stddev, step, keys[block], table)
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
  size: int,
  stddev: tf.Tensor,
  step: tf.Tensor,
  keys: tf.Tensor,
  table: tuple[tf.Tensor, tf.Tensor],
) -> tf.Tensor:
  """Draws from a discrete Gaussian that is too wide for a table.

  With X_1, X_2, X_3 of parameter s = 2^11, a X_1 + 2^10 X_2 + X_3 is a discrete
  Gaussian of variance s^2 (a^2 + 2^20 + 1), with probabilities that are off by
  a factor of 1 + 3e-34 at most: what is added to the multiples of m is at least
  twice as wide as m, and for a sum of two the factor is 1 + 2 exp(-2 pi^2 r^2),
  where 1 / r^2 is m^2 times the sum of 1 / variance of both.

  Args:
    size: How many.
    stddev: The parameter, from 2^29 to 2^30 `step`.
    step: Of the grid, a power of 2.
    keys: An `int64` tensor of shape [2, 2].
    table: What `gaussian_table.alias_table` returns.

  Returns:
    A `float64` tensor of shape [size]: multiples of `step`, which are exact,
    since there are fewer than 2^35 of it in them.

  Source: the Poisson summation formula; Micciancio and Walter 2017, "Gaussian
    sampling over the integers", for sums of such parts.
  """
  largest = tf.math.ceil(
    tf.sqrt(tf.square(stddev / step / _TABLE_STDDEV) - _MIDDLE_SCALE**2 - 1)
  )

  def combine(first, second, third):
    rest = tf.cast(_MIDDLE_SCALE * second + third, tf.float64)
    return (largest * tf.cast(first, tf.float64) + rest) * step

  return table_draws.draw_combined(size, keys, table, 3, combine)


def _as_float64(number: Any) -> tf.Tensor:
  """Returns a number, or a scalar tensor, as one of `float64`."""
  # A Python number would be of `float32` on its way.
  if not tf.is_tensor(number):
    return tf.constant(number, tf.float64)
  return tf.cast(number, tf.float64)
