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
  factory: Any, value_type: tff.Type, relative_step: float
) -> float:
  """Returns by how much noise is to be larger where a sum is rounded.

  Args:
    factory: What sums the values.
    value_type: Their type.
    relative_step: Of the grid, in standard deviations.

  Returns:
    At least 1; 1 where sums are on the grid already.
  """
  if keeps_grid(factory):
    return 1.0
  dim = sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )
  return rounding_factor(dim, relative_step)


def rounding_factor(dim: int, relative_step: float) -> float:
  """Returns by how much noise is to be larger for sums that are rounded.

  Rounded to a grid of step h, two sums of d elements that differ by s differ by
  s + h sqrt(d) at most. With s = stddev / z, noise of stddev + h z sqrt(d) has
  the multiplier z then; z is taken to be at most 32.

  Args:
    dim: d.
    relative_step: h / stddev.
  """
  return 1.0 + _LARGEST_MULTIPLIER * relative_step * math.sqrt(dim)
