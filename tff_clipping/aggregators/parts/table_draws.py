"""Draws integers from the discrete Gaussian of a table, and what they make up.

Half of a word is a column of the table, and half is compared with its
threshold. Where these are equal, once in 2^16 integers, 94 bits more decide.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_clipping.aggregators.parts import gaussian_table

# What `gaussian_table.alias_table` returns, as tensors.
Table = tuple[tf.Tensor, tf.Tensor]

# From so many draws on, a graph has them compiled by XLA, which makes one pass
# over the memory where ten operations make ten. Fewer take longer so. Where
# there is no XLA, as in TFF's own context, TensorFlow runs the operations. The
# bits are the same.
_MIN_COMPILED = 2**13


def draw_words(
  key: tf.Tensor, shape: Any, dtype: tf.DType = tf.int64
) -> tf.Tensor:
  """Returns uniform integers, all that `dtype` has, from `key` alone.

  Args:
    key: An `int64` tensor of shape [2].
    shape: Of the result.
    dtype: `tf.int32` or `tf.int64`.
  """
  return tf.random.stateless_uniform(
    shape, seed=key, minval=None, maxval=None, dtype=dtype, alg='philox'
  )


def draw_from_table(size: int, keys: tf.Tensor, table: Table) -> tf.Tensor:
  """Draws integers.

  Args:
    size: How many.
    keys: An `int64` tensor of shape [2, 2]. No two calls may share a key.
    table: Of their distribution.

  Returns:
    An `int32` tensor of shape [size].
  """
  return draw_combined(size, keys, table, 1, lambda drawn: drawn)


def draw_combined(
  size: int,
  keys: tf.Tensor,
  table: Table,
  num_parts: int,
  combine: Callable[..., tf.Tensor],
) -> tf.Tensor:
  """Draws what a function makes of some integers.

  Args:
    size: How many of its results.
    keys: An `int64` tensor of shape [2, 2]. No two calls may share a key.
    table: Of the distribution of the integers.
    num_parts: How many of them the function takes.
    combine: The function: it takes so many `int32` tensors of one shape, and
      works element by element.

  Returns:
    A tensor of shape [size].
  """
  entries, low = table

  def draw(key, entries):
    words = draw_words(key, [num_parts, size], tf.int32)
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
  """Returns the integers of some words, and where more bits decide them.

  Args:
    words: An `int32` tensor.
    entries: Of the table.
    is_below: Whether these bits are below those of the threshold.
  """
  mask = 2**gaussian_table.HIGH_BITS - 1
  own = tf.bitwise.right_shift(words, gaussian_table.HIGH_BITS)
  found = tf.gather(entries, _columns(words))
  other = tf.bitwise.right_shift(found, gaussian_table.HIGH_BITS)
  drawn = tf.bitwise.bitwise_and(words, mask)
  threshold = tf.bitwise.bitwise_and(found, mask)
  is_tie = tf.equal(drawn, threshold)
  is_own = (drawn < threshold) | (is_tie & is_below)
  return tf.where(is_own, own, other), is_tie


def _draw_is_below(
  words: tf.Tensor, key: tf.Tensor, low: tf.Tensor
) -> tf.Tensor:
  """Draws the bits that decide, and compares them with the thresholds.

  Args:
    words: An `int32` tensor, for each element of which bits are drawn.
    key: Of the draws.
    low: The bits of all thresholds.
  """
  columns = tf.reshape(_columns(words), [-1])
  more = tf.bitwise.bitwise_and(
    draw_words(key, tf.stack([tf.size(words), 2])),
    2**gaussian_table.LOW_BITS - 1,
  )
  first, second = tf.unstack(more, axis=1)
  high, rest = tf.unstack(tf.gather(low, columns), axis=1)
  is_below = (first < high) | (tf.equal(first, high) & (second < rest))
  return tf.reshape(is_below, tf.shape(words))


def _columns(words: tf.Tensor) -> tf.Tensor:
  """Returns the columns of the table that words are of."""
  return tf.bitwise.bitwise_and(
    tf.bitwise.right_shift(words, gaussian_table.HIGH_BITS),
    2**gaussian_table.COLUMN_BITS - 1,
  )
