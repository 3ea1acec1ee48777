"""The accountants: what rounds cost together, and the least noise for them."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  costs,
  noise_search,
  privacy_loss,
  renyi,
  rounding,
  sampled_gaussian,
)


class Accountant(NamedTuple):
  """How rounds are added up; its answers are guarantees.

  Attributes:
    compose: Returns what rounds cost together. It takes mechanisms and how many
      rounds of each, all under one relation.
    find_noise_multiplier: Returns the least noise. It takes `Cohorts`, rounds,
      an epsilon and a delta, all in their ranges.
    title: What a text calls it.
    unknown: The samplings that it has no bound for.
  """

  compose: Callable[..., costs.ComposedCost]
  find_noise_multiplier: Callable[
    [sampled_gaussian.Cohorts, int, float, float], float
  ]
  title: str
  unknown: tuple[str, ...]


# All that the package knows of an accountant. A new one is a file with its
# `ComposedCost`, and an entry here: with `search_noise_multiplier` and
# `functools.partial` it needs no search of its own.
TABLE = {
  'rdp': Accountant(
    renyi.RenyiCost,
    noise_search.search_by_orders,
    'Renyi differential privacy',
    unknown=('random_allocation',),
  ),
  'pld': Accountant(
    privacy_loss.PldCost,
    noise_search.search_by_grids,
    'privacy loss distributions',
    unknown=(),
  ),
}
ACCOUNTANTS = tuple(TABLE)


class NoEpsilonError(ValueError):
  """There is no finite epsilon for so little noise."""


def check_accountant(accountant: str) -> str:
  """Returns the accountant if there is one of this name.

  Args:
    accountant: 'rdp' or 'pld'.

  Raises:
    TypeError: If it is not a string.
    ValueError: If it is neither.
  """
  return argument_checks.check_choice('accountant', accountant, [*TABLE])


def list_for(sampling: str) -> tuple[str, ...]:
  """Returns the accountants that know a sampling.

  Args:
    sampling: As in `Cohorts`, or another one.
  """
  return tuple(
    name for name, each in TABLE.items() if sampling not in each.unknown
  )


def check_pair(sampling: str, accountant: str) -> None:
  """Raises unless an accountant knows a sampling.

  Args:
    sampling: As in `Cohorts`.
    accountant: 'rdp' or 'pld'.

  Raises:
    ValueError: If it does not.
  """
  known = list_for(sampling)
  if accountant not in known:
    raise ValueError(
      f'`accountant` must be {" or ".join(map(repr, known))} where `sampling` '
      f'is {sampling!r}, found {accountant!r}, which has no bound for it.'
    )


def compose(
  parts: Sequence[tuple[sampled_gaussian.SampledGaussian, int]], accountant: str
) -> costs.ComposedCost:
  """Returns what rounds of one or more mechanisms cost together.

  Args:
    parts: Rounds, and how many of each. All under one relation.
    accountant: 'rdp' or 'pld'.

  Returns:
    All of them as one round.

  Raises:
    ValueError: If the accountant does not know one of them.
  """
  check_accountant(accountant)
  for mechanism, _ in parts:
    check_pair(mechanism.cohorts.sampling, accountant)
  return TABLE[accountant].compose(parts)


def explain_no_epsilon(
  mechanism: sampled_gaussian.SampledGaussian,
  accountant: str,
  num_rounds: int,
  target_delta: float,
) -> str:
  """Returns why rounds have no finite epsilon.

  Args:
    mechanism: One round.
    accountant: 'rdp' or 'pld'.
    num_rounds: How many rounds.
    target_delta: The delta that was asked for.
  """
  reason = explain_little_noise(mechanism.noise_multiplier, target_delta)
  if accountant == 'rdp' or 'rdp' not in list_for(mechanism.cohorts.sampling):
    return reason
  by_orders = compose([(mechanism, 1)], 'rdp').compute_epsilon(
    num_rounds, target_delta
  )
  if not math.isfinite(by_orders):
    return reason
  return (
    f"{reason} By the accountant 'rdp' it is {rounding.format_up(by_orders)}."
  )


def explain_little_noise(noise_multiplier: float, target_delta: float) -> str:
  """Returns that there is no epsilon for so little noise."""
  return (
    'The accountant has no finite epsilon for `noise_multiplier` '
    f'{noise_multiplier:g} and `target_delta` {target_delta:g}.'
  )
