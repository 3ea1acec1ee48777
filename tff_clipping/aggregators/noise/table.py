"""Draws integers from the discrete Gaussian distribution, by a table.

No floating-point number is between the generator and a draw: the weights are
fixed-point numbers, computed from a decimal exponential of 100 digits.

A table has 2^16 columns that are equally likely. Column i is that of the
integer from -2^15 to 2^15 - 1 that is congruent to i modulo 2^16. It gives this
integer with the probability t_i / 2^110, and another one otherwise. Half of a
random word is a column, and half is compared with the upper 16 bits of t_i.
Where these are equal, once in 2^16 integers, 94 bits more decide.

Source: Walker 1977, "An efficient method for generating discrete random
variables with general distributions"; Vose 1991 for the table.
"""

import decimal
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_clipping.aggregators.noise import keys as noise_keys

# Where the tables end, in standard deviations: 4e-33 is beyond.
NUM_STDDEVS = 12
# Of the fixed-point numbers that the tables are computed in.
_BITS = 256
_COLUMN_BITS = 16
# How many bits of a threshold stand beside the other integer of a column; and
# how many are in each of the two numbers that hold the rest of it.
_HIGH_BITS = 16
_LOW_BITS = 47

# From so many draws on, a graph has them compiled by XLA, which makes one pass
# over the memory where ten operations make ten. Fewer draws take longer so.
# Where there is no XLA, as in TFF's own context, TensorFlow runs the
# operations. The bits are the same.
_MIN_COMPILED = 2**13


def gaussian_weights(stddev: float, num_weights: int) -> list[int]:
  """Returns exp(-k^2 / (2 `stddev`^2)) for k = 0, 1, ..., times 2^256."""
  # Each weight is the one before times a ratio, which falls by a factor itself.
  # With 256 bits, what the products lose is below the 126 that are wanted.
  with decimal.localcontext() as context:
    context.prec = 100
    variance = decimal.Decimal(stddev) ** 2
    ratio = int((-1 / (2 * variance)).exp() * 2**_BITS)
    factor = int((-1 / variance).exp() * 2**_BITS)
  weight, weights = 1 << _BITS, []
  for _ in range(num_weights):
    weights.append(weight)
    weight = (weight * ratio) >> _BITS
    ratio = (ratio * factor) >> _BITS
  return weights


@functools.cache
def alias_table(stddev: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns the table of a discrete Gaussian.

  Each probability is within 2^-126 of the exact one of the law that ends at 12
  standard deviations, but zero's, which has what is left.

  Args:
    stddev: The parameter, at least 8, for which 12 `stddev` fit into the
      columns.

  Returns:
    An `int32` array of shape [2^16]: the other integer times 2^16, plus the
    upper 16 bits of t_i. And an `int64` array of shape [2^16, 2]: the 47 bits
    of t_i that follow, and the last 47.
  """
  num_columns = 2**_COLUMN_BITS
  whole = 2 ** (_HIGH_BITS + 2 * _LOW_BITS)
  weights = gaussian_weights(stddev, math.ceil(NUM_STDDEVS * stddev) + 1)
  total = 2 * sum(weights) - weights[0]
  # An index from the end is that of a negative integer.
  shares = [0] * num_columns
  for k, weight in enumerate(weights):
    shares[k] = shares[-k] = weight * num_columns * whole // total
  shares[0] += num_columns * whole - sum(shares)
  # A column that is full gives its own integer in both cases.
  others, thresholds = list(range(num_columns)), [0] * num_columns
  small = [i for i, share in enumerate(shares) if share < whole]
  large = [i for i, share in enumerate(shares) if share > whole]
  while small:
    column, giver = small.pop(), large[-1]
    others[column], thresholds[column] = giver, shares[column]
    shares[giver] -= whole - shares[column]
    if shares[giver] <= whole:
      large.pop()
      if shares[giver] < whole:
        small.append(giver)
  mask = 2**_LOW_BITS - 1
  words = np.array(
    [(t >> 2 * _LOW_BITS, t >> _LOW_BITS & mask, t & mask) for t in thresholds],
    np.int64,
  )
  entries = np.array(others, np.uint32) << _HIGH_BITS
  entries += words[:, 0].astype(np.uint32)
  return entries.view(np.int32), words[:, 1:].copy()


def draw_combined(
  size: int,
  keys: tf.Tensor,
  stddev: float,
  num_parts: int,
  combine: Callable[..., tf.Tensor],
) -> tf.Tensor:
  """Draws what a function makes of some integers.

  Args:
    size: How many of its results.
    keys: An `int64` tensor of shape [2, 2]. No two calls may share a key.
    stddev: The parameter of the integers; see `alias_table`.
    num_parts: How many integers the function takes.
    combine: The function, of so many `int32` tensors, element by element.
  """
  entries, low = map(tf.constant, alias_table(stddev))

  def draw(key, entries):
    words = noise_keys.draw_words(key, [num_parts, size], tf.int32)
    looked_up = [_look_up(each, entries) for each in tf.unstack(words)]
    parts, ties = zip(*looked_up, strict=True)
    return combine(*parts), functools.reduce(tf.logical_or, ties), words

  if size >= _MIN_COMPILED and not tf.executing_eagerly():
    draw = tf.function(draw, jit_compile=True, autograph=False)
  # A GPU may have no compiler.
  with tf.device('CPU:0'):
    drawn, has_tie, words = draw(keys[0], entries)
  places = tf.where(has_tie)
  words = tf.gather(words, places[:, 0], axis=1)
  is_below = _draw_is_below(words, keys[1], low)
  parts, _ = _look_up(words, entries, is_below)
  return tf.tensor_scatter_nd_update(
    drawn, places, combine(*tf.unstack(parts, num_parts))
  )


def _look_up(
  words: tf.Tensor, entries: tf.Tensor, is_below: Any = False
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the integers of words, and where more bits decide."""
  mask = 2**_HIGH_BITS - 1
  own = tf.bitwise.right_shift(words, _HIGH_BITS)
  found = tf.gather(entries, _columns(words))
  other = tf.bitwise.right_shift(found, _HIGH_BITS)
  drawn = tf.bitwise.bitwise_and(words, mask)
  threshold = tf.bitwise.bitwise_and(found, mask)
  is_tie = tf.equal(drawn, threshold)
  is_own = (drawn < threshold) | (is_tie & is_below)
  return tf.where(is_own, own, other), is_tie


def _draw_is_below(
  words: tf.Tensor, key: tf.Tensor, low: tf.Tensor
) -> tf.Tensor:
  """Draws the bits that decide, and compares them with the thresholds."""
  columns = tf.reshape(_columns(words), [-1])
  more = tf.bitwise.bitwise_and(
    noise_keys.draw_words(key, tf.stack([tf.size(words), 2])), 2**_LOW_BITS - 1
  )
  first, second = tf.unstack(more, axis=1)
  high, rest = tf.unstack(tf.gather(low, columns), axis=1)
  is_below = (first < high) | (tf.equal(first, high) & (second < rest))
  return tf.reshape(is_below, tf.shape(words))


def _columns(words: tf.Tensor) -> tf.Tensor:
  """Returns the columns of the table that words are of."""
  return tf.bitwise.bitwise_and(
    tf.bitwise.right_shift(words, _HIGH_BITS), 2**_COLUMN_BITS - 1
  )
