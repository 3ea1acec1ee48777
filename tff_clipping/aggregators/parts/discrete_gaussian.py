"""Exact integers for distributed privacy: rounding, noise, and their bounds.

What is here is in the scaled domain, where one unit is the step of the integer
grid. TensorFlow functions take and return tensors; nothing depends on TFF.
"""

import dataclasses
import math

import tensorflow as tf

from tff_clipping.aggregators.parts import (
  gaussian_draws,
  gaussian_table,
  table_draws,
)

# How much of the rounded vectors is thrown away and rounded again. The best
# value for the bound below, after Kairouz et al. 2021, Sec. 4.1.
_BETA = math.exp(-0.5)
# Rounding succeeds with a probability of 1 - beta = 0.39 at least: 200 failures
# in a row have a probability of 10^-43.
_MAX_TRIES = 200

# The grid is this much finer than the norm of a vector whose elements are all
# half a step: rounding then adds less than 1 % to the sensitivity.
_STEPS_PER_ROOT_DIM = 4
_MIN_SCALED_NORM = 1024.0
# Sums of discrete Gaussians that are at least this wide are as private as one
# discrete Gaussian: the difference is below e^-600.
_MIN_STDDEV = 8.0
# So wide that 12 of it fit into the columns of a table.
_TABLE_STDDEV = 2730.0
# Two of a table reach so far, and further.
_MAX_STDDEV = 2.0**17
# Where bits are given, an element wraps with a probability of 6e-5 at most, if
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
    modulus: Of the sum, a power of 2. What wraps costs accuracy, and never
      privacy: the remainder of a sum is a function of the sum.
  """

  scale: float
  sensitivity: float
  share_stddev: float
  modulus: int

  @property
  def bits(self) -> int:
    """The bits of an element of what is summed."""
    return self.modulus.bit_length() - 1


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
  wraps. With them the grid is the finest, up to that one, on which 4 standard
  deviations of an element of the sum are within half of the modulus 2^`bits`.
  A sum of M = `max_clients` vectors of norm x, spread over d elements by a
  rotation, has in each of them a variance of

      (M x)^2 / d + M / 4 + M share_stddev^2

  at most: of the vectors, if all were the same, of their rounding, and of the
  noise.

  Args:
    dim: The number of elements, after padding.
    clipping_norm: c, the norm of the vectors before rounding.
    noise_multiplier: z, with respect to Delta.
    min_clients: m, the least cohort that the noise suffices for.
    max_clients: M, the largest cohort.
    bits: Of an element of the sum; `None` for so many that nothing wraps.

  Raises:
    ValueError: If the noise is too small for an integer grid; if so few clients
      cannot bear the noise of so many elements, so many clients do not fit into
      62 bits, or the noise not into `bits`.

  Source: Kairouz et al. 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", Theorem 1 and Sec. 4.2 and 4.4.
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
  if sensitivity > 2**30:
    raise ValueError(
      '`noise_multiplier` must be larger for an integer grid, found '
      f'{noise_multiplier}.'
    )
  largest = max_clients * (
    math.ceil(sensitivity)
    + math.ceil(gaussian_table.NUM_STDDEVS * share_stddev)
    + 1
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
  """Returns the largest norm, in steps, whose sums hardly wrap.

  Args:
    dim: The number of elements.
    shares: The noise of one client over Delta.
    max_clients: The largest cohort.
    bits: Of an element of the sum.
    least: What the norm must be at least.
  """
  # The variance of an element is square x^2 + linear x + constant, with the
  # bound of `rounded_norm_bound` that is always the smaller one for this beta.
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

  Args:
    norm: The norm before rounding, in steps.
    dim: The number of elements.

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

  Args:
    vector: A `float32` tensor of shape [dim], in steps.
    max_norm: The bound, in steps.
    key: An `int64` tensor of shape [2].

  Returns:
    An `int64` tensor of shape [dim].
  """
  floor = tf.floor(vector)
  fraction = vector - floor
  # Rounded down: integers are compared with it.
  max_square = math.floor(max_norm**2 * (1 - 2.0**-50))

  def attempt(tries):
    uniform = tf.random.stateless_uniform(
      tf.shape(vector),
      seed=tf.random.experimental.stateless_fold_in(key, tries),
      alg='philox',
    )
    return tf.cast(floor + tf.cast(uniform < fraction, tf.float32), tf.int64)

  def is_too_long(rounded):
    return tf.reduce_sum(tf.square(rounded)) > max_square

  _, rounded = tf.while_loop(
    lambda tries, rounded: (tries < _MAX_TRIES) & is_too_long(rounded),
    lambda tries, _: (tries + 1, attempt(tries)),
    (tf.constant(1, tf.int64), attempt(tf.constant(0, tf.int64))),
  )
  # Elements of 2^31 and more could overflow the sum of squares, and are too
  # long.
  is_safe = tf.reduce_all(tf.abs(vector) <= max_norm) & ~is_too_long(rounded)
  return tf.where(is_safe, rounded, tf.zeros_like(rounded))


def draw_discrete_gaussian(
  size: int, stddev: float, key: tf.Tensor
) -> tf.Tensor:
  """Draws integers from the discrete Gaussian distribution.

  The probability of k is proportional to exp(-k^2 / (2 `stddev`^2)). They come
  from a table of 126 bits: no floating-point number is between the generator
  and the result. A `stddev` that is too wide for a table is that of a X_1 + X_2
  with an integer a, where both are of the same parameter s and s^2 (a^2 + 1) is
  `stddev`^2: probabilities of such a sum are off by a factor of 1 + 2 exp(-2
  pi^2 s^2 / (a^2 + 1)) at most, which is below 1 + 1e-300.

  The distribution is within 2^-126 * 24 * `stddev` + 1e-31 of the exact one in
  total variation. For 1e13 draws, that of a model of 1e8 elements in 1,000
  rounds of 100 clients, at the largest `stddev`, delta is off by less than
  (1 + e^epsilon) * 2e-18.

  Args:
    size: The number of integers.
    stddev: The parameter, at least 8.
    key: An `int64` tensor of shape [2].

  Returns:
    An `int64` tensor of shape [size].

  Source: Canonne et al. 2020, "The discrete Gaussian for differential privacy",
    for the distribution; `gaussian_draws` for the sum of two.
  """
  largest, part_stddev = split_stddev(stddev)
  table = tuple(map(tf.constant, gaussian_table.alias_table(part_stddev)))
  keys = tf.random.stateless_uniform(
    [2, 2, 2], key, minval=None, maxval=None, dtype=tf.int64, alg='philox'
  )

  def draw(keys):
    return tf.cast(table_draws.draw_from_table(size, keys, table), tf.int64)

  drawn = draw(keys[0])
  return largest * drawn + draw(keys[1]) if largest else drawn


def split_stddev(stddev: float) -> tuple[int, float]:
  """Returns a and s of a X_1 + X_2; (0, `stddev`) where X_2 alone will do.

  Args:
    stddev: The parameter of the sum.
  """
  largest = 0
  while stddev / math.sqrt(largest**2 + 1) > _TABLE_STDDEV:
    largest += 1
  return largest, stddev / math.sqrt(largest**2 + 1)


def draw_shares(
  size: int,
  stddev: float,
  num_shares: tf.Tensor,
  key: tf.Tensor,
  *,
  max_shares: int,
) -> tf.Tensor:
  """Draws noise for several clients: of variance `num_shares` * `stddev`^2.

  Four shares are as private as one of twice the `stddev`, so that a few draws
  stand for many shares.

  Args:
    size: The number of integers.
    stddev: The parameter of one share, at least 8.
    num_shares: How many, an `int32` scalar; 0 gives zeros.
    key: An `int64` tensor of shape [2].
    max_shares: `num_shares` is at most this; not negative.

  Returns:
    An `int64` tensor of shape [size].
  """
  total = tf.zeros([size], tf.int64)
  if max_shares == 0:
    return total
  # Draws for 1, 4, 16, ... shares, as far as needed, and as tables allow.
  steps = 0
  while 4 ** (steps + 1) <= max_shares and (
    2 ** (steps + 1) * stddev <= _MAX_STDDEV
  ):
    steps += 1
  for step in range(steps, -1, -1):
    width = 4**step

    def add_draw(i, drawn, step=step):
      # All 128 bits: `stateless_fold_in` of an `int32` leaves 32.
      draw_key = gaussian_draws.derive_key(
        key, tf.stack([tf.constant(step, tf.int64), tf.cast(i, tf.int64)])
      )
      return i + 1, drawn + draw_discrete_gaussian(
        size, stddev * 2**step, draw_key
      )

    num_draws = num_shares // width
    _, total = tf.while_loop(
      lambda i, _, num_draws=num_draws: i < num_draws,
      add_draw,
      (tf.constant(0, tf.int32), total),
    )
    num_shares -= num_draws * width
  return total
