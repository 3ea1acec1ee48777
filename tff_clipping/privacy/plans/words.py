"""Privacy in sentences: relations, promises, caveats and plans.

One table of the neighbouring relations, and functions of plain values and of
plans. All figures are rounded to the side on which they hold.
"""

import importlib.metadata
import math
from collections.abc import Sequence
from typing import NamedTuple

import tff_clipping
from tff_clipping.privacy.accounting import (
  accountants,
  rounding,
  sampled_gaussian,
)
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan
from tff_clipping.privacy.plans.plan import PrivacyPlan


class _Words(NamedTuple):
  """Parts of sentences about a neighbouring relation."""

  change: str  # After "with respect to".
  neighbours: str
  cases: str  # The two cases that nobody can tell apart.
  attack: str  # With the false-positive and the true-positive rate.


RELATIONS = {
  sampled_gaussian.Relation.ADD_OR_REMOVE_ONE: _Words(
    change='adding or removing one client',
    neighbours='two sets of clients that differ in one client, which is there '
    'or not',
    cases='whether a client takes part with all of its data, or not at all',
    attack='wrongly names at most {wrong} % of the clients that did not take '
    'part, names at most {right} % of those that did',
  ),
  sampled_gaussian.Relation.REPLACE_ONE: _Words(
    change='replacing one client by another',
    neighbours='two sets of as many clients that differ in one client, which '
    'another one replaces',
    cases='whether a client takes part with all of its data, or another client '
    'in its place',
    attack='takes another client for this one in at most {wrong} % of the '
    'cases, recognises this one in at most {right} %',
  ),
  sampled_gaussian.Relation.ZERO_OUT: _Words(
    change='zeroing out one client',
    neighbours='two sets of the same clients, one of which sends zeros in one '
    'of them in all rounds in which it takes part',
    cases='whether a client takes part with all of its data, or sends zeros in '
    'all of its rounds',
    attack='wrongly names at most {wrong} % of the clients that sent zeros, '
    'names at most {right} % of those that did not',
  ),
}

# Above this, the factor by which a probability may grow says nothing.
_LARGEST_EPSILON = 20.0


def state_guarantee(
  epsilon: float,
  target_delta: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns epsilon and delta with their neighbouring relation."""
  return (
    f'({rounding.format_up(epsilon)}, '
    f'{rounding.format_up(target_delta, digits=6)})-differential privacy with '
    f'respect to {RELATIONS[relation].change}'
  )


def state_promise(
  epsilon: float,
  target_delta: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns the promise of epsilon and delta as a sentence."""
  if epsilon > _LARGEST_EPSILON:
    return (
      f'In words: an epsilon of {rounding.format_up(epsilon)} promises next to '
      'nothing.'
    )
  return (
    f'In words: {RELATIONS[relation].cases}, the probability of any '
    'result that is published is in one case at most '
    f'{rounding.format_up(math.exp(epsilon))} times that in the other, plus '
    f'{rounding.format_up(target_delta, digits=6)}.'
  )


def state_attack(
  true_positive_rate: float,
  false_positive_rate: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns the largest true-positive rate of any attack as a sentence."""
  attack = RELATIONS[relation].attack.format(
    wrong=f'{100 * false_positive_rate:g}',
    right=rounding.format_up(100 * true_positive_rate, digits=3),
  )
  return (
    f'An attacker who knows everything else, and {attack} (the true-positive '
    'rate).'
  )


def state_caveats(caveats: Sequence[str]) -> str:
  """Returns caveats as one sentence."""
  return f'No guarantee as it was run: {"; ".join(caveats)}.'


def count_rounds(num_rounds: int) -> str:
  """Returns a number of rounds, with its noun."""
  return '1 round' if num_rounds == 1 else f'{num_rounds} rounds'


def name_accountant(accountant: str) -> str:
  """Returns the name of an accountant with the packages that compute it."""
  title = accountants.TABLE[accountant].title
  if accountant == 'gaussian':
    return title
  packages = [f'tff-clipping {tff_clipping.__version__}']
  if accountant == 'rdp':
    version = importlib.metadata.version('dp-accounting')
    packages.append(f'dp-accounting {version}')
  return f'{title} ({", ".join(packages)})'


def describe_plan(plan: BasePlan, caveats: Sequence[str] = ()) -> str:
  """Returns a plan in sentences that one could put into a paper.

  Args:
    plan: The plan.
    caveats: Why a run of the plan does not have its guarantee, in main clauses
      without a full stop. They come first, with those of the plan itself.

  Raises:
    TypeError: If `plan` is neither of the two kinds.
  """
  if isinstance(plan, CorrelatedNoisePlan):
    text = _describe_correlated(plan)
  elif isinstance(plan, PrivacyPlan):
    text = _describe_independent(plan)
  else:
    raise TypeError(
      '`plan` must be a PrivacyPlan or a CorrelatedNoisePlan, found '
      f'{type(plan).__name__}.'
    )
  guarantee = state_guarantee(plan.epsilon, plan.target_delta, plan.relation)
  text = (
    f'Training for {count_rounds(plan.num_rounds)} satisfies client-level '
    f'{guarantee}: {text}'
  )
  caveats = tuple(dict.fromkeys((*plan.caveats, *caveats)))
  return f'{state_caveats(caveats)} The plan: {text}' if caveats else text


def describe_tightest(plan: BasePlan) -> str:
  """Returns the epsilon by 'pld' as a sentence; '' if it is not smaller."""
  if plan.accountant != 'rdp':
    return ''
  tightest = rounding.format_up(plan.tightest_epsilon)
  if tightest == rounding.format_up(plan.epsilon):
    return ''
  return (
    f'The same noise and rounds cost epsilon {tightest} by {state_pld([plan])}'
  )


def state_pld(plans: Sequence[BasePlan]) -> str:
  """Returns the end of a sentence: that 'pld' is proved too, and its flag."""
  # With these, noise in shares may be of integers.
  in_shares = any(plan.sampling in ('fixed_size', 'none') for plan in plans)
  return (
    f'{accountants.TABLE["pld"].title}, which is proved too'
    f'{" (but for noise in integers)" if in_shares else ""}: --accountant=pld.'
  )


def _describe_independent(plan: BasePlan) -> str:
  """Returns the rounds of a plan with independent noise."""
  ((one, _),) = plan.parts(plan.num_rounds)
  return (
    f'in each round {_describe_cohort(one)} and Gaussian noise of '
    'standard deviation '
    f'{rounding.format_down(plan.noise_multiplier, digits=6)} times the '
    'clipping norm is added to the sum of the clipped updates; accounted for '
    f'by {name_accountant(plan.accountant)}.'
  )


def _describe_correlated(plan: CorrelatedNoisePlan) -> str:
  """Returns the rounds of a plan with correlated noise."""
  ((one, most),) = plan.parts(plan.num_rounds)
  clients, cohort = plan.num_clients, plan.clients_per_round
  if plan.is_amplified:
    who = (
      f'the {clients} clients are in {plan.min_separation} fixed groups that '
      'take turns, each client of a group takes part in its turn independently '
      f'with probability {one.sampling_prob:.6g} ({cohort} '
      'expected), in secret'
    )
    mechanism = f'as {most} Poisson-sampled Gaussian mechanisms'
    end = f', by {name_accountant(plan.accountant)}.'
  else:
    most = plan.max_participations
    times = 'once' if most == 1 else f'{most} times'
    who = (
      f'up to {cohort} of the {clients} clients take part in a round, a client '
      f'takes part at most once in any {plan.min_separation} consecutive '
      f'rounds, {times} at most'
    )
    mechanism = 'exactly as one Gaussian mechanism'
    end = '. Nothing is assumed to be secret or random about who takes part.'
  return (
    f'{who}, and the sum of the clipped updates has '
    f'{plan.strategy.describe()}, whose draws have a standard deviation of '
    f'{rounding.format_down(plan.noise_multiplier, digits=6)} times the '
    f'clipping norm; accounted for {mechanism}, which one client changes by '
    f'{rounding.format_up(plan.sensitivity)} times the clipping norm{end}'
  )


def _describe_cohort(one: sampled_gaussian.SampledGaussian) -> str:
  """Returns the cohort of a round."""
  if one.sampling == 'none':
    return f'all {one.num_clients} clients take part'
  if one.sampling == 'random_allocation':
    return (
      f'each of the {one.num_clients} clients takes part if it has drawn '
      f'this one of the {one.rounds_per_epoch} rounds of an epoch '
      f'uniformly and in secret ({one.clients_per_round} expected)'
    )
  if one.sampling == 'fixed_size':
    return (
      f'{one.clients_per_round} of the {one.num_clients} clients are '
      'drawn uniformly without replacement'
    )
  return (
    f'each of the {one.num_clients} clients takes part independently with '
    f'probability {one.sampling_prob:.6g} ({one.clients_per_round} '
    'expected)'
  )
