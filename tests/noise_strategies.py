"""Noise that is correlated between rounds, without a search for the best."""

from tff_clipping.privacy import correlated_noise


def blt(num_rounds: int) -> correlated_noise.BufferedToeplitzStrategy:
  """Returns a strategy of one buffer.

  Args:
    num_rounds: T.
  """
  return correlated_noise.BufferedToeplitzStrategy(
    num_rounds=num_rounds, scales=(0.4,), decays=(0.9,)
  )
