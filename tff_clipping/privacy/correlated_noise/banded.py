"""Banded strategies: the noise of a round takes back noise of a few before."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import signal

from tff_clipping.privacy.correlated_noise.noise_strategy import (
  NoiseRecurrence,
  NoiseStrategy,
  check_numbers,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedStrategy(NoiseStrategy):
  """A Toeplitz matrix with few bands; one band is independent noise.

  The noise of a round is its draw, less the noises of the last `num_bands` - 1
  rounds times the coefficients. These noises are kept, each of the size of the
  model.

  Attributes:
    num_rounds: T.
    coefficients: The diagonal of C, which must be 1, and the bands below it.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If there are no coefficients, more than rounds, one that is not
      finite, or the first is not 1.
  """

  kind: ClassVar[str] = 'banded'

  coefficients: tuple[float, ...]

  def __post_init__(self):
    super().__post_init__()
    coefficients = check_numbers('coefficients', self.coefficients)
    if not 1 <= len(coefficients) <= self.num_rounds:
      raise ValueError(
        f'`coefficients` must be from 1 to {self.num_rounds} numbers, found '
        f'{len(coefficients)}.'
      )
    if coefficients[0] != 1:
      raise ValueError(
        f'`coefficients` must begin with 1, found {coefficients[0]:g}: scale '
        'the noise by its standard deviation.'
      )
    object.__setattr__(self, 'coefficients', coefficients)

  @property
  def num_bands(self) -> int:
    """The bands, with the diagonal."""
    return len(self.coefficients)

  @property
  def recurrence(self) -> NoiseRecurrence:
    """As in the base class."""
    # Slots are a ring: in phase p, slot p holds the oldest noise and takes the
    # newest, and the slot before it holds that of the last round.
    size = self.num_bands - 1
    num_phases = max(size, 1)
    place = np.arange(num_phases)
    age = (place[:, np.newaxis] - place[np.newaxis, :size] - 1) % num_phases
    newest = np.eye(num_phases)[:, :size]
    return NoiseRecurrence(
      phases=np.arange(self.num_rounds) % num_phases,
      read_weights=-np.array(self.coefficients)[1:][age]
      if size
      else np.zeros([1, 0]),
      keep_weights=1 - newest,
      write_weights=newest,
    )

  def compute_coefficients(self) -> np.ndarray:
    """Returns the first column of C; see the base class."""
    column = np.zeros(self.num_rounds)
    column[: self.num_bands] = self.coefficients
    return column

  def compute_inverse_coefficients(self) -> np.ndarray:
    """Returns the first column of C^{-1}; see the base class."""
    impulse = np.zeros(self.num_rounds)
    impulse[0] = 1
    return signal.lfilter([1.0], self.coefficients, impulse)

  def describe(self) -> str:
    """Returns what the noise is, as a part of a sentence."""
    if self.num_bands == 1:
      return 'noise that is independent from round to round'
    return (
      'noise that is correlated between rounds by a Toeplitz matrix with '
      f'{self.num_bands} bands'
    )


def identity_strategy(*, num_rounds: int) -> BandedStrategy:
  """Returns noise that is independent from round to round: C is the identity.

  Args:
    num_rounds: T.

  Raises:
    TypeError: If `num_rounds` is not an integer.
    ValueError: If it is out of range.
  """
  return BandedStrategy(num_rounds=num_rounds, coefficients=(1.0,))
