"""One round of DP-FedAvg as a mechanism: sampler, noise, relation, DpEvent.

A round draws a cohort, clips each client's update to a norm c, and adds
Gaussian noise of standard deviation z c to the sum. How much that costs depends
on how the cohort is drawn, and each sampler has one neighbouring relation under
which its amplification is known. They are held together here, so that no caller
can pair the event of one sampler with the cohorts of another.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import TypeAlias

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges


class Relation(enum.Enum):
  """When two populations of clients are neighbours.

  ADD_OR_REMOVE_ONE: One has a client more. The sum of clipped updates changes
    by at most the clipping norm c.
  REPLACE_ONE: One client is exchanged for another. The sum changes by at most
    2 c. It is the stronger relation: an epsilon for it protects against more
    than the same epsilon for the other.
  ZERO_OUT: One client sends zeros in place of its updates. The sum changes by
    at most c. The number of clients, and who comes when, are public.
  """

  ADD_OR_REMOVE_ONE = 'add_or_remove_one'
  REPLACE_ONE = 'replace_one'
  ZERO_OUT = 'zero_out'

  @property
  def sensitivity_factor(self) -> int:
    """By how many clipping norms one client can change the sum: 1 or 2."""
    return 2 if self is Relation.REPLACE_ONE else 1

  @property
  def accountant_relation(self) -> dp_accounting.NeighboringRelation:
    """The name that dp_accounting has for this relation."""
    name = 'REPLACE_SPECIAL' if self is Relation.ZERO_OUT else self.name
    return dp_accounting.NeighboringRelation[name]


# The samplers whose cost is known, and the relation for which it is.
# 'none': every client takes part in every round.
RELATIONS = {
  'poisson': Relation.ADD_OR_REMOVE_ONE,
  'fixed_size': Relation.REPLACE_ONE,
  'none': Relation.ADD_OR_REMOVE_ONE,
  'random_allocation': Relation.ADD_OR_REMOVE_ONE,
}


@dataclasses.dataclass(frozen=True)
class RandomAllocationDpEvent(dp_accounting.DpEvent):
  """An epoch of `num_rounds` rounds; each client is in a secret one of them.

  dp_accounting has no accountant for this event.
  """

  num_rounds: int
  event: dp_accounting.DpEvent


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledGaussian:
  """One round: a sampler, and Gaussian noise on the sum of clipped updates.

  Attributes:
    sampling: 'poisson': each client joins independently, with probability
      clients_per_round / num_clients. 'fixed_size': a uniformly random set of
      exactly clients_per_round clients, without replacement. 'none': all
      clients. 'random_allocation': each client draws one round of each epoch of
      num_clients / clients_per_round rounds; see `random_allocation`.
    num_clients: The paper's N.
    clients_per_round: The paper's P, for 'poisson' and 'random_allocation' the
      expected number.
    noise_multiplier: Standard deviation of the noise on the sum, divided by the
      clipping norm, under every relation.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range; or the cohort is larger than
      the population, is not the population under 'none', or does not divide it
      under 'random_allocation'.
  """

  sampling: str
  num_clients: int
  clients_per_round: int
  noise_multiplier: float

  def __post_init__(self):
    argument_checks.check_choice('sampling', self.sampling, [*RELATIONS])
    num_clients, clients_per_round = ranges.check_population(
      self.num_clients, self.clients_per_round
    )
    if self.sampling == 'none' and clients_per_round != num_clients:
      raise ValueError(
        '`clients_per_round` must equal `num_clients` '
        f"({num_clients}) when `sampling` is 'none', found {clients_per_round}."
      )
    if self.sampling == 'random_allocation':
      _check_epoch(num_clients, clients_per_round)
    for name, value in {
      'num_clients': num_clients,
      'clients_per_round': clients_per_round,
      'noise_multiplier': argument_checks.check_positive(
        'noise_multiplier', self.noise_multiplier
      ),
    }.items():
      object.__setattr__(self, name, value)

  @property
  def relation(self) -> Relation:
    """The neighbouring relation for which this sampler's cost is known."""
    return RELATIONS[self.sampling]

  @property
  def sampling_prob(self) -> float:
    """The paper's q = P / N: the chance of a client to be in a round."""
    return self.clients_per_round / self.num_clients

  @property
  def rounds_per_epoch(self) -> int:
    """The rounds that one draw of a client is for: b, or 1."""
    if self.sampling != 'random_allocation':
      return 1
    return self.num_clients // self.clients_per_round

  def count_epochs(self, num_rounds: int) -> int:
    """Returns the draws of the first rounds; a begun epoch is one."""
    return -(-num_rounds // self.rounds_per_epoch)

  @property
  def noise_over_sensitivity(self) -> float:
    """What accountants call a noise multiplier: z, or z/2 under replace-one.

    A client that is replaced can move the sum from -c to c. No accountant
    halves z by itself.
    """
    return self.noise_multiplier / self.relation.sensitivity_factor

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """The event of one round; under 'random_allocation' that of an epoch."""
    gaussian = dp_accounting.GaussianDpEvent(self.noise_over_sensitivity)
    if self.sampling == 'poisson':
      return dp_accounting.PoissonSampledDpEvent(self.sampling_prob, gaussian)
    if self.sampling == 'fixed_size':
      return dp_accounting.SampledWithoutReplacementDpEvent(
        source_dataset_size=self.num_clients,
        sample_size=self.clients_per_round,
        event=gaussian,
      )
    if self.sampling == 'random_allocation':
      return RandomAllocationDpEvent(self.rounds_per_epoch, gaussian)
    return gaussian


# Rounds of some mechanisms, and how many of each.
Parts: TypeAlias = Sequence[tuple[SampledGaussian, int]]


def _check_epoch(num_clients: int, clients_per_round: int) -> None:
  """Raises unless an epoch has a number of rounds that is accounted for."""
  rounds, rest = divmod(num_clients, clients_per_round)
  if rest:
    raise ValueError(
      '`clients_per_round` must divide `num_clients` where `sampling` is '
      f"'random_allocation', found {clients_per_round} of {num_clients}."
    )
  if rounds > ranges.MAX_ROUNDS:
    raise ValueError(
      '`clients_per_round` must be at least `num_clients` / '
      f"{ranges.MAX_ROUNDS} where `sampling` is 'random_allocation', found "
      f'{clients_per_round} of {num_clients}: so long an epoch is not '
      'accounted for.'
    )
