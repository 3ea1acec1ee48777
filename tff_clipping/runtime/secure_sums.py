"""TFF's secure sums, simulated in exact integers.

A simulation has no cryptography: these sums compute what a secure aggregation
protocol computes, and refuse what it refuses.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow_federated as tff


class SecureSum:
  """One of the three kinds of secure sum, over a list of integer arrays.

  `bitwidth` and `max_input` sums take values from 0 to a bound and wrap as the
  integer type does; `modulus` sums are modulo the bound.
  """

  def __init__(
    self,
    kind: str,
    value_type: tff.Type,
    bounds: Sequence[np.ndarray],
    bounds_type: tff.Type,
  ):
    """Initializes the sum.

    Args:
      kind: 'bitwidth', 'max_input' or 'modulus'.
      value_type: The type of what a client contributes.
      bounds: The leaves of the bounds: bitwidths, largest inputs or moduli.
      bounds_type: The type of the bounds: the structure of `value_type`, or one
        number for a part of it.

    Raises:
      ValueError: If a bound is negative, or a modulus is 0 or too large for its
        values.
    """
    self._kind = kind
    self._types = tff.structure.flatten(value_type)
    self._bounds = [
      int(bound) for bound in _by_tensor(iter(bounds), bounds_type, value_type)
    ]
    self._largest = [
      _largest(kind, bound, t)
      for bound, t in zip(self._bounds, self._types, strict=True)
    ]

  @property
  def num_tensors(self) -> int:
    """The number of tensors that a client contributes."""
    return len(self._types)

  def zero(self) -> list[np.ndarray]:
    """Returns the sum over no clients."""
    return [np.zeros(t.shape, t.dtype) for t in self._types]

  def check(self, contribution: Sequence[np.ndarray]) -> None:
    """Raises if a client's contribution is out of bounds.

    Raises:
      ValueError: If a value is negative or above its bound.
    """
    for value, largest, bound in zip(
      contribution, self._largest, self._bounds, strict=True
    ):
      if np.size(value) and (np.min(value) < 0 or np.max(value) > largest):
        raise ValueError(
          f'A value in a secure sum must be from 0 to {largest} (its '
          f'{self._kind} is {bound}), found one from {np.min(value)} to '
          f'{np.max(value)}.'
        )

  def add(
    self, left: Sequence[np.ndarray], right: Sequence[np.ndarray]
  ) -> list[np.ndarray]:
    """Returns the sum of two sums, or of a sum and a contribution."""
    sums = []
    for a, b, bound in zip(left, right, self._bounds, strict=True):
      total = np.add(a, b, dtype=a.dtype)
      if self._kind == 'modulus' and bound & (bound - 1) == 0:
        # The remainder of a power of 2, in less than half of the time.
        total = np.bitwise_and(total, bound - 1, dtype=a.dtype)
      elif self._kind == 'modulus':
        # What is beyond the integer type is not needed.
        room = np.asarray(bound, a.dtype) - b
        total = np.where(a >= room, a - room, total)
      total = np.asarray(total, a.dtype)
      sums.append(total)
    return sums


def _largest(kind: str, bound: int, tensor_type: tff.TensorType) -> int:
  """Returns the largest value that a client may contribute."""
  limit = np.iinfo(tensor_type.dtype).max
  if bound < (1 if kind == 'modulus' else 0):
    raise ValueError(
      f'The {kind} of a secure sum must be positive, found {bound}.'
    )
  if kind == 'modulus' and bound > limit:
    raise ValueError(
      f'The modulus of a secure sum of {np.dtype(tensor_type.dtype)} must be '
      f'at most {limit}, found {bound}.'
    )
  if kind == 'bitwidth':
    # No value has more bits than its type.
    return 2 ** min(bound, 64) - 1
  return bound - 1 if kind == 'modulus' else bound


def _by_tensor(
  bounds: Iterator, bounds_type: tff.Type, value_type: tff.Type
) -> Iterator:
  """Yields the bound of each tensor of `value_type`."""
  if isinstance(bounds_type, tff.StructType):
    for element_type, part_type in zip(bounds_type, value_type, strict=True):
      yield from _by_tensor(bounds, element_type, part_type)
  else:
    bound = next(bounds)
    for _ in tff.structure.flatten(value_type):
      yield bound
