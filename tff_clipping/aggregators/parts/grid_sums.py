"""What sums of values on a grid are: on the grid, or to be rounded to it."""

import math
from typing import Any

import tensorflow_federated as tff

# The noise multiplier up to which the rounding of a sum is paid for.
_LARGEST_MULTIPLIER = 32.0


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
) -> float:
  """Returns by how much noise is to be larger for what is rounded.

  Args:
    factory: What sums the values.
    value_type: Their type.
    relative_step: Of the grid, in standard deviations. It counts where sums are
      not on the grid already.
    shift: By how much else rounding moves each element, at most, in standard
      deviations.

  Returns:
    At least 1; see `rounding_factor`.

  Raises:
    ValueError: If rounding moves all elements by more than a 64th of the noise.
  """
  dim = sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )
  step = 0.0 if keeps_grid(factory) else relative_step
  return rounding_factor(dim, step + shift)


def rounding_factor(dim: int, relative_step: float) -> float:
  """Returns by how much noise is to be larger for sums that are rounded.

  Rounded to a grid of step h, two sums of d elements that differ by s differ by
  s + h sqrt(d) at most. With noise of stddev f in place of stddev, and h in
  units of that, stddev / s is a noise multiplier all the same if 1 / f + h
  sqrt(d) stddev / s is at most 1; stddev / s is taken to be at most 32.

  Args:
    dim: d.
    relative_step: h, in standard deviations of the larger noise.

  Raises:
    ValueError: If d elements move by more than a 64th of the noise.
  """
  moved = relative_step * math.sqrt(dim)
  if not moved * _LARGEST_MULTIPLIER <= 0.5:
    raise ValueError(
      f'Values of {dim:,} elements are rounded by {moved:.3g} standard '
      'deviations of the noise, and must be by at most 1/64: correlated noise '
      'must have a strategy for fewer rounds, or with smaller coefficients.'
    )
  return 1 / (1 - _LARGEST_MULTIPLIER * moved)
