"""A privacy plan for noise that is independent in each round.

Its constructors (`from_target_epsilon`, ...) and what aggregators take of it
are in `base_plan`, which correlated noise has too.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
)
from tff_clipping.privacy.plans import base_plan

SAMPLINGS = tuple(sampled_gaussian.RELATIONS)


class SamplerParameters(NamedTuple):
  """What a sampler of clients has to do for the plan's figures to hold.

  Attributes:
    scheme: 'poisson', 'random_allocation', 'fixed_size' or 'none'.
    num_clients: The population to draw from.
    sampling_prob: Each client's chance to be in a round. Under 'poisson' the
      clients' draws are independent and a cohort may be empty. Under
      'random_allocation' each client draws one of the 1 / sampling_prob rounds
      of each epoch, independently of all others.
    cohort_size: The exact size of a cohort; None under 'poisson' and
      'random_allocation'.
  """

  scheme: str
  num_clients: int
  sampling_prob: float
  cohort_size: int | None


class ShareParameters(NamedTuple):
  """What an aggregator needs whose noise comes in shares of the clients.

  The noise of m shares is what the plan charges; what is released has that of M
  shares in every round.

  Attributes:
    noise_multiplier: z, the noise of m shares over the clipping norm.
    clients_per_round: P, the constant by which the noisy sum is divided.
    min_clients_per_round: m, the least cohort of the population and of its
      neighbours.
    max_clients_per_round: M, the largest.
  """

  noise_multiplier: float
  clients_per_round: int
  min_clients_per_round: int
  max_clients_per_round: int

  @property
  def share_multiplier(self) -> float:
    """z / sqrt(m): the noise of one client over the clipping norm.

    An empty cohort sends nothing, so that m = 0 counts as m = 1.
    """
    return self.noise_multiplier / math.sqrt(max(self.min_clients_per_round, 1))

  @property
  def release_multiplier(self) -> float:
    """z sqrt(M / m): the noise on the sum that is released, over the norm."""
    return self.share_multiplier * math.sqrt(self.max_clients_per_round)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(base_plan.BasePlan):
  """How cohorts are drawn, how much noise is added, and what that costs.

  No plan pairs a sampler with the event of another one.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the cohort (expected, for 'poisson' and
      'random_allocation'; of the latter it must divide `num_clients`).
    num_rounds: The paper's T, the rounds that the plan is made for. Under
      'random_allocation' the epoch that is begun last is charged as a whole.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm c, whatever the relation: sigma_sum =
      noise_multiplier * c. The accountant of the replace-one relation, where a
      client changes the sum by up to 2c, is given half of it.
    sampling: 'poisson', 'random_allocation' (each client comes in one secret
      round of each epoch, drawn by itself), 'fixed_size' or 'none'.
    accountant: 'rdp' or 'pld'; 'pld' for 'random_allocation'; for 'none' also
      'gaussian', which is exact.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, or `num_rounds` rounds cost
      more than `target_epsilon`.
  """

  sampling: str = 'poisson'
  accountant: str = 'rdp'

  def parts(self, num_rounds: int) -> sampled_gaussian.Parts:
    """Returns one round, and how many; see the base class."""
    return ((self._round, num_rounds),)

  @property
  def allows_new_draws(self) -> bool:
    """Not under 'random_allocation', where an epoch is one draw."""
    return self.sampling != 'random_allocation'

  @property
  def sampling_prob(self) -> float:
    """The paper's q = P / N: a client's chance to be in a round."""
    return self._round.cohorts.sampling_prob

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return self._round.cohorts.relation

  @property
  def max_rounds(self) -> int:
    """The most rounds that are accounted for."""
    return ranges.MAX_ROUNDS

  @property
  def running_sum_error(self) -> float:
    """Of independent noise; see the base class."""
    # The sum of t rounds has t variances of one; on average, (T + 1) / 2.
    return self.noise_multiplier * math.sqrt((self.num_rounds + 1) / 2)

  @property
  def sampler_parameters(self) -> SamplerParameters:
    """What a sampler of clients has to do."""
    has_size = self.sampling in ('fixed_size', 'none')
    return SamplerParameters(
      self.sampling,
      self.num_clients,
      self.sampling_prob,
      self.clients_per_round if has_size else None,
    )

  @property
  def share_parameters(self) -> ShareParameters:
    """What an aggregator has to add if the clients bring shares of the noise.

    Its bounds hold for the population and for its neighbours: where all clients
    take part, one client less and one more.

    Raises:
      ValueError: If `sampling` is 'poisson' or 'random_allocation', whose
        cohorts have no bounds: the shares of a cohort would tell its size.
    """
    if self.sampling in ('poisson', 'random_allocation'):
      raise ValueError(
        "`sampling` must be 'fixed_size' where the noise comes in shares, "
        f'found {self.sampling!r}: without a largest cohort the noise tells '
        'how many clients took part.'
      )
    cohort = self.clients_per_round
    # Those of neighbours, where all take part.
    more = 1 if self.sampling == 'none' else 0
    return ShareParameters(
      self.noise_multiplier, cohort, cohort - more, cohort + more
    )

  def _check_attributes(self) -> dict[str, Any]:
    cohorts = self._round.cohorts
    accountants.check_accountant(self.accountant, cohorts.sampling)
    return {
      'num_rounds': ranges.check_count('num_rounds', self.num_rounds),
      'num_clients': cohorts.num_clients,
      'clients_per_round': cohorts.clients_per_round,
    }

  @functools.cached_property
  def _round(self) -> sampled_gaussian.SampledGaussian:
    """One round, from attributes that it checks."""
    cohorts = sampled_gaussian.Cohorts(
      sampling=self.sampling,
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round,
    )
    return sampled_gaussian.SampledGaussian(cohorts, self.noise_multiplier)
