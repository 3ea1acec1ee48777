"""How many clients a round may have when they bring the noise in shares.

The shares of n clients add up to noise that tells n, and so whether a client
was there. Two public numbers, which may be the same, prevent that: the noise
that is released is that of the largest cohort, whatever n is, and a cohort
outside of the bounds is an error and no release.
"""

from typing import Any

import tensorflow as tf

from tff_clipping import argument_checks


def check_clients_per_round(clients_per_round: Any) -> float:
  """Returns P, by which a sum is divided, as a float.

  Args:
    clients_per_round: What the user passed.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not finite, or less than 1: a sum that is divided by
      less is longer than its clip.
  """
  number = argument_checks.check_positive(
    'clients_per_round', clients_per_round
  )
  if number < 1.0:
    raise ValueError(f'`clients_per_round` must be at least 1, found {number}.')
  return number


def check_cohort_bounds(
  min_clients_per_round: Any, max_clients_per_round: Any
) -> tuple[int, int]:
  """Returns the least and the largest cohort, 0 <= least <= largest.

  Args:
    min_clients_per_round: What the user passed. 0 allows an empty cohort.
    max_clients_per_round: What the user passed.

  Raises:
    TypeError: If one of them is not an integer.
    ValueError: If one is out of range, or the least is above the largest.
  """
  least = argument_checks.check_integer(
    'min_clients_per_round', min_clients_per_round, at_least=0
  )
  largest = argument_checks.check_integer(
    'max_clients_per_round', max_clients_per_round, at_least=1
  )
  if least > largest:
    raise ValueError(
      '`min_clients_per_round` must be at most `max_clients_per_round`, found '
      f'{least} and {largest}.'
    )
  return least, largest


def check_cohort(
  num_clients: tf.Tensor, least: int, largest: int
) -> list[tf.Operation]:
  """Returns what fails in a graph if a cohort is out of bounds.

  What is released must depend on these operations.

  Args:
    num_clients: The clients that took part, an `int32` scalar.
    least: The least cohort.
    largest: The largest cohort.
  """
  return [
    tf.debugging.assert_greater_equal(
      num_clients,
      least,
      message='A cohort below `min_clients_per_round`: nothing is released.',
    ),
    tf.debugging.assert_less_equal(
      num_clients,
      largest,
      message='A cohort above `max_clients_per_round`: nothing is released.',
    ),
  ]
