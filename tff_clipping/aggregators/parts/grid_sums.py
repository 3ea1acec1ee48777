"""What sums of values on a grid are: on the grid, or to be rounded to it."""

import math
from typing import Any

import tensorflow_federated as tff

# The noise multiplier up to which rounding is paid for, if it is not known.
PAID_MULTIPLIER = 32.0


def keeps_grid(factory: Any) -> bool:
  """Returns whether sums of a factory are on the grid of what it sums.

  Args:
    factory: Sums values: of other factories than `SumFactory` and
      `secure_sum_factory`, a clip inside the noise for example, nothing tells.
  """
  return isinstance(factory, tff.aggregators.SumFactory) or getattr(
    factory, 'keeps_grid', False
  )


def noise_factor(
  factory: Any,
  value_type: tff.Type,
  relative_step: float,
  *,
  shift: float = 0.0,
  multiplier: float = PAID_MULTIPLIER,
) -> float:
  """Returns by how much noise is to be larger for what is rounded.

  Args:
    factory: What sums the values.
    value_type: Their type.
    relative_step: Of the grid, in standard deviations. It counts where sums are
      not on the grid already.
    shift: By how much else rounding moves each element, at most, in standard
      deviations.
    multiplier: The noise multiplier; see `rounding_factor`.

  Returns:
    At least 1; see `rounding_factor`.

  Raises:
    ValueError: If rounding moves all elements too far.
  """
  dim = sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )
  step = 0.0 if keeps_grid(factory) else relative_step
  return rounding_factor(dim, step + shift, multiplier)


def rounding_factor(
  dim: int, relative_step: float, multiplier: float = PAID_MULTIPLIER
) -> float:
  """Returns by how much noise is to be larger for sums that are rounded.

  Rounded to a grid of step h, two sums of d elements that differ by s differ by
  s + h sqrt(d) at most. With noise of stddev f in place of stddev, and h in
  units of that, stddev / s is a noise multiplier all the same if 1 / f + h
  sqrt(d) stddev / s is at most 1.

  Args:
    dim: d.
    relative_step: h, in standard deviations of the larger noise.
    multiplier: What stddev / s is at most; one below 32 is taken for 32.

  Raises:
    ValueError: If d elements move by more than half of s.
  """
  moved = relative_step * math.sqrt(dim)
  paid = max(multiplier, PAID_MULTIPLIER)
  if not moved * paid <= 0.5:
    raise ValueError(
      f'Values of {dim:,} elements are rounded by {moved:.3g} standard '
      f'deviations of the noise, and must be by at most {0.5 / paid:.3g}: '
      'correlated noise must have a strategy for fewer rounds, or with smaller '
      'coefficients.'
    )
  return 1 / (1 - paid * moved)
