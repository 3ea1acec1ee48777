"""Noise in integers, of which each client adds a share: Theorem 3.

All of it is in steps of an integer grid, to which clients round their values.
"""

import dataclasses
import math

import tensorflow as tf

from tff_clipping.aggregators.noise import keys as noise_keys
from tff_clipping.aggregators.noise import table

# How much of the rounded vectors is thrown away and rounded again.
_BETA = math.exp(-0.5)
# 200 failures in a row have a probability of 10^-43 at most.
_MAX_TRIES = 200

# A norm has at least so many steps for each root of the number of elements:
# rounding then adds less than 1 % to the sensitivity.
_STEPS_PER_ROOT_DIM = 4
_MIN_SCALED_NORM = 1024.0
# A sum of discrete Gaussians that are at least this wide is as private as one
# of the same variance.
_MIN_STDDEV = 8.0
# So wide that 12 of it fit into the columns of a table.
_TABLE_STDDEV = 2730.0
# Two of a table reach so far, and further.
_MAX_STDDEV = 2.0**17
# Where bits are given, an element wraps with a probability of 7e-5 at most, if
# it is as good as Gaussian.
_WRAP_STDDEVS = 4
# Nor is a grid coarser than this, or than half of the root of the elements:
# rounding would add more than half to the sensitivity.
_MIN_STEPS = 16.0


@dataclasses.dataclass(frozen=True)
class Grid:
  """The integer grid that values are rounded to, and its noise.

  Attributes:
    scale: Steps for each unit of the values.
    sensitivity: The largest norm of a rounded vector, in steps.
    share_stddev: The parameter of one client's discrete Gaussian, in steps.
    modulus: Of the sum, a power of 2.
  """

  scale: float
  sensitivity: float
  share_stddev: float
  modulus: int


def choose_grid(
  *,
  dim: int,
  clipping_norm: float,
  noise_multiplier: float,
  min_clients: int,
  max_clients: int,
  bits: int | None = None,
) -> Grid:
  """Returns a grid that is fine enough, and noise for its sensitivity.

  The sum of m = `min_clients` shares has the standard deviation z * Delta for
  the sensitivity Delta of the rounded vectors. Without `bits` Delta is less
  than 1 % above `clipping_norm` * `scale`, and no sum of the largest cohort
  wraps unless a draw is beyond 12 standard deviations (4e-33). With `bits` the
  grid is the finest, up to that one, on which 4 standard deviations of an
  element of the sum are within half of the modulus 2^`bits`. A sum of M =
  `max_clients` vectors of norm x, spread over `dim` elements by a rotation, has
  in each of them a variance of at most

      (M x)^2 / dim + M / 4 + M share_stddev^2,

  of the vectors, if all were the same, of their rounding, and of the noise.

  Raises:
    ValueError: If the noise is too small for an integer grid of so many
      elements; if so few clients cannot bear the noise of so many elements, so
      many clients do not fit into 62 bits, or the noise not into `bits`.

  Source: Kairouz et al. 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", Theorem 1, Sec. 4.2 and 4.4.
  """
  shares = noise_multiplier / math.sqrt(min_clients)
  least = _MIN_STDDEV / shares
  scaled_norm = max(
    _STEPS_PER_ROOT_DIM * math.sqrt(dim), _MIN_SCALED_NORM, least
  )
  if bits is not None:
    least = max(least, math.sqrt(dim) / 2, _MIN_STEPS)
    scaled_norm = min(
      scaled_norm, _choose_norm(dim, shares, max_clients, bits, least)
    )
  sensitivity = rounded_norm_bound(scaled_norm, dim)
  share_stddev = shares * sensitivity
  if share_stddev > _MAX_STDDEV:
    raise ValueError(
      'The noise of one client is too large for its tables: use a smaller '
      '`noise_multiplier` or a larger `min_clients_per_round`, found '
      f'{noise_multiplier} and {min_clients} for {dim} elements.'
    )
  # The sum of squares in `round_to_norm` must not overflow.
  if sensitivity > 2**30 or dim * (sensitivity + 1) ** 2 >= 2**63:
    raise ValueError(
      '`noise_multiplier` must be larger, or the value smaller, for an integer '
      f'grid, found {noise_multiplier} for {dim} elements.'
    )
  largest = max_clients * (
    math.ceil(sensitivity) + math.ceil(table.NUM_STDDEVS * share_stddev) + 1
  )
  modulus = 2 ** (largest.bit_length() + 1) if bits is None else 2**bits
  if modulus > 2**62:
    raise ValueError(
      f'`max_clients_per_round` must be smaller, found {max_clients}.'
    )
  return Grid(scaled_norm / clipping_norm, sensitivity, share_stddev, modulus)


def _choose_norm(
  dim: int, shares: float, max_clients: int, bits: int, least: float
) -> float:
  """Returns the largest norm from `least` steps of which sums hardly wrap."""
  # The variance of an element is square x^2 + linear x + constant, with the
  # bound of `rounded_norm_bound` that is always the smaller one for this beta;
  # `shares` is the noise of one client over Delta.
  noise = max_clients * shares**2
  square = max_clients**2 / dim + noise
  constant = max_clients / 4 + noise * (dim / 4 + math.sqrt(dim) / 2)
  needed = (
    2 * _WRAP_STDDEVS * math.sqrt(square * least**2 + noise * least + constant)
  )
  if needed > 2**bits:
    raise ValueError(
      f'`bits` must be at least {math.ceil(math.log2(needed))} for these '
      f'clients and elements, and their noise, found {bits}.'
    )
  room = (2**bits / (2 * _WRAP_STDDEVS)) ** 2 - constant
  return (math.sqrt(noise**2 + 4 * square * room) - noise) / (2 * square)


def rounded_norm_bound(norm: float, dim: int) -> float:
  """Returns what the norm of a vector is accepted to be after rounding.

  Source: Kairouz et al. 2021, Eq. (2), for beta = e^-0.5.
  """
  certain = norm + math.sqrt(dim)
  likely = math.sqrt(
    norm**2
    + dim / 4
    + math.sqrt(2 * math.log(1 / _BETA)) * (norm + math.sqrt(dim) / 2)
  )
  return min(certain, likely)


def round_to_norm(
  vector: tf.Tensor, max_norm: float, key: tf.Tensor
) -> tf.Tensor:
  """Rounds each element up or down at random, so that the norm is bounded.

  Each element keeps its expectation, but for the rejection of results that are
  longer than `max_norm`. The norm is checked in integers: whatever the
  floating-point numbers were, the result is no longer. A vector that cannot be
  rounded so, because it is longer itself, becomes zero.

  Both `vector` (`float32`, of shape [dim]) and `max_norm` are in steps, with
  dim (`max_norm` + 1)^2 < 2^63, as `choose_grid` makes sure.
  """
  floor = tf.floor(vector)
  fraction = vector - floor
  # Rounded down: integers are compared with it.
  max_square = math.floor(max_norm**2 * (1 - 2.0**-50))

  def attempt(tries):
    uniform = tf.random.stateless_uniform(
      vector.shape, noise_keys.derive_key(key, tries), alg='philox'
    )
    return tf.cast(floor + tf.cast(uniform < fraction, tf.float32), tf.int64)

  def is_too_long(rounded):
    return tf.reduce_sum(tf.square(rounded)) > max_square

  _, rounded = tf.while_loop(
    lambda tries, rounded: (tries < _MAX_TRIES) & is_too_long(rounded),
    lambda tries, _: (tries + 1, attempt(tries)),
    (tf.constant(1), attempt(0)),
  )
  # An element beyond `max_norm` is too long, and could overflow the sum.
  is_safe = tf.reduce_all(tf.abs(vector) <= max_norm) & ~is_too_long(rounded)
  return tf.where(is_safe, rounded, tf.zeros_like(rounded))


def draw_discrete_gaussian(
  size: int, stddev: float, key: tf.Tensor
) -> tf.Tensor:
  """Draws integers from the discrete Gaussian distribution.

  The probability of k is proportional to exp(-k^2 / (2 `stddev`^2)). A `stddev`
  that is too wide for a table is that of a X_1 + X_2 with an integer a, where
  both have the parameter s and s^2 (a^2 + 1) is `stddev`^2: probabilities of
  such a sum are off by a factor of 1 + 2 exp(-2 pi^2 s^2 / (a^2 + 1)) at most,
  which is below 1 + 1e-300.

  A draw is within 2^-126 * 24 * `stddev` + 1e-31 of the exact law in total
  variation. For 1e13 draws (1e8 elements, 1,000 rounds of 100 clients), at the
  largest `stddev`, delta is off by less than (1 + e^epsilon) * 2e-18.

  Source: Canonne et al. 2020, "The discrete Gaussian for differential privacy",
    for the distribution; `gaussian` for the sum of two.
  """
  scale, part_stddev = split_stddev(stddev)
  drawn = table.draw_combined(
    size,
    noise_keys.draw_words(key, [2, 2]),
    part_stddev,
    2 if scale else 1,
    lambda *parts: scale * parts[0] + parts[1] if scale else parts[0],
  )
  return tf.cast(drawn, tf.int64)


def split_stddev(stddev: float) -> tuple[int, float]:
  """Returns a and s of a X_1 + X_2; (0, `stddev`) where X_2 alone will do."""
  scale = 0
  while stddev / math.sqrt(scale**2 + 1) > _TABLE_STDDEV:
    scale += 1
  return scale, stddev / math.sqrt(scale**2 + 1)


def encode(vector: tf.Tensor, grid: Grid, key: tf.Tensor) -> tf.Tensor:
  """Returns a client's vector in integers, with its share of the noise.

  `vector` (`float32`, of shape [dim]) is clipped and rotated. No two calls may
  share a key.
  """
  keys = noise_keys.draw_words(key, [2, 2])
  rounded = round_to_norm(vector * grid.scale, grid.sensitivity, keys[0])
  noise = draw_discrete_gaussian(vector.shape[0], grid.share_stddev, keys[1])
  return _remainder(rounded + noise, grid.modulus)


def decode(
  total: tf.Tensor, grid: Grid, num_missing: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
  """Returns the vector of a sum of integers, with the missing shares.

  The `num_missing` shares that the largest cohort has more are drawn one by
  one, as clients draw them. No two calls may share a key.
  """

  def add_share(i, drawn):
    share = draw_discrete_gaussian(
      total.shape[0], grid.share_stddev, noise_keys.derive_key(key, i)
    )
    return i + 1, drawn + share

  _, noised = tf.while_loop(
    lambda i, _: i < num_missing, add_share, (tf.constant(0), total)
  )
  # Into [-modulus / 2, modulus / 2): so the release is a function of the sum
  # with the noise of the largest cohort.
  half = grid.modulus // 2
  noised = _remainder(noised + half, grid.modulus) - half
  return tf.cast(tf.cast(noised, tf.float64) / grid.scale, tf.float32)


def _remainder(numbers: tf.Tensor, modulus: int) -> tf.Tensor:
  """Returns integers modulo a power of 2, from 0."""
  return tf.bitwise.bitwise_and(numbers, tf.constant(modulus - 1, tf.int64))
