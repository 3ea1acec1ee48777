"""What tests of strategies compare with: matrices, and all patterns in turn."""

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import linalg

from tff_clipping.privacy import correlated_noise


def toeplitz_matrix(column: np.ndarray) -> np.ndarray:
  """Returns the lower triangular Toeplitz matrix with this first column."""
  return linalg.toeplitz(column, np.zeros(len(column)))


def patterns(
  num_rounds: int, participation: correlated_noise.Participation
) -> Iterator[tuple[int, ...]]:
  """Yields all rounds, from 0, in which a client may take part."""
  rounds = range(num_rounds)
  most = participation.max_participations or num_rounds
  for size in range(1, most + 1):
    for chosen in itertools.combinations(rounds, size):
      if np.all(np.diff(chosen) >= participation.min_separation):
        yield chosen


def sensitivity(
  matrix: np.ndarray,
  participation: correlated_noise.Participation,
  *,
  with_signs: bool = False,
) -> float:
  """Returns the largest norm of a sum of columns that a client may be in.

  Without signs, it is right for matrices without negative elements alone.
  """
  largest = 0.0
  for chosen in patterns(matrix.shape[1], participation):
    columns = matrix[:, chosen]
    signs = [(1.0,) * len(chosen)]
    if with_signs:
      signs = itertools.product([1.0, -1.0], repeat=len(chosen))
    largest = max([largest, *(np.linalg.norm(columns @ s) for s in signs)])
  return largest
