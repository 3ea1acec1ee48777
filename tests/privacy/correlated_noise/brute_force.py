"""What tests of strategies compare with: matrices, and all patterns in turn."""

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import linalg

from tff_clipping.privacy import correlated_noise


def toeplitz_matrix(column: np.ndarray) -> np.ndarray:
  """Returns the lower triangular Toeplitz matrix with this first column."""
  return linalg.toeplitz(column, np.zeros(len(column)))


def tree_matrix(num_rounds: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns a row for each complete subtree, and the rounds that they end in.

  Returns:
    Ones where a subtree has a round, of shape [num_subtrees, num_rounds]; and
    integers of shape [num_subtrees], the first round being 1.
  """
  rows, ends = [], []
  for level in range(num_rounds.bit_length()):
    size = 2**level
    for start in range(0, num_rounds - size + 1, size):
      rows.append([start <= t < start + size for t in range(num_rounds)])
      ends.append(start + size)
  return np.array(rows, float), np.array(ends)


def released_noise(strategy: correlated_noise.NoiseStrategy) -> np.ndarray:
  """Returns the matrix that makes the noise of the rounds from the draws."""
  draws = np.eye(strategy.num_rounds)
  return np.array(list(strategy.recurrence.stream(draws)))


def patterns(
  num_rounds: int, participation: correlated_noise.Participation
) -> Iterator[tuple[int, ...]]:
  """Yields all rounds, from 0, in which a client may take part."""
  rounds = range(num_rounds)
  most = participation.max_participations or num_rounds
  for size in range(1, most + 1):
    for chosen in itertools.combinations(rounds, size):
      gaps = np.diff(chosen)
      epoch = participation.rounds_per_epoch
      epochs = [t // epoch for t in chosen] if epoch else chosen
      if np.all(gaps >= participation.min_separation) and len(
        set(epochs)
      ) == len(chosen):
        yield chosen


def sensitivity(
  matrix: np.ndarray,
  participation: correlated_noise.Participation,
  *,
  with_signs: bool = False,
) -> float:
  """Returns the largest norm of a sum of columns that a client may be in.

  Args:
    matrix: C, with a column for each round.
    participation: The rounds that a client may take part in.
    with_signs: Whether contributions of -1 are tried too. Without, it is right
      for matrices without negative elements alone.
  """
  largest = 0.0
  for chosen in patterns(matrix.shape[1], participation):
    columns = matrix[:, chosen]
    signs = [(1.0,) * len(chosen)]
    if with_signs:
      signs = itertools.product([1.0, -1.0], repeat=len(chosen))
    largest = max([largest, *(np.linalg.norm(columns @ s) for s in signs)])
  return largest
