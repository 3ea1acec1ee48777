"""Privacy plans in sentences that one could put into a paper."""

import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import tff_clipping
from tff_clipping.privacy.accounting import (
  accountants,
  rounding,
  sampled_gaussian,
)

if TYPE_CHECKING:
  from tff_clipping.privacy.plans import base_plan, correlated_plan

_RELATIONS = {
  sampled_gaussian.Relation.ADD_OR_REMOVE_ONE: 'adding or removing one client',
  sampled_gaussian.Relation.REPLACE_ONE: 'replacing one client by another',
  sampled_gaussian.Relation.ZERO_OUT: 'zeroing out one client',
}


class Account(NamedTuple):
  """What a plan's rounds cost.

  Attributes:
    mechanism: One round.
    accountant: 'rdp' or 'pld'.
    epsilon: Of all rounds, at the plan's delta.
  """

  mechanism: sampled_gaussian.SampledGaussian
  accountant: str
  epsilon: float


def describe(
  charged: Account,
  *,
  num_rounds: int,
  target_delta: float,
  drawn: Account | None = None,
) -> str:
  """Returns what is done in each round, and what it guarantees.

  Args:
    charged: What is charged for.
    num_rounds: The rounds of the plan.
    target_delta: The delta of each epsilon.
    drawn: What is really drawn, if that is something else.
  """
  mechanism = charged.mechanism
  rounds = count_rounds(num_rounds)
  noise = (
    'Gaussian noise of standard deviation '
    f'{rounding.format_down(mechanism.noise_multiplier, digits=6)} times the '
    'clipping norm is added to the '
    'sum of the clipped updates'
  )
  if drawn is None:
    return (
      f'Training for {rounds} satisfies client-level '
      f'{_guarantee(charged, target_delta)}: in each round '
      f'{_describe_cohort(mechanism.cohorts)} and {noise}; accounted for by '
      f'{name_accountant(charged.accountant)}.'
    )
  return (
    f'In each of {rounds}, '
    f'{_describe_cohort(drawn.mechanism.cohorts)} and {noise}. '
    'Charged as in the paper, as if each client took part '
    f'independently with probability {mechanism.cohorts.sampling_prob:.6g}, '
    f'this is epsilon = {rounding.format_up(charged.epsilon)} at delta = '
    f'{rounding.format_up(target_delta, digits=6)} by '
    f'{name_accountant(charged.accountant)}; that figure does not hold for '
    f'these cohorts. What holds is client-level '
    f'{_guarantee(drawn, target_delta)}, by '
    f'{name_accountant(drawn.accountant)}.'
  )


def describe_correlated(plan: 'correlated_plan.CorrelatedNoisePlan') -> str:
  """Returns what a plan with correlated noise does, and what it guarantees.

  Args:
    plan: The plan.
  """
  most = plan.max_participations
  clients, cohort = plan.num_clients, plan.clients_per_round
  if plan.cohorts.is_amplified:
    who = (
      f'the {clients} clients are in {plan.min_separation} fixed groups that '
      'take turns, each client of a group takes part in its turn independently '
      f'with probability {plan.cohorts.turn.sampling_prob:.6g} ({cohort} '
      'expected), in secret'
    )
    mechanism = f'as {most} Poisson-sampled Gaussian mechanisms'
    end = f', by {name_accountant(plan.accountant)}.'
  else:
    times = 'once' if most == 1 else f'{most} times'
    who = (
      f'up to {cohort} of the {clients} clients take part in a round, a client '
      f'takes part at most once in any {plan.min_separation} consecutive '
      f'rounds, {times} at most'
    )
    mechanism = 'exactly as one Gaussian mechanism'
    end = '. Nothing is assumed to be secret or random about who takes part.'
  guarantee = state_guarantee(plan.epsilon, plan.target_delta, plan.relation)
  return (
    f'Training for {count_rounds(plan.num_rounds)} satisfies client-level '
    f'{guarantee}: {who}, and the sum of the clipped updates has '
    f'{plan.strategy.describe()}, whose draws have a standard deviation of '
    f'{rounding.format_down(plan.noise_multiplier, digits=6)} times the '
    f'clipping norm; accounted for {mechanism}, which one client changes by '
    f'{rounding.format_up(plan.sensitivity)} times the clipping norm{end}'
  )


def add_caveats(text: str, caveats: Sequence[str]) -> str:
  """Returns a plan's description after what takes its guarantee away.

  Args:
    text: The description.
    caveats: Why a run does not have the guarantee, in main clauses without a
      full stop.
  """
  return f'{state_caveats(caveats)} The plan: {text}' if caveats else text


def state_caveats(caveats: Sequence[str]) -> str:
  """Returns what takes a guarantee away, as a sentence."""
  return f'No guarantee as it was run: {"; ".join(caveats)}.'


def name_accountant(accountant: str) -> str:
  """Returns the name of an accountant, and of the packages that compute it.

  Args:
    accountant: 'rdp', whose orders are turned into an epsilon by dp-accounting;
      'pld', which this package composes; or 'gaussian', which is exact.
  """
  if accountant == 'gaussian':
    return 'the exact curve of a Gaussian mechanism'
  packages = [f'tff-clipping {tff_clipping.__version__}']
  if accountant == 'rdp':
    version = importlib.metadata.version('dp-accounting')
    packages.append(f'dp-accounting {version}')
  return f'{accountants.TABLE[accountant].title} ({", ".join(packages)})'


def state_tightest(plan: 'base_plan.BasePlan') -> str:
  """Returns what the tightest accountant charges, in a sentence.

  Args:
    plan: The plan.

  Returns:
    A sentence; '' if the plan's own accountant shows no more, or its epsilon is
    not for the cohorts that are drawn.
  """
  if plan.sampling == 'paper' or plan.accountant != 'rdp':
    return ''
  tightest = rounding.format_up(plan.tightest_epsilon)
  if tightest == rounding.format_up(plan.epsilon):
    return ''
  return (
    f'The same noise and rounds cost epsilon {tightest} by {state_pld([plan])}'
  )


def state_pld(plans: Sequence['base_plan.BasePlan']) -> str:
  """Returns that 'pld' is proved too, and for what not, as a sentence's end.

  Args:
    plans: What is charged by 'rdp', some of it at least.
  """
  # The sampling of noise in shares, which may be integers.
  unless = ''
  if any(p.sampling == 'fixed_size' for p in plans):
    unless = ' (but for noise in integers)'
  return (
    f'{accountants.TABLE["pld"].title}, which is proved too{unless}: '
    '--accountant=pld.'
  )


def count_rounds(num_rounds: int) -> str:
  """Returns a number of rounds, with its noun."""
  return '1 round' if num_rounds == 1 else f'{num_rounds} rounds'


def state_guarantee(
  epsilon: float,
  target_delta: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns epsilon, delta and the neighbours that they are for.

  Args:
    epsilon: Epsilon.
    target_delta: Delta.
    relation: When two populations are neighbours.
  """
  return (
    f'({rounding.format_up(epsilon)}, '
    f'{rounding.format_up(target_delta, digits=6)})-differential privacy with '
    f'respect to {_RELATIONS[relation]}'
  )


def _guarantee(account: Account, target_delta: float) -> str:
  """Returns what an account guarantees."""
  return state_guarantee(
    account.epsilon, target_delta, account.mechanism.cohorts.relation
  )


def _describe_cohort(cohorts: sampled_gaussian.Cohorts) -> str:
  """Returns who takes part in a round."""
  if cohorts.sampling == 'none':
    return f'all {cohorts.num_clients} clients take part'
  if cohorts.sampling == 'random_allocation':
    return (
      f'each of the {cohorts.num_clients} clients takes part if it has drawn '
      f'this one of the {cohorts.rounds_per_epoch} rounds of an epoch '
      f'uniformly and in secret ({cohorts.clients_per_round} expected)'
    )
  if cohorts.sampling == 'fixed_size':
    return (
      f'{cohorts.clients_per_round} of the {cohorts.num_clients} clients are '
      'drawn uniformly without replacement'
    )
  return (
    f'each of the {cohorts.num_clients} clients takes part independently with '
    f'probability {cohorts.sampling_prob:.6g} ({cohorts.clients_per_round} '
    'expected)'
  )
