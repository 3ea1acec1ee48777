"""The accountants: what rounds of some mechanisms cost together."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  gaussian_mechanism,
  privacy_loss,
  renyi,
  rounding,
  sampled_gaussian,
)


class ComposedCost(Protocol):
  """What rounds cost together."""

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon of the rounds; inf if it is not known."""

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of the rounds, in [0, 1]."""


class Accountant(NamedTuple):
  """How rounds are added up; its answers are guarantees.

  Attributes:
    compose: Returns what rounds cost together, all under one relation.
    title: What a text calls it.
    unknown: The samplings that it has no bound for.
  """

  compose: Callable[[sampled_gaussian.Parts], ComposedCost]
  title: str
  unknown: tuple[str, ...] = ()


# All that the package knows of an accountant. A new one is a file with its
# `ComposedCost`, and an entry here.
TABLE = {
  'rdp': Accountant(
    renyi.RenyiCost,
    'Renyi differential privacy',
    unknown=('random_allocation',),
  ),
  'pld': Accountant(privacy_loss.PldCost, 'privacy loss distributions'),
  'gaussian': Accountant(
    gaussian_mechanism.GaussianCost,
    'the exact curve of a Gaussian mechanism',
    unknown=('poisson', 'fixed_size', 'random_allocation'),
  ),
}
ACCOUNTANTS = tuple(TABLE)


class NoEpsilonError(ValueError):
  """There is no finite epsilon for so little noise."""


def check_accountant(accountant: str, sampling: str | None = None) -> None:
  """Raises unless there is such an accountant, and it knows a sampling.

  Args:
    accountant: One of `ACCOUNTANTS`.
    sampling: As in `Cohorts`; `None` for no sampling in particular.

  Raises:
    TypeError: If the accountant is not a string.
    ValueError: If there is no such accountant, or it does not know the
      sampling.
  """
  argument_checks.check_choice('accountant', accountant, [*TABLE])
  known = [name for name in TABLE if sampling not in TABLE[name].unknown]
  if accountant not in known:
    raise ValueError(
      f'`accountant` must be {" or ".join(map(repr, known))} where `sampling` '
      f'is {sampling!r}, found {accountant!r}, which has no bound for it.'
    )


def compose(parts: sampled_gaussian.Parts, accountant: str) -> ComposedCost:
  """Returns what rounds of one or more mechanisms cost together.

  Args:
    parts: Rounds, and how many of each, at least one. All under one relation.
    accountant: One of `ACCOUNTANTS`.

  Raises:
    TypeError: As `check_accountant` does.
    ValueError: As `check_accountant` does.
  """
  for mechanism, _ in parts:
    check_accountant(accountant, mechanism.cohorts.sampling)
  return TABLE[accountant].compose(parts)


def explain_no_epsilon(
  parts: sampled_gaussian.Parts,
  accountant: str,
  *,
  noise_multiplier: float,
  target_delta: float,
) -> str:
  """Returns why rounds have no finite epsilon.

  Args:
    parts: The rounds.
    accountant: The accountant that has none.
    noise_multiplier: The noise that was asked for.
    target_delta: The delta that was asked for.
  """
  reason = (
    'The accountant has no finite epsilon for `noise_multiplier` '
    f'{noise_multiplier:g} and `target_delta` {target_delta:g}.'
  )
  samplings = {mechanism.cohorts.sampling for mechanism, _ in parts}
  if accountant == 'rdp' or samplings & {*TABLE['rdp'].unknown}:
    return reason
  by_orders = compose(parts, 'rdp').compute_epsilon(target_delta)
  if not math.isfinite(by_orders):
    return reason
  return (
    f"{reason} By the accountant 'rdp' it is {rounding.format_up(by_orders)}."
  )
