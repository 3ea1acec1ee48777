"""Gaussian draws for structures of tensors, from fresh or stated keys.

Fresh keys are drawn when the computation runs, never when it is built: what was
built once may run many times, and the same noise on two results cancels in
their difference. TensorFlow seeds its own generator with 32 bits only, which
can be searched, so 128 bits of the operating system's, drawn when the
computation is built, are mixed in.

The draws are ordinary floating-point numbers, by Box and Muller's method from a
counter-based generator (Philox). The guarantees of differential privacy are for
real numbers: floating-point noise has been attacked through its lowest bits
(Mironov 2012; Haney et al. 2022). Noise at the server is the sum of two draws,
which makes that harder (Holohan and Braghin 2021) and lengthens the tails: a
single draw is never beyond 5.7 standard deviations. Where this is not enough,
use `distributed_gaussian_mean_factory`.
"""

import secrets
from typing import Any, Literal

import numpy as np
import tensorflow as tf

# What factories take as `noise_key`.
NoiseKey = tuple[int, int] | Literal['drawn'] | None


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
    value: A structure of `float32` or `float64` tensors. Noise is drawn in the
      dtype of each: on a coarser grid, it would leave the lowest bits of what
      it is added to as they are.
    stddev: The standard deviation, in the unit of `value`: a number or a scalar
      tensor.
    key: An `int64` tensor of shape [2]. No two calls may share a key.
    num_draws: How many draws are added up for an element. The generator's draws
      end at 5.7 standard deviations, sums of two at 8.0.

  Returns:
    A structure like `value`.
  """
  leaves = tf.nest.flatten(value)
  # A key of 128 bits for each draw of each tensor.
  keys = _integers(key, [max(len(leaves), 1), num_draws, 2])

  def add_noise(leaf, leaf_keys):
    draws = [
      tf.random.stateless_normal(
        tf.shape(leaf), seed=leaf_keys[j], dtype=leaf.dtype, alg='philox'
      )
      for j in range(num_draws)
    ]
    scale = tf.cast(stddev, tf.float64) / num_draws**0.5
    return leaf + tf.cast(scale, leaf.dtype) * tf.add_n(draws)

  noised = [add_noise(leaf, keys[i]) for i, leaf in enumerate(leaves)]
  return tf.nest.pack_sequence_as(value, noised)


def _integers(key: tf.Tensor, shape: list[int]) -> tf.Tensor:
  """Returns uniform `int64` integers, all 2^64 of them, from `key` alone."""
  return tf.random.stateless_uniform(
    shape, seed=key, minval=None, maxval=None, dtype=tf.int64, alg='philox'
  )
