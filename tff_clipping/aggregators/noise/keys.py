"""The keys of noise: fresh whenever a round runs, or of a seed that was given.

A key has 128 bits. All noise of a key is a function of the key, so that no two
draws may share one. Whoever knows a seed can subtract the noise: it is for
tests and simulations.

With a seed, the state of noise has `key` (`int64[2]`, as secret as the noise)
and `round_num` (`int64`). Fresh noise needs neither.
"""

import collections
from typing import Any

import tensorflow as tf

# What factories take as `noise_key`.
NoiseKey = tuple[int, int] | None

# The fields of the state of noise.
KEY, ROUND = 'key', 'round_num'

# A file that has another 122 random bits each time that it is read.
_ENTROPY = '/proc/sys/kernel/random/uuid'


def fresh_key() -> tf.Tensor:
  """Returns a key of shape [2], fresh each time that the graph around it runs.

  It comes from the random numbers of the kernel of the machine that runs the
  graph, so that no secret is in the graph. TensorFlow's generator is seeded
  with 32 bits, which can be searched. Where there is no Linux kernel, the graph
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


def draw_words(
  key: tf.Tensor, shape: Any, dtype: tf.DType = tf.int64
) -> tf.Tensor:
  """Returns uniform integers, all that `dtype` has, from `key` alone."""
  return tf.random.stateless_uniform(
    shape, seed=key, minval=None, maxval=None, dtype=dtype, alg='philox'
  )


def derive_key(key: tf.Tensor, counter: Any) -> tf.Tensor:
  """Returns the key that belongs to a counter, all 128 bits of it new.

  Without `key`, nothing tells the keys of two counters from independent ones.
  No `counter` may come twice for one `key`.
  """
  # Different counters give different seeds, moved by a secret number.
  moved = draw_words(key, [2]) + tf.stack([tf.cast(counter, tf.int64), 0])
  return draw_words(moved, [2])


def initial_state(noise_key: NoiseKey) -> collections.OrderedDict:
  """Returns the state of noise before the first round, in a graph."""
  state = collections.OrderedDict()
  if noise_key is not None:
    state[KEY] = tf.constant(noise_key, tf.int64)
    state[ROUND] = tf.constant(0, tf.int64)
  return state


def round_key(state: Any) -> tf.Tensor:
  """Returns the key of the round that follows a state, in a graph."""
  if KEY not in state:
    return fresh_key()
  return derive_key(state[KEY], state[ROUND])


def next_state(state: Any, **kept: Any) -> collections.OrderedDict:
  """Returns the state after a round, with new fields, in a graph."""
  after = collections.OrderedDict(state, **kept)
  if ROUND in after:
    after[ROUND] += 1
  return after
