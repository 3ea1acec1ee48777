"""The accountants: what equal rounds of one mechanism cost together."""

import functools
import math
from collections.abc import Sequence

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  costs,
  privacy_loss,
  ranges,
  renyi,
  rounding,
  sampled_gaussian,
  truncated_poisson,
)

# The accountants whose answers are guarantees.
ACCOUNTANTS = ('rdp', 'pld')

_ALL_ACCOUNTANTS = (*ACCOUNTANTS, 'pld_one_sided')


class NoEpsilonError(ValueError):
  """There is no finite epsilon for so little noise, or for such bounds."""


def build_rounds(
  mechanism: sampled_gaussian.SampledGaussian, accountant: str
) -> costs.Rounds:
  """Returns what equal rounds of `mechanism` cost by an accountant.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
  """
  within_bounds = build_rounds_within_bounds(mechanism, accountant)
  if mechanism.sampling != 'truncated_poisson':
    return within_bounds
  return truncated_poisson.TruncatedRounds(
    within_bounds, truncated_poisson.compute_tail_prob(mechanism)
  )


def compose(
  parts: Sequence[tuple[sampled_gaussian.SampledGaussian, int]], accountant: str
) -> costs.Rounds:
  """Returns what rounds of several mechanisms cost together.

  Args:
    parts: Rounds, and how many of each. All under one relation.
    accountant: 'rdp' or 'pld'.

  Returns:
    All of them as one round.
  """
  build = {
    'rdp': renyi.RenyiRounds,
    'pld': privacy_loss.PrivacyLossRounds,
  }[check_guarantee(accountant)]
  composed = build(parts)
  tail_prob = sum(
    count * truncated_poisson.compute_tail_prob(mechanism)
    for mechanism, count in parts
    if mechanism.sampling == 'truncated_poisson'
  )
  return truncated_poisson.TruncatedRounds(composed, tail_prob)


def compute_epsilon(
  mechanism: sampled_gaussian.SampledGaussian,
  accountant: str,
  *,
  num_rounds: int,
  target_delta: float,
) -> float:
  """Returns the epsilon of so many rounds, an upper bound.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    num_rounds: Rounds, at least 1.
    target_delta: Delta, in (0, 1).

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
    NoEpsilonError: If there is no finite epsilon.
  """
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_delta = ranges.check_target_delta(target_delta)
  epsilon = build_rounds(mechanism, accountant).compute_epsilon(
    num_rounds, target_delta
  )
  if not math.isfinite(epsilon):
    raise NoEpsilonError(
      explain_no_epsilon(mechanism, accountant, num_rounds, target_delta)
    )
  return epsilon


def explain_no_epsilon(
  mechanism: sampled_gaussian.SampledGaussian,
  accountant: str,
  num_rounds: int,
  target_delta: float,
) -> str:
  """Returns why rounds have no finite epsilon.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    num_rounds: How many rounds.
    target_delta: The delta that was asked for.
  """
  if mechanism.sampling == 'truncated_poisson':
    within_bounds = build_rounds_within_bounds(mechanism, accountant)
    epsilon = within_bounds.compute_epsilon(
      num_rounds, truncated_poisson.without_tails(target_delta)
    )
    if math.isfinite(epsilon):
      return truncated_poisson.describe_narrow_bounds(
        mechanism, num_rounds, epsilon, target_delta
      )
  reason = (
    'The accountant has no finite epsilon for `noise_multiplier` '
    f'{mechanism.noise_multiplier:g} and `target_delta` {target_delta:g}.'
  )
  if accountant == 'rdp':
    return reason
  by_orders = build_rounds(mechanism, 'rdp').compute_epsilon(
    num_rounds, target_delta
  )
  if not math.isfinite(by_orders):
    return reason
  return (
    f"{reason} By the accountant 'rdp' it is {rounding.format_up(by_orders)}."
  )


@functools.lru_cache(maxsize=64)
def build_rounds_within_bounds(
  mechanism: sampled_gaussian.SampledGaussian, accountant: str
) -> costs.Rounds:
  """Returns what equal rounds cost if no cohort is out of bounds.

  Args:
    mechanism: One round.
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
  """
  if accountant == 'rdp':
    return renyi.RenyiRounds([(mechanism, 1)])
  return privacy_loss.PrivacyLossRounds(
    [(mechanism, 1)], one_sided=accountant == 'pld_one_sided'
  )


def check_guarantee(accountant: str) -> str:
  """Returns the accountant if its answers are guarantees.

  Args:
    accountant: 'rdp' or 'pld'.

  Raises:
    TypeError: If it is not a string.
    ValueError: If it is neither.
  """
  if accountant == 'pld_one_sided':
    raise ValueError(
      "`accountant` must be one of 'rdp', 'pld', found 'pld_one_sided', "
      'which is no guarantee for more than one round.'
    )
  return argument_checks.check_choice('accountant', accountant, ACCOUNTANTS)


def check_accountant(accountant: str, sampling: str) -> str:
  """Returns the accountant if it has an answer for this sampling.

  Args:
    accountant: 'rdp', 'pld' or 'pld_one_sided'.
    sampling: As of `CohortSampling`. 'paper' is only for plans: it has two
      epsilons.

  Raises:
    TypeError: If an argument is not a string.
    ValueError: If it is none of those, or they do not go together.
  """
  if sampling == 'paper':
    raise ValueError(
      "`sampling` 'paper' has two epsilons, the paper's and the one that its "
      "sampler really gives: build a `PrivacyPlan`, or take 'poisson' for the "
      "first and 'fixed_size' for the second, found 'paper'."
    )
  argument_checks.check_choice(
    'sampling', sampling, [*sampled_gaussian.RELATIONS]
  )
  accountant = argument_checks.check_choice(
    'accountant', accountant, _ALL_ACCOUNTANTS
  )
  if accountant == 'pld_one_sided' and sampling != 'fixed_size':
    raise ValueError(
      "`accountant` can be 'pld_one_sided' only where `sampling` is "
      f"'fixed_size', found {sampling!r}."
    )
  return accountant
