"""A random rotation, which spreads a vector over all of its elements.

With signs s_i that are drawn at random, and a Hadamard matrix H, it is
x -> H (s * x) / sqrt(d), which keeps norms. The signs are public, and no
privacy rests on them.

A pass over the vector has a matrix of up to 64 by 64. Sizes are powers of 2,
and 12 and 20 times these, so that a vector is padded by a third at most, but
for 5 elements, which become 8.

Source: Kairouz et al. 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation", Algorithm 1; Paley 1933, "On
orthogonal matrices", for those of 12 and 20 elements.
"""

import math

import numpy as np
import tensorflow as tf

from tff_clipping.aggregators.noise.keys import draw_words

# The largest matrix of a pass has 2^6 columns.
_LARGEST_LOG2 = 6
# Of the sizes that are no power of 2, the primes less 1 that give matrices.
_PALEY = {3: 11, 5: 19}


def padded_size(size: int) -> int:
  """Returns the least number of elements, from `size`, that can be rotated."""
  sizes = [1 << max(0, size - 1).bit_length()]
  for odd in _PALEY:
    # A matrix of 12 or 20 elements is the smallest one.
    blocks = -(-size // (4 * odd))
    sizes.append(4 * odd << max(0, blocks - 1).bit_length())
  return min(sizes)


def rotate(vector: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns a vector (`float32`, of a `padded_size`), rotated by a seed."""
  signed = vector * _draw_signs(vector.shape[0], seed)
  return _transform(signed, lambda matrix: matrix)


def rotate_back(vector: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns the vector that `rotate` made this one of; see there."""
  turned = _transform(vector, np.transpose)
  return turned * _draw_signs(vector.shape[0], seed)


def _draw_signs(dim: int, seed: tf.Tensor) -> tf.Tensor:
  return tf.where(draw_words(seed, [dim], tf.int32) < 0, -1.0, 1.0)


def _transform(vector: tf.Tensor, side) -> tf.Tensor:
  """Returns a product of matrices times a vector, with `side` of each."""
  dim = vector.shape[0]
  assert dim == padded_size(dim), dim
  for matrix in _matrices(dim):
    # The whole is the Kronecker product of all of them. A pass takes the last
    # digit of an element's place, and puts it first for the next one.
    rows = tf.reshape(vector, [-1, len(matrix)])
    turned = tf.matmul(
      tf.constant(side(matrix), tf.float32), rows, transpose_b=True
    )
    vector = tf.reshape(turned, [dim])
  return vector


def _matrices(dim: int) -> list[np.ndarray]:
  """Returns orthogonal matrices whose Kronecker product has `dim` columns."""
  left = (dim & -dim).bit_length() - 1
  odd = dim >> left
  matrices = []
  if odd > 1:
    matrices.append(_paley(_PALEY[odd]))
    left -= 2
  while left:
    log2 = math.ceil(left / math.ceil(left / _LARGEST_LOG2))
    matrix = np.ones([1, 1])
    for _ in range(log2):
      matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrices.append(matrix)
    left -= log2
  return [matrix / math.sqrt(len(matrix)) for matrix in matrices]


def _paley(prime: int) -> np.ndarray:
  """Returns a Hadamard matrix of a prime, one below a multiple of 4, plus 1."""
  places = np.arange(prime)
  is_square = np.isin(places, places[1:] ** 2 % prime)
  # 1 for squares, -1 for others, 0 for 0.
  characters = np.where(is_square, 1, -1)
  characters[0] = 0
  matrix = np.ones([prime + 1, prime + 1])
  matrix[1:, 0] = -1
  matrix[1:, 1:] = characters[(places[:, None] - places) % prime]
  matrix[1:, 1:] += np.eye(prime)
  return matrix
