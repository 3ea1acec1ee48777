"""Buffered linear Toeplitz strategies (BLT)."""

import dataclasses
from typing import ClassVar

import numpy as np

from tff_clipping.privacy.correlated_noise.noise_strategy import (
  NoiseRecurrence,
  NoiseStrategy,
  check_numbers,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BufferedToeplitzStrategy(NoiseStrategy):
  """A Toeplitz matrix whose coefficients are a sum of few geometric sequences.

  The coefficient of lag 0 is 1, that of lag i >= 1 is sum_j scales[j] *
  decays[j]^(i - 1). For each j an array of the size of the model is kept. The
  coefficients are never negative and never increase, so that the sensitivity is
  exact. Scales and decays are rounded down to numbers of `float32` before.

  Attributes:
    num_rounds: T.
    scales: The paper's theta or `output_scale`: >= 0, at most 1 together.
    decays: The paper's lambda or `buf_decay`: >= 0 and below 1.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If a number is out of range, or scales and decays are not
      equally many.

  Source: arXiv 2404.16706 and, for several participations, 2408.08868.
  """

  kind: ClassVar[str] = 'blt'

  scales: tuple[float, ...]
  decays: tuple[float, ...]

  def __post_init__(self):
    super().__post_init__()
    for name in ('scales', 'decays'):
      values = check_numbers(name, getattr(self, name))
      if not all(v >= 0 for v in values):
        raise ValueError(f'`{name}` must not be negative, found {values}.')
      object.__setattr__(self, name, tuple(map(_round_down, values)))
    if len(self.scales) != len(self.decays):
      raise ValueError(
        f'`scales` must be as many as `decays` ({len(self.decays)}), found '
        f'{len(self.scales)}.'
      )
    if sum(self.scales) > 1:
      raise ValueError(
        f'`scales` must be at most 1 together, found {sum(self.scales):g}: '
        'the coefficients would increase, and the sensitivity is not known.'
      )
    if not all(v < 1 for v in self.decays):
      raise ValueError(f'`decays` must be below 1, found {self.decays}.')

  @property
  def num_buffers(self) -> int:
    """The arrays of the size of the model that are kept."""
    return len(self.scales)

  @property
  def recurrence(self) -> NoiseRecurrence:
    """As in the base class."""
    return NoiseRecurrence(
      phases=np.zeros(self.num_rounds, np.int64),
      read_weights=-np.array([self.scales]),
      keep_weights=np.array([self.decays]),
      write_weights=np.ones([1, self.num_buffers]),
    )

  def compute_coefficients(self) -> np.ndarray:
    """Returns the first column of C; see the base class."""
    return geometric_column(
      np.array(self.scales), np.array(self.decays), self.num_rounds
    )

  def compute_inverse_coefficients(self) -> np.ndarray:
    """Returns the first column of C^{-1}; see the base class."""
    scales, decays = invert_geometric(
      np.array(self.scales), np.array(self.decays)
    )
    return geometric_column(scales, decays, self.num_rounds)

  def describe(self) -> str:
    """Returns what the noise is, as a part of a sentence."""
    buffers = (
      '1 buffer' if self.num_buffers == 1 else f'{self.num_buffers} buffers'
    )
    return (
      'noise that is correlated between rounds by a buffered linear Toeplitz '
      f'matrix (BLT) with {buffers}'
    )


def _round_down(value: float) -> float:
  """Returns the largest number of `float32` that is not above a value."""
  rounded = np.float32(value)
  if float(rounded) > value:  # NumPy 2 would round `value` up to compare it.
    rounded = np.nextafter(rounded, np.float32(0))
  return float(rounded)


def geometric_column(
  scales: np.ndarray, decays: np.ndarray, num_rounds: int
) -> np.ndarray:
  """Returns 1, then sum_j scales[j] * decays[j]^(i - 1) for each lag i >= 1."""
  column = np.ones(num_rounds)
  lags = np.arange(num_rounds - 1.0)
  column[1:] = np.asarray(scales) @ np.power.outer(np.asarray(decays), lags)
  return column


def invert_geometric(
  scales: np.ndarray, decays: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the scales and decays of the inverse, which is of the same form.

  The state of a round's noise follows the matrix diag(decays) - 1 scales^T. It
  is similar to a symmetric one, whose eigenvalues are the inverse's decays. Its
  scales are all <= 0.
  """
  root = np.sqrt(scales)
  values, vectors = np.linalg.eigh(np.diag(decays) - np.outer(root, root))
  return -((root @ vectors) ** 2), values
