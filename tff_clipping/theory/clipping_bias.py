"""The factors α of Theorem 1 and how far they are from each other.

Clipping multiplies the update of client i by α_i. If all α were equal, it would
change the step size and nothing else; the theorem charges the rest.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import argument_checks


class ClippingFactors(NamedTuple):
  """The α of Theorem 1, by round and client.

  Attributes:
    actual: α_i^t = c / max(c, ||Δx_i^t||), [T, N].
    expected: α̃_i^t, the same of the expected update, [T, N].
    mean: ᾱ^t, the mean of α̃_i^t over clients, [T].
  """

  actual: np.ndarray
  expected: np.ndarray
  mean: np.ndarray


def clip_factor(update_norms: ArrayLike, clipping_norm: float) -> np.ndarray:
  """α = c / max(c, ||Δx||), in (0, 1].

  Args:
    update_norms: ||Δx|| or, for α̃, ||E[Δx]||; any shape, at least 0.
    clipping_norm: c.

  Source: Theorem 1.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  norms = np.asarray(update_norms, float)
  if not (np.isfinite(norms).all() and (norms >= 0).all()):
    raise ValueError('`update_norms` must be finite and at least 0, found not.')
  return clipping_norm / np.maximum(clipping_norm, norms)


def clipping_factors(
  update_norms: ArrayLike,
  expected_norms: ArrayLike,
  clipping_norm: float,
) -> ClippingFactors:
  """α_i^t, α̃_i^t and ᾱ^t of Theorem 1.

  Args:
    update_norms: ||Δx_i^t||, [T, N] or, for one round, [N].
    expected_norms: ||E[Δx_i^t]|| in the same shape. The expectation is that
      over the clients' draws of examples, given x^t: only so is α_i = α̃_i when
      σ_l = 0, as the text after the theorem says; the proof's 'over all
      possible randomness' would take in x^t.
    clipping_norm: c.

  Returns:
    The factors. Where only the P sampled clients were seen, N is P here, and
    the factors are an estimate.

  Source: Theorem 1.
  """
  actual = np.atleast_2d(clip_factor(update_norms, clipping_norm))
  expected = np.atleast_2d(clip_factor(expected_norms, clipping_norm))
  if actual.shape != expected.shape:
    raise ValueError(
      f'`expected_norms` must have the shape {actual.shape}, found '
      f'{expected.shape}.'
    )
  return ClippingFactors(actual, expected, expected.mean(axis=1))


def local_deviation(factors: ClippingFactors, power: int = 1) -> np.ndarray:
  """1/N Σ_i |α_i^t − α̃_i^t|^power, [T]: from the variance within clients.

  Departs from the paper: after the theorem it says that |α_i − α̃_i| is at most
  |‖Δx_i‖ − ‖E[Δx_i]‖|. It is at most that over c, which is more for c < 1.

  Args:
    factors: From `clipping_factors`.
    power: 1 or 2, as the two terms of Theorem 1 have it.
  """
  deviation = np.abs(factors.actual - factors.expected)
  return (deviation**power).mean(axis=1)


def client_deviation(factors: ClippingFactors, power: int = 1) -> np.ndarray:
  """1/N Σ_i |α̃_i^t − ᾱ^t|^power, [T]: from the differences between clients.

  Args:
    factors: From `clipping_factors`.
    power: 1 or 2, as the two terms of Theorem 1 have it.
  """
  deviation = np.abs(factors.expected - factors.mean[:, None])
  return (deviation**power).mean(axis=1)
