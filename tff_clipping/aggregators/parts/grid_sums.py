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
  return rounding_factor(_count_elements(value_type), relative_step)


def shift_factor(value_type: tff.Type, shift: float) -> float:
  """Returns by how much noise is to be larger where rounding moves it.

  With noise of stddev / (1 - 32 r), a mechanism with 1 / m = s / stddev + r has
  a multiplier m of at least stddev / s, where that is at most 32.

  Args:
    value_type: The type of the sums.
    shift: r for one element, in standard deviations.

  Raises:
    ValueError: If it moves by more than a 64th of the noise.
  """
  lost = _LARGEST_MULTIPLIER * shift * math.sqrt(_count_elements(value_type))
  if lost > 0.5:
    raise ValueError(
      '`strategy` must be for fewer rounds, or the model smaller: the rounding '
      f'of earlier noises, {lost / _LARGEST_MULTIPLIER:.3g} standard '
      'deviations, must be at most 1/64.'
    )
  return 1 / (1 - lost)


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


def _count_elements(value_type: tff.Type) -> int:
  return sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )
