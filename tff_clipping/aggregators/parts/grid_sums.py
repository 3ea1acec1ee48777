"""By how much noise is larger for what is rounded."""

import math

import tensorflow_federated as tff

# The noise multiplier up to which rounding is paid for, if it is not known.
PAID_MULTIPLIER = 32.0


def noise_factor(
  value_type: tff.Type, shift: float, multiplier: float = PAID_MULTIPLIER
) -> float:
  """Returns by how much noise is to be larger for what is rounded.

  Rounded to a grid of step h, two sums of d elements that differ by s differ by
  s + h sqrt(d) at most. With noise of stddev f in place of stddev, and h in
  units of that, stddev / s is a noise multiplier all the same if 1 / f + h
  sqrt(d) stddev / s is at most 1.

  Args:
    value_type: The type of what is noised, with d elements.
    shift: h, by how much rounding moves each element, at most, in standard
      deviations of the larger noise.
    multiplier: What stddev / s is at most; one below 32 is taken for 32.

  Returns:
    f, at least 1.

  Raises:
    ValueError: If d elements move by more than half of s.
  """
  dim = sum(
    math.prod(leaf.shape or ()) for leaf in tff.structure.flatten(value_type)
  )
  moved = shift * math.sqrt(dim)
  paid = max(multiplier, PAID_MULTIPLIER)
  if not moved * paid <= 0.5:
    raise ValueError(
      f'Values of {dim:,} elements are rounded by {moved:.3g} standard '
      f'deviations of the noise, and must be by at most {0.5 / paid:.3g}: '
      'correlated noise must have a strategy for fewer rounds, or with smaller '
      'coefficients.'
    )
  return 1 / (1 - paid * moved)
