"""Noise that is correlated between rounds, without a search for the best."""

import numpy as np

from tff_clipping.privacy import correlated_noise


def blt(num_rounds: int) -> correlated_noise.BufferedToeplitzStrategy:
  """Returns a strategy of one buffer.

  Args:
    num_rounds: T.
  """
  return correlated_noise.BufferedToeplitzStrategy(
    num_rounds=num_rounds, scales=(0.4,), decays=(0.9,)
  )


def two_buffers(num_rounds: int) -> correlated_noise.BufferedToeplitzStrategy:
  """Returns a strategy of two buffers.

  Args:
    num_rounds: T.
  """
  return correlated_noise.BufferedToeplitzStrategy(
    num_rounds=num_rounds, scales=(0.4, 0.2), decays=(0.95, 0.4)
  )


def banded(num_rounds: int) -> correlated_noise.BandedStrategy:
  """Returns a strategy of three bands.

  Args:
    num_rounds: T.
  """
  return correlated_noise.BandedStrategy(
    num_rounds=num_rounds, coefficients=(1.0, 0.6, 0.4)
  )


def inverse_matrix(recurrence: correlated_noise.NoiseRecurrence) -> np.ndarray:
  """Returns C^{-1}, by which draws become noise: the noise of unit draws."""
  num_rounds = len(recurrence.phases)
  slots = np.zeros([recurrence.num_slots, num_rounds])
  rows = []
  for draw, phase in zip(np.eye(num_rounds), recurrence.phases, strict=True):
    _, read, keep, write = (each[phase] for each in recurrence)
    noise = draw + read @ slots
    slots = keep[:, np.newaxis] * slots + np.outer(write, noise)
    rows.append(noise)
  return np.array(rows)
