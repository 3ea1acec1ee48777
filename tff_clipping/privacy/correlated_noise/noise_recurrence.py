"""Correlated noise as a stream: each round's from one draw and a few slots."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class NoiseRecurrence(NamedTuple):
  """How a round's noise comes from one fresh draw and from what is kept.

  What is kept are `num_slots` arrays of the size of the model, 0 at first. In
  round t, from 0, with the rows of the tables that `phases[t]` names,

    noise    = draw + sum_s read_weights[s] * slots[s]
    slots[s] = keep_weights[s] * slots[s] + write_weights[s] * noise

  where draw is Gaussian, independent from round to round, and `noise` is what
  the round adds. All weights are `float64`.

  Attributes:
    phases: `int64` of shape [num_rounds].
    read_weights: What the slots count for in the noise; of shape [num_phases,
      num_slots], as the others.
    keep_weights: The share of each slot that stays.
    write_weights: How much of the noise goes to each slot.
  """

  phases: np.ndarray
  read_weights: np.ndarray
  keep_weights: np.ndarray
  write_weights: np.ndarray

  @property
  def num_slots(self) -> int:
    """The arrays that are kept between rounds."""
    return self.read_weights.shape[1]

  def stream(self, draws: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the noise of each round, in NumPy.

    Args:
      draws: One draw a round, of shape [at most num_rounds, ...].
    """
    slots = np.zeros([self.num_slots, *draws.shape[1:]])
    for draw, phase in zip(draws, self.phases, strict=False):
      noise = draw + np.tensordot(self.read_weights[phase], slots, 1)
      yield noise
      column = [-1] + [1] * (draws.ndim - 1)
      keep = self.keep_weights[phase].reshape(column)
      write = self.write_weights[phase].reshape(column)
      slots = keep * slots + write * noise
