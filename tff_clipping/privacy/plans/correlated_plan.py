"""The privacy plan of noise that is correlated between rounds."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from tff_clipping.privacy.accounting import ranges, sampled_gaussian
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.correlated_noise.noise_strategy import (
  NoiseStrategy,
  Participation,
)
from tff_clipping.privacy.plans import base_plan


class SeparatedSamplerParameters(NamedTuple):
  """The cohorts that a sampler must draw for the plan's figures to hold.

  Attributes:
    scheme: 'min_separation' or 'grouped_poisson'.
    num_clients: The population to draw from.
    cohort_size: The most clients in a cohort, for 'grouped_poisson' the
      expected number.
    min_separation: The least number of rounds from one participation of a
      client to its next.
  """

  scheme: str
  num_clients: int
  cohort_size: int
  min_separation: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedNoisePlan(base_plan.BasePlan):
  """When clients take part, how the noise is correlated, and the cost.

  All rounds together are one Gaussian mechanism, under zeroing out one client:
  in one of two neighbouring populations, one client sends zeros in all rounds
  in which it takes part. The participants of each round are public, so that
  sampling amplifies nothing. The cohorts must not depend on the updates.

  Under 'grouped_poisson' alone, the draws are secret. The noise of a round
  depends on fewer than b rounds before it, so that the participations of a
  client share no noise. A run then costs as much as Poisson sampling from one
  group alone, in as many rounds as a group has turns.

  No round is run again with other clients: later rounds take back its noise. A
  run with a new draw of the noise would not be the mechanism that is charged.

  Attributes:
    clients_per_round: The paper's P, the most clients in a cohort; the expected
      number under 'grouped_poisson'.
    num_rounds: The paper's T, at most the rounds of `strategy`, and all of them
      if not given.
    noise_multiplier: Standard deviation of a draw over the clipping norm c, as
      `correlated_dp_mean_factory` takes it. The noise of one round is larger.
    strategy: How the noise of a round depends on the rounds before.
    min_separation: b, the least number of rounds from one participation of a
      client to its next.
    sampling: 'min_separation': b groups of clients take turns.
      'grouped_poisson': the same, and each client of the group joins its turn
      independently, with probability P b / N; for strategies of at most b bands
      alone.

  The other attributes are those of `BasePlan`.

  Raises:
    TypeError: As for `BasePlan`.
    ValueError: As for `BasePlan`; or if the population is too small for the
      cohorts and the separation, the sensitivity of the strategy is not known,
      or it is not banded under 'grouped_poisson'.

  Source: arXiv 2202.08312, Theorem 2.1 (one Gaussian mechanism, also where the
    updates depend on what was released); 2306.08153 (participation, and its
    Theorem 4 for 'grouped_poisson').
  """

  strategy: NoiseStrategy
  num_rounds: int = None  # type: ignore[assignment]
  min_separation: int = 1
  sampling: str = 'min_separation'

  def parts(self, num_rounds: int) -> sampled_gaussian.Parts:
    """Returns one mechanism, or a turn of a group; see the base class."""
    noise = self.noise_multiplier / self._compute_sensitivity(num_rounds)
    cohort, count = self.num_clients, 1
    if self.is_amplified:
      cohort = self.clients_per_round * self.min_separation
      count = self.participation.count(num_rounds)
    mechanism = sampled_gaussian.SampledGaussian(
      sampling='poisson' if self.is_amplified else 'none',
      num_clients=self.num_clients,
      clients_per_round=cohort,
      noise_multiplier=noise,
    )
    return ((mechanism, count),)

  @property
  def is_amplified(self) -> bool:
    """Whether the draws from a group are secret, and lower the cost."""
    return self.sampling == 'grouped_poisson'

  @property
  def participation(self) -> Participation:
    """The rounds in which the sampler lets one client take part."""
    return Participation(min_separation=self.min_separation)

  @property
  def max_participations(self) -> int:
    """k, the most rounds in which one client takes part."""
    return self.participation.count(self.num_rounds)

  @property
  def sampler_parameters(self) -> SeparatedSamplerParameters:
    """The cohorts that a sampler of clients must draw."""
    return SeparatedSamplerParameters(
      scheme=self.sampling,
      num_clients=self.num_clients,
      cohort_size=self.clients_per_round,
      min_separation=self.min_separation,
    )

  @property
  def accountant(self) -> str:
    """'gaussian'; under 'grouped_poisson', where turns are composed, 'pld'."""
    return 'pld' if self.is_amplified else 'gaussian'

  @property
  def allows_new_draws(self) -> bool:
    """False: the rounds have noise in common."""
    return False

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return sampled_gaussian.Relation.ZERO_OUT

  @property
  def sensitivity(self) -> float:
    """The largest change by one client, in clipping norms.

    It is of the whole run; under 'grouped_poisson', of one participation.
    """
    return self._compute_sensitivity(self.num_rounds)

  @property
  def max_rounds(self) -> int:
    """The rounds of the strategy: there is no noise for more."""
    return self.strategy.num_rounds

  @property
  def running_sum_error(self) -> float:
    """Of the strategy's noise; see the base class."""
    variances = self.strategy.compute_prefix_variances()[: self.num_rounds]
    return self.noise_multiplier * math.sqrt(np.mean(variances))

  def _compute_sensitivity(self, num_rounds: int) -> float:
    """Returns the sensitivity of the first rounds."""
    if not self.is_amplified:
      return self.strategy.compute_sensitivity(self.participation, num_rounds)
    return self.strategy.compute_sensitivity(
      Participation(min_separation=self.max_rounds, max_participations=1)
    )

  def _check_attributes(self) -> dict[str, Any]:
    checked = by_name.check_cohorts(
      self.sampling,
      self.num_clients,
      self.clients_per_round,
      self.min_separation,
    )
    if not isinstance(self.strategy, NoiseStrategy):
      raise TypeError(
        f'`strategy` must be a NoiseStrategy, found {self.strategy!r}.'
      )
    bands = getattr(self.strategy, 'num_bands', None)
    if self.is_amplified and (bands is None or bands > self.min_separation):
      raise ValueError(
        '`strategy` must be banded, with at most `min_separation` = '
        f"{self.min_separation} bands, where `sampling` is 'grouped_poisson', "
        f'found {self.strategy}: no other is known to gain from sampling.'
      )
    num_rounds = self.max_rounds if self.num_rounds is None else self.num_rounds
    checked['num_rounds'] = ranges.check_count(
      'num_rounds', num_rounds, self.max_rounds
    )
    return checked
