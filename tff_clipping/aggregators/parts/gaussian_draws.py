"""Gaussian draws for structures of tensors, from fresh or stated keys.

Fresh keys are drawn when the computation runs, never when it is built: what was
built once may run many times, and the same noise on two results cancels in
their difference. TensorFlow seeds its own generator with 32 bits only, which
can be searched, so 128 bits of the operating system's, drawn when the
computation is built, are mixed in.

The draws are made by Box and Muller's method in `float64`, from integers of 63
and 64 bits of a counter-based generator (Philox): they have the tails of a
normal distribution up to 9.4 standard deviations. TensorFlow's own, from 23
bits, end at 5.7, and a small delta is a matter of the tails.

They are ordinary floating-point numbers. The guarantees of differential privacy
are for real numbers: floating-point noise has been attacked through its lowest
bits (Mironov 2012; Haney et al. 2022). Noise at the server is the sum of two
draws, which makes that harder (Holohan and Braghin 2021), and ends at 13.3
standard deviations. Where this is not enough, use
`distributed_gaussian_mean_factory`.
"""

import math
import secrets
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_clipping import argument_checks

# A number of `float32` may be 34 times as large.
MAX_NOISE_STDDEV = 1e37

# What factories take as `noise_key`.
NoiseKey = tuple[int, int] | Literal['drawn'] | None


def check_noise_stddev(noise_stddev: Any) -> float:
  """Returns a standard deviation as a float, if `float32` holds such noise.

  Args:
    noise_stddev: What the user passed.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not positive, or above `MAX_NOISE_STDDEV`.
  """
  number = argument_checks.check_positive('noise_stddev', noise_stddev)
  if number > MAX_NOISE_STDDEV:
    raise ValueError(
      f'`noise_stddev` must be at most {MAX_NOISE_STDDEV}, found '
      f'{noise_stddev!r}: `float32` holds no more of its draws.'
    )
  return number


def check_noise_key(noise_key: Any) -> NoiseKey:
  """Returns `noise_key` if it is a pair of 64-bit integers, 'drawn' or `None`.

  Args:
    noise_key: What the user passed.

  Raises:
    TypeError: If it is none of them.
    ValueError: If one of the integers does not fit.
  """
  if noise_key is None:
    return None
  if isinstance(noise_key, str) and noise_key == 'drawn':
    return 'drawn'
  if (
    not isinstance(noise_key, (tuple, list))
    or len(noise_key) != 2
    or any(
      isinstance(k, bool) or not isinstance(k, (int, np.integer))
      for k in noise_key
    )
  ):
    raise TypeError(
      "`noise_key` must be a pair of integers, 'drawn' or None, found "
      f'{noise_key!r}.'
    )
  if any(not -(2**63) <= k < 2**63 for k in noise_key):
    raise ValueError(
      f'`noise_key` must be of 64-bit integers, found {noise_key!r}.'
    )
  return int(noise_key[0]), int(noise_key[1])


def initial_key(noise_key: NoiseKey) -> tf.Tensor:
  """Returns the key that a state begins with, in a graph.

  Args:
    noise_key: A pair of integers; or 'drawn', for one that is fresh each time
      that the graph runs.

  Returns:
    An `int64` tensor of shape [2].
  """
  if noise_key == 'drawn':
    return fresh_key()
  return tf.constant(noise_key, tf.int64)


def fresh_key() -> tf.Tensor:
  """Returns a key that is fresh each time that the graph around it runs.

  Returns:
    An `int64` tensor of shape [2].
  """
  secret = np.frombuffer(secrets.token_bytes(16), np.int64)
  fresh = tf.raw_ops.NonDeterministicInts(
    shape=tf.constant([2], tf.int64), dtype=tf.int64
  )
  now = tf.bitcast(tf.timestamp(), tf.int64)
  return tf.bitwise.bitwise_xor(
    tf.bitwise.bitwise_xor(fresh, tf.constant(secret)), tf.stack([now, now])
  )


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
  place = _integers(key, [2]) + counters
  return _integers(place, [2])


def add_gaussian_noise(
  value: Any, stddev: Any, key: tf.Tensor, *, num_draws: int = 2
) -> Any:
  """Returns `value` with independent Gaussian noise on every element.

  Args:
    value: A structure of `float32` or `float64` tensors. Noise is drawn in
      `float64`: on a coarser grid than theirs, it would leave the lowest bits
      of what it is added to as they are.
    stddev: The standard deviation, in the unit of `value`: a number or a scalar
      tensor.
    key: An `int64` tensor of shape [2]. No two calls may share a key.
    num_draws: How many draws are added up for an element.

  Returns:
    A structure like `value`.
  """
  leaves = tf.nest.flatten(value)
  # A key of 128 bits for each draw of each tensor.
  keys = _integers(key, [max(len(leaves), 1), num_draws, 2])
  if not tf.is_tensor(stddev):
    stddev = tf.constant(stddev, tf.float64)
  scale = tf.cast(stddev, tf.float64) / num_draws**0.5
  noised: list[tf.Tensor] = []
  for leaf, leaf_keys in zip(
    leaves, tf.unstack(keys)[: len(leaves)], strict=True
  ):
    # One after the other: a draw takes several times the memory of its result.
    with tf.control_dependencies(noised[-1:]):
      noise = tf.zeros_like(leaf, tf.float64)
      for draw_key in tf.unstack(leaf_keys):
        with tf.control_dependencies([noise]):
          noise += _draw_normal(tf.shape(leaf), draw_key)
      noised.append(leaf + tf.cast(scale * noise, leaf.dtype))
  return tf.nest.pack_sequence_as(value, noised)


def _draw_normal(shape: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
  """Returns `float64` draws of the standard normal distribution.

  Args:
    shape: Of the result, `int32`.
    key: An `int64` tensor of shape [2].

  Source: Box and Muller 1958, "A note on the generation of random normal
    deviates".
  """
  size = tf.reduce_prod(shape)
  bits = _integers(key, tf.stack([2, (size + 1) // 2]))
  # In (0, 1], with all bits where it is small.
  magnitude = tf.bitwise.bitwise_and(bits[0], tf.constant(2**63 - 1, tf.int64))
  uniform = (tf.cast(magnitude, tf.float64) + 0.5) * 2.0**-63
  radius = tf.sqrt(-2.0 * tf.math.log(uniform))
  angle = tf.cast(bits[1], tf.float64) * (math.pi * 2.0**-63)
  pair = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
  return tf.reshape(pair[:size], shape)


def _integers(key: tf.Tensor, shape: list[int] | tf.Tensor) -> tf.Tensor:
  """Returns uniform `int64` integers, all 2^64 of them, from `key` alone."""
  return tf.random.stateless_uniform(
    shape, seed=key, minval=None, maxval=None, dtype=tf.int64, alg='philox'
  )
