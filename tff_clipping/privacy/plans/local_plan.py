"""A privacy plan for noise that each client adds to its own reports."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import dp_accounting

from tff_clipping.privacy.accounting import (
  gaussian_mechanism,
  ranges,
  sampled_gaussian,
)
from tff_clipping.privacy.correlated_noise import separated_sampling
from tff_clipping.privacy.plans import (
  noise_summary,
  plan_search,
  plan_text,
  separated_plan,
)

# How far apart any two clipped updates are, in clipping norms.
_SENSITIVITY = 2
_SAMPLING = 'min_separation'


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalPlan(separated_plan.SeparatedPlan):
  """How often a client reports, how much noise it adds, and what that costs.

  A client clips its update to c, adds Gaussian noise of standard deviation z c,
  and reports the result: `local_dp_mean_factory`. `epsilon` holds against
  everybody, the server included, for any two updates that a client might have,
  which are 2 c apart. The k reports of one client are together one Gaussian
  mechanism of multiplier z / (2 sqrt(k)), also where later updates depend on
  earlier reports (arXiv 2202.08312, Theorem 2.1). Who reports, and when, is
  public.

  k is bounded by who is asked: fixed groups take turns, and a client comes back
  after `min_separation` rounds at the earliest. A round that was charged is not
  run again: its clients have reported. A round is charged when all of them
  have; that some did before a program was killed in between, no ledger knows.

  Refused, because a server that gets a client's report knows whose it is: less
  cost by sampling in secret, and so any sampler but this. Nor are there weights
  or an unbounded k.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, how many report in a round.
    num_rounds: The paper's T, the rounds that the plan is made for.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: z, the standard deviation of the noise of one report over
      the clipping norm c.
    min_separation: b. From one report of a client to its next there are at
      least so many rounds; at most N / P.
    sampling: 'min_separation' alone.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, the population is too small for
      the cohorts and the separation, `sampling` is another, or `num_rounds`
      rounds cost more than `target_epsilon`.
  """

  min_separation: int
  sampling: str = _SAMPLING

  @property
  def max_reports(self) -> int:
    """k, the most reports of one client."""
    return self.max_participations

  @property
  def accountant(self) -> str:
    """'gaussian', the exact curve of one Gaussian mechanism."""
    return 'gaussian'

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return sampled_gaussian.Relation.REPLACE_ONE

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """What is charged for `num_rounds` rounds: one Gaussian event."""
    return dp_accounting.GaussianDpEvent(
      self._over_sensitivity(self.num_rounds)
    )

  @property
  def max_rounds(self) -> int:
    """The most rounds that are accounted for."""
    return ranges.MAX_ROUNDS

  @property
  def running_sum_error(self) -> float:
    """Of the sum of all reports of the rounds; see the base class."""
    rounds = math.sqrt((self.num_rounds + 1) / 2)
    return self._sum_multiplier * rounds

  @functools.cached_property
  def secure_sum_epsilon(self) -> float:
    """What the same run promises to who sees the sums of the reports alone.

    The noise of P reports is then on each sum. It takes for granted that all P
    report, that the other clients add their noise, and that nobody, the server
    included, sees a report by itself.
    """
    return gaussian_mechanism.gaussian_epsilon(
      self._over_sensitivity(self.num_rounds)
      * math.sqrt(self.clients_per_round),
      self.target_delta,
    )

  def released_mechanism(
    self, num_rounds: int
  ) -> tuple[sampled_gaussian.SampledGaussian, int]:
    """Returns the reports of one client as one release; see the base class."""
    return self._release_once(self._over_sensitivity(num_rounds))

  def summarize_noise(
    self, *, clipping_norm: float = 1.0, model_size: int | None = None
  ) -> noise_summary.NoiseSummary:
    """Returns how large the noise of P reports is on their sum and mean."""
    return noise_summary.summarize_noise(
      noise_multiplier=self._sum_multiplier,
      clients_per_round=self.clients_per_round,
      clipping_norm=clipping_norm,
      model_size=model_size,
    )

  @classmethod
  def _build_cohorts(
    cls, attributes: Mapping[str, Any]
  ) -> separated_sampling.SeparatedCohorts:
    sampling = attributes['sampling']
    if sampling != _SAMPLING:
      raise ValueError(
        f'`sampling` must be {_SAMPLING!r} for a LocalPlan, found '
        f'{sampling!r}: no sampling hides a client from a server that gets its '
        'report, and turns bound how often it reports.'
      )
    return super()._build_cohorts(attributes)

  @classmethod
  def _find_noise(cls, given: dict[str, Any]) -> 'LocalPlan':
    cohorts = cls._build_cohorts(given)
    num_rounds = ranges.check_num_rounds(given['num_rounds'])
    exact = gaussian_mechanism.gaussian_noise_multiplier(
      given['target_epsilon'], given['target_delta']
    )
    reports = cohorts.participation.count(num_rounds)
    return plan_search.with_least_noise(
      cls, given, _SENSITIVITY * math.sqrt(reports) * exact
    )

  @classmethod
  def _find_largest_cohort(cls, given: dict[str, Any]) -> int:
    raise ValueError(
      '`clients_per_round` must be given for a LocalPlan, found none: the '
      'noise of a report does not depend on how many there are.'
    )

  def _check_attributes(self) -> dict[str, Any]:
    return {
      **dataclasses.asdict(self.cohorts),
      'num_rounds': ranges.check_num_rounds(self.num_rounds),
      'target_delta': ranges.check_target_delta(self.target_delta),
      'noise_multiplier': ranges.check_noise_multiplier(self.noise_multiplier),
    }

  def _compute_epsilon(self, num_rounds: int) -> float:
    return gaussian_mechanism.gaussian_epsilon(
      self._over_sensitivity(num_rounds), self.target_delta
    )

  def _describe(self) -> str:
    return plan_text.describe_local(self)

  def _derive(self) -> dict[str, Any]:
    return {
      'mechanism': 'local',
      'max_reports': self.max_reports,
      'accountant': self.accountant,
      'secure_sum_epsilon': self.secure_sum_epsilon,
    }

  @property
  def _sum_multiplier(self) -> float:
    """The noise of P reports on their sum, over the clipping norm."""
    return self.noise_multiplier * math.sqrt(self.clients_per_round)

  def _over_sensitivity(self, num_rounds: int) -> float:
    """Returns the noise over what a client's reports differ by at most."""
    reports = self.cohorts.participation.count(num_rounds)
    return self.noise_multiplier / (_SENSITIVITY * math.sqrt(reports))
