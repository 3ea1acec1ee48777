"""The accountants: the cost of rounds of some mechanisms together."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  gaussian_mechanism,
  privacy_loss,
  renyi,
  sampled_gaussian,
)


class ComposedCost(Protocol):
  """The cost of rounds together."""

  def compute_epsilon(self, delta: float) -> float:
    """Returns the epsilon of the rounds; inf if no finite one is known."""

  def compute_delta(self, epsilon: float) -> float:
    """Returns the delta of the rounds, in [0, 1]."""


class Accountant(NamedTuple):
  """How rounds are added up; its answers are guarantees.

  Attributes:
    compose: Returns the cost of rounds together, all under one relation.
    title: Its name in texts.
    unknown: The samplings that it has no bound for.
  """

  compose: Callable[[sampled_gaussian.Parts], ComposedCost]
  title: str
  unknown: tuple[str, ...] = ()


# A new accountant is a file with its `ComposedCost`, and an entry here.
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

  Raises:
    TypeError: If the accountant is not a string.
    ValueError: If it is none of `ACCOUNTANTS`, or does not know the sampling.
  """
  argument_checks.check_choice('accountant', accountant, [*TABLE])
  known = [name for name in TABLE if sampling not in TABLE[name].unknown]
  if accountant not in known:
    raise ValueError(
      f'`accountant` must be {" or ".join(map(repr, known))} where `sampling` '
      f'is {sampling!r}, found {accountant!r}, which has no bound for it.'
    )


def compose(parts: sampled_gaussian.Parts, accountant: str) -> ComposedCost:
  """Returns the cost of rounds of some mechanisms together.

  Errors are those of `check_accountant`.

  Args:
    parts: Mechanisms, at least one, of one relation, and the rounds of each.
    accountant: One of `ACCOUNTANTS`.
  """
  for mechanism, _ in parts:
    check_accountant(accountant, mechanism.sampling)
  return TABLE[accountant].compose(parts)
