"""The cost of several runs with the same clients."""

import dataclasses
import math
from collections.abc import Sequence

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
  slack,
)
from tff_clipping.privacy.plans import words
from tff_clipping.privacy.plans.base_plan import BasePlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spending:
  """The cost of some runs for a client that is in the population of each.

  Attributes:
    epsilon: The epsilon of all their rounds together.
    target_delta: The delta of `epsilon`.
    relation: The neighbouring relation.
    accountant: 'rdp', 'pld', or 'gaussian', which is exact.
    num_releases: The releases of all of them.
  """

  epsilon: float
  target_delta: float
  relation: sampled_gaussian.Relation
  accountant: str
  num_releases: int

  @property
  def caveats(self) -> tuple[str, ...]:
    """Why no runs have the promise together, beside the caveats of each."""
    return ranges.list_caveats(
      self.target_delta, self.epsilon, self.num_releases
    )


def compose_together(
  runs: Sequence[tuple[BasePlan, int]],
  target_delta: float | None = None,
  *,
  accountant: str | None = None,
) -> Spending:
  """Returns the cost of the first rounds of some plans together.

  It is for a client that is in the population of each run, against an attacker
  who sees all releases. It is at least the cost of any run by this accountant,
  but for the last digits of 'pld', and mostly below the sum of their epsilons,
  which holds for the sum of their deltas. The order of the runs, and the models
  that they begin with, do not matter: composition is adaptive. The cost holds
  if all plans are fixed before the first run, and each run draws its cohorts
  independently.

  Args:
    runs: Plans, at least one, and how many rounds of each, at least 0. The
      plans may differ in all but the neighbouring relation.
    target_delta: The delta of the answer, in (0, 1); that of the plans if not
      given, which they must then have in common.
    accountant: One of `ACCOUNTANTS`. If not given, the accountant of the plans;
      if they have several, 'rdp' if it is among them, which also holds for
      noise in integers, else 'pld'. Beside 'random_allocation', for which 'rdp'
      has no bound, plans by 'rdp' with Poisson cohorts are added up by 'pld':
      their noise is not in integers.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If there are no plans, they have several relations or deltas, a
      plan has no cost for so many rounds, or the accountant has no bound for
      one of them or no finite epsilon.
  """
  if not runs:
    raise ValueError('`runs` must be at least one, found none.')
  plans = [plan for plan, _ in runs]
  relation = plans[0].relation
  for plan in plans:
    if plan.relation is not relation:
      raise ValueError(
        'plans must be of one neighbouring relation to be added up, found '
        f'{relation.value} and {plan.relation.value}: what they promise '
        'is not of one kind.'
      )
  if target_delta is None:
    target_delta = min(plan.target_delta for plan in plans)
    for plan in plans:
      if not slack.agree(plan.target_delta, target_delta):
        raise ValueError(
          '`target_delta` must be given where plans have several: found '
          f'{target_delta:g} and {plan.target_delta:g}.'
        )
  target_delta = ranges.check('target_delta', target_delta)
  if accountant is None:
    names = {plan.accountant for plan in plans}
    by_rdp = {plan.sampling for plan in plans if plan.accountant == 'rdp'}
    has_epochs = any(plan.sampling == 'random_allocation' for plan in plans)
    if has_epochs and by_rdp == {'poisson'}:
      names.discard('rdp')
    by_default = 'rdp' if 'rdp' in names else 'pld'
    accountant = names.pop() if len(names) == 1 else by_default
  accountants.check_accountant(accountant)
  parts: list[tuple[sampled_gaussian.SampledGaussian, int]] = []
  for plan, count in runs:
    argument_checks.check_integer(
      'runs', count, at_least=0, at_most=plan.max_rounds
    )
    parts += plan.parts(count) if count else ()
  epsilon = 0.0
  if parts:
    # Beside rounds that are sampled, 'pld' is exact for those that are not.
    cost = accountants.compose(parts, accountant)
    epsilon = cost.compute_epsilon(target_delta)
  if not math.isfinite(epsilon):
    raise accountants.NoEpsilonError(
      'The accountant has no finite epsilon for these runs together: their '
      'noise is too small.'
    )
  largest = max(plan.num_clients for plan in plans)
  ranges.warn_of_delta(target_delta, epsilon, largest)
  return Spending(
    epsilon=epsilon,
    target_delta=target_delta,
    relation=relation,
    accountant=accountant,
    num_releases=sum(count for _, count in runs),
  )


def describe_together(
  spent: Spending, num_runs: int, caveats: Sequence[str], needs: str
) -> str:
  """Returns what runs promise together, and where, with what else it needs."""
  guarantee = words.state_guarantee(
    spent.epsilon, spent.target_delta, spent.relation
  )
  text = (
    f'Together, the {spent.num_releases} releases of {num_runs} '
    f'run{"s" if num_runs > 1 else ""} satisfy client-level {guarantee}, by '
    f'{words.name_accountant(spent.accountant)}, for each client that is in '
    'the populations of all of them. This holds if the runs, their noise and '
    'their numbers of releases were fixed before the first run began.'
    f'{needs}'
  )
  if caveats:
    text = f'{words.state_caveats(caveats)} Without that: {text}'
  return text
