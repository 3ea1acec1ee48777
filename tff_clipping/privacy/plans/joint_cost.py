"""What several runs cost together that are planned for the same clients."""

import dataclasses
import math
from collections.abc import Sequence

from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
  slack,
)
from tff_clipping.privacy.plans import base_plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointCost:
  """What some runs cost a client that is in the population of each.

  Attributes:
    epsilon: Of all their rounds together, for the cohorts that are drawn.
    target_delta: The delta of `epsilon`.
    relation: The neighbouring relation.
    accountant: 'rdp', 'pld', or 'gaussian', which is exact.
    num_rounds: The rounds of all of them.
  """

  epsilon: float
  target_delta: float
  relation: sampled_gaussian.Relation
  accountant: str
  num_rounds: int


def compute_joint_cost(
  plans: Sequence[base_plan.BasePlan],
  *,
  target_delta: float | None = None,
  accountant: str | None = None,
) -> JointCost:
  """Returns what all rounds of some plans cost together.

  It is more than any of them alone, and less than the sum of their epsilons,
  which would hold for the sum of their deltas. It holds where all of the plans
  are settled before the first run, and the cohorts of each run are drawn
  independently of the others.

  Args:
    plans: What is planned, at least one; they may differ in all but the
      neighbouring relation.
    target_delta: The delta of the answer, in (0, 1); that of the plans if not
      given, which they must then have in common.
    accountant: 'rdp' or 'pld'; that of the plans if not given, and 'rdp' if
      they differ and one is charged by it.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If there are no plans, or they are of several relations or
      deltas, or the accountant has no bound for one of them or no finite
      epsilon.
  """
  if not plans:
    raise ValueError('`plans` must be at least one, found none.')
  relation = plans[0].actual_relation
  for plan in plans:
    if plan.actual_relation is not relation:
      raise ValueError(
        '`plans` must be of one neighbouring relation to be added up, found '
        f'{relation.value} and {plan.actual_relation.value}: what they promise '
        'is not of one kind.'
      )
  if target_delta is None:
    target_delta = plans[0].target_delta
    for plan in plans:
      if not slack.agree(plan.target_delta, target_delta):
        raise ValueError(
          f'`target_delta` must be given where plans have several, found '
          f'{target_delta:g} and {plan.target_delta:g}.'
        )
  target_delta = ranges.check_target_delta(target_delta)
  if accountant is None:
    accountant = choose_accountant(plans)
  else:
    accountants.check_accountant(accountant)
  parts = [plan.released_mechanism(plan.num_rounds) for plan in plans]
  epsilon = compose_parts(parts, accountant, target_delta)
  return JointCost(
    epsilon=epsilon,
    target_delta=target_delta,
    relation=relation,
    accountant=accountant,
    num_rounds=sum(plan.num_rounds for plan in plans),
  )


def choose_accountant(plans: Sequence[base_plan.BasePlan]) -> str:
  """Returns the accountant that adds plans up.

  Args:
    plans: If they have one accountant, it is that. If they differ, it is 'rdp'
      where one of them is charged by it, which holds for noise in integers too.
  """
  # What the cohorts of 'paper' really cost is by 'pld'.
  names = {
    'pld' if plan.sampling == 'paper' else plan.accountant for plan in plans
  }
  if len(names) == 1:
    return names.pop()
  return 'rdp' if 'rdp' in names else 'pld'


def compose_parts(
  parts: Sequence[tuple[sampled_gaussian.SampledGaussian, int]],
  accountant: str,
  target_delta: float,
) -> float:
  """Returns the epsilon of rounds of several mechanisms together.

  Args:
    parts: Mechanisms, and how many rounds of each; 0 is the cost of none.
    accountant: 'rdp', 'pld' or 'gaussian'.
    target_delta: Its delta.

  Raises:
    NoEpsilonError: If there is no finite epsilon.
    ValueError: If the accountant has no bound for one of them.
  """
  if not parts:
    return 0.0
  # 'gaussian' is what 'pld' does with releases that are not sampled.
  composed = accountants.compose(
    parts, 'pld' if accountant == 'gaussian' else accountant
  )
  return check_finite(composed.compute_epsilon(1, target_delta))


def check_finite(epsilon: float) -> float:
  """Returns an epsilon if it is finite.

  Args:
    epsilon: That of several runs together.

  Raises:
    NoEpsilonError: If it is not.
  """
  if not math.isfinite(epsilon):
    raise accountants.NoEpsilonError(
      'The accountant has no finite epsilon for these runs together: their '
      'noise is too small.'
    )
  return epsilon
