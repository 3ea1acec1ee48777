"""What plans have in common whose clients keep a distance between rounds."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from tff_clipping.privacy.accounting import ranges, sampled_gaussian
from tff_clipping.privacy.correlated_noise import separated_sampling
from tff_clipping.privacy.plans import base_plan, obligations, plan_search

_Plan = TypeVar('_Plan', bound='SeparatedPlan')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparatedPlan(base_plan.BasePlan):
  """A plan whose clients come back after some rounds at the earliest.

  A subclass has the attribute `min_separation`, says why a round is not run
  again with other clients, and how many rounds of a client cost.
  """

  @property
  def allows_new_draws(self) -> bool:
    """False: see the class for the reason."""
    return False

  @functools.cached_property
  def cohorts(self) -> separated_sampling.SeparatedCohorts:
    """Who comes when, from attributes that it checks."""
    return self._build_cohorts(vars(self))

  @property
  def max_participations(self) -> int:
    """k, the most rounds in which one client takes part."""
    return self.cohorts.participation.count(self.num_rounds)

  @property
  def sampler_parameters(self) -> obligations.SeparatedSamplerParameters:
    """What a sampler of clients has to do."""
    return obligations.SeparatedSamplerParameters(
      scheme=self.sampling,
      num_clients=self.num_clients,
      cohort_size=self.clients_per_round,
      min_separation=self.cohorts.min_separation,
    )

  @classmethod
  def _build_cohorts(
    cls, attributes: Mapping[str, Any]
  ) -> separated_sampling.SeparatedCohorts:
    """Returns who comes when, by the attributes of a plan."""
    fields = dataclasses.fields(separated_sampling.SeparatedCohorts)
    return separated_sampling.SeparatedCohorts(
      **{field.name: attributes[field.name] for field in fields}
    )

  @classmethod
  def _find_rounds(cls: type[_Plan], given: dict[str, Any]) -> _Plan:
    target_epsilon = ranges.check_target_epsilon(given['target_epsilon'])
    # Of one round, unless the kind of plan says how many.
    plan = cls(**{'num_rounds': 1, **given, 'target_epsilon': None})
    return plan_search.with_most_rounds(plan, target_epsilon, plan.max_rounds)

  def _release_once(
    self, noise_over_sensitivity: float
  ) -> tuple[sampled_gaussian.SampledGaussian, int]:
    """Returns all rounds as one Gaussian release, without sampling."""
    everybody = sampled_gaussian.Cohorts(
      sampling='none',
      num_clients=self.num_clients,
      clients_per_round=self.num_clients,
    )
    release = sampled_gaussian.SampledGaussian(
      everybody, noise_over_sensitivity
    )
    return release, 1
