"""Privacy plans in sentences that one could put into a paper."""

import importlib.metadata
from collections.abc import Sequence
from typing import NamedTuple

from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import (
  accountants,
  rounding,
  sampled_gaussian,
)

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


class CorrelatedAccount(NamedTuple):
  """What a plan with correlated noise does, and what that costs.

  Attributes:
    num_clients: The paper's N.
    clients_per_round: The paper's P.
    num_rounds: The paper's T.
    noise_multiplier: Standard deviation of a draw over the clipping norm.
    strategy: How the noise of a round depends on those before.
    sensitivity: By how many clipping norms one client changes what is noised.
    max_participations: The most rounds in which one client takes part, or the
      turns of its group.
    relation: The neighbouring relation.
    epsilon: Of all rounds.
    target_delta: The delta of `epsilon`.
    accountant: 'gaussian', or 'pld' where secret draws lower the cost.
  """

  num_clients: int
  clients_per_round: int
  num_rounds: int
  noise_multiplier: float
  strategy: correlated_noise.NoiseStrategy
  sensitivity: float
  max_participations: int
  relation: sampled_gaussian.Relation
  epsilon: float
  target_delta: float
  accountant: str


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
    f'In each of {rounds}, {_describe_cohort(drawn.mechanism.cohorts)} and '
    f'{noise}. Charged as in the paper, as if each client took part '
    f'independently with probability {mechanism.cohorts.sampling_prob:.6g}, '
    f'this is epsilon = {rounding.format_up(charged.epsilon)} at delta = '
    f'{rounding.format_up(target_delta, digits=6)} by '
    f'{name_accountant(charged.accountant)}; that figure does not hold for '
    'these cohorts. What holds is client-level '
    f'{_guarantee(drawn, target_delta)}, by '
    f'{name_accountant(drawn.accountant)}.'
  )


def describe_public(
  account: CorrelatedAccount, participation: correlated_noise.Participation
) -> str:
  """Returns the description where everybody may know who comes when.

  Args:
    account: What is done and what it costs.
    participation: The rounds in which a client may take part.
  """
  limit = (
    f'at most once in any {participation.min_separation} consecutive rounds'
  )
  if participation.rounds_per_epoch is not None:
    limit = (
      f'once in each epoch of {participation.rounds_per_epoch} rounds, in a '
      'shuffled order'
    )
  most = account.max_participations
  times = 'once' if most == 1 else f'{most} times'
  text = _describe_correlated(
    account,
    cohorts=(
      f'up to {account.clients_per_round} of the {account.num_clients} clients '
      f'take part in a round, a client takes part {limit}, {times} at most'
    ),
    mechanism='exactly as one Gaussian mechanism',
  )
  return (
    f'{text}. Nothing is assumed to be secret or random about who takes part.'
  )


def describe_amplified(
  account: CorrelatedAccount,
  *,
  num_groups: int,
  sampling_prob: float,
) -> str:
  """Returns the description where a secret draw within groups lowers the cost.

  Args:
    account: What is done and what it costs.
    num_groups: The groups that take turns.
    sampling_prob: The chance of a client of the group whose turn it is.
  """
  text = _describe_correlated(
    account,
    cohorts=(
      f'the {account.num_clients} clients are in {num_groups} fixed groups '
      'that take turns, each client of a group takes part in its turn '
      f'independently with probability {sampling_prob:.6g} '
      f'({account.clients_per_round} expected), in secret'
    ),
    mechanism=(
      f'as {account.max_participations} Poisson-sampled Gaussian mechanisms'
    ),
  )
  return f'{text}, by {name_accountant(account.accountant)}.'


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
  """Returns the name of an accountant, and the version of its package.

  Args:
    accountant: 'rdp', 'pld' or 'gaussian', which is ours and exact.
  """
  if accountant == 'gaussian':
    return 'the exact curve of a Gaussian mechanism'
  version = importlib.metadata.version('dp-accounting')
  return f'{accountants.TABLE[accountant].title} (dp-accounting {version})'


def count_rounds(num_rounds: int) -> str:
  """Returns a number of rounds, with its noun."""
  return '1 round' if num_rounds == 1 else f'{num_rounds} rounds'


def state_guarantee(
  epsilon: float, target_delta: float, relation: sampled_gaussian.Relation
) -> str:
  """Returns epsilon, delta and the neighbours that they are for."""
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


def _describe_correlated(
  account: CorrelatedAccount, cohorts: str, mechanism: str
) -> str:
  """Returns what both have in common, without the full stop."""
  guarantee = state_guarantee(
    account.epsilon, account.target_delta, account.relation
  )
  return (
    f'Training for {count_rounds(account.num_rounds)} satisfies '
    f'client-level {guarantee}: {cohorts}, and the sum of the clipped updates '
    f'has {account.strategy.describe()}, whose draws have a standard deviation '
    f'of {rounding.format_down(account.noise_multiplier, digits=6)} times the '
    f'clipping norm; accounted for {mechanism}, which one client changes by '
    f'{rounding.format_up(account.sensitivity)} times the clipping norm'
  )


def _describe_cohort(cohorts: sampled_gaussian.Cohorts) -> str:
  """Returns who takes part in a round."""
  if cohorts.sampling == 'none':
    return f'all {cohorts.num_clients} clients take part'
  if cohorts.sampling == 'fixed_size':
    return (
      f'{cohorts.clients_per_round} of the {cohorts.num_clients} clients are '
      'drawn uniformly without replacement'
    )
  bounds = ''
  if cohorts.sampling == 'truncated_poisson':
    bounds = (
      f'; a cohort outside of {cohorts.min_clients_per_round} to '
      f'{cohorts.max_clients_per_round} clients is filled up or cut at random'
    )
  return (
    f'each of the {cohorts.num_clients} clients takes part independently with '
    f'probability {cohorts.sampling_prob:.6g} ({cohorts.clients_per_round} '
    f'expected{bounds})'
  )
