"""A plan with correlated noise in sentences that one could put into a paper."""

from typing import NamedTuple

from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import rounding, sampled_gaussian
from tff_clipping.privacy.plans import plan_text


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
  text = _describe(
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
  accountant: str,
) -> str:
  """Returns the description where a secret draw within groups lowers the cost.

  Args:
    account: What is done and what it costs.
    num_groups: The groups that take turns.
    sampling_prob: The chance of a client of the group whose turn it is.
    accountant: 'rdp' or 'pld'.
  """
  text = _describe(
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
  return f'{text}, by {plan_text.name_accountant(accountant)}.'


def _describe(account: CorrelatedAccount, cohorts: str, mechanism: str) -> str:
  """Returns what both have in common, without the full stop."""
  guarantee = plan_text.state_guarantee(
    account.epsilon, account.target_delta, account.relation
  )
  return (
    f'Training for {plan_text.count_rounds(account.num_rounds)} satisfies '
    f'client-level {guarantee}: {cohorts}, and the sum of the clipped updates '
    f'has {account.strategy.describe()}, whose draws have a standard deviation '
    f'of {rounding.format_down(account.noise_multiplier, digits=6)} times the '
    f'clipping norm; accounted for {mechanism}, which one client changes by '
    f'{rounding.format_up(account.sensitivity)} times the clipping norm'
  )
