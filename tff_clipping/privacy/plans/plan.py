"""A privacy plan: sampler, noise, relation and accountant as one object.

Its constructors (`from_target_epsilon`, ...) and what aggregators take of it
are in `base_plan`, which correlated noise has too.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  costs,
  ranges,
  sampled_gaussian,
  search,
)
from tff_clipping.privacy.plans import base_plan, obligations, plan_text

# 'paper' draws cohorts of a fixed size and is charged as Poisson sampling.
SAMPLINGS = ('poisson', 'random_allocation', 'fixed_size', 'none', 'paper')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(base_plan.BasePlan):
  """How cohorts are drawn, how much noise is added, and what that costs.

  A plan cannot pair a sampler with the event of another one, with one exception
  that has a name: `sampling='paper'` draws cohorts of a fixed size, as the
  paper's experiments do, and charges them as Poisson samples, as the paper's
  accounting does. Its `epsilon` is the paper's figure and holds for Poisson
  sampling only; `actual_epsilon`, which every description shows beside it, is
  what the cohorts that are really drawn give.

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
      round of each epoch, drawn by itself), 'fixed_size', 'none' or 'paper'.
    accountant: 'rdp' or 'pld'; 'pld' for 'random_allocation'.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, or `num_rounds` rounds cost
      more than `target_epsilon`.
  """

  sampling: str = 'poisson'
  accountant: str = 'rdp'

  @property
  def allows_new_draws(self) -> bool:
    """Whether a round may be run again with another cohort and other noise.

    Not under 'random_allocation', where the rounds of an epoch are one draw.
    """
    return self.sampling != 'random_allocation'

  @property
  def sampling_prob(self) -> float:
    """The paper's q = P / N: a client's chance to be in a round."""
    return self._charged.cohorts.sampling_prob

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return self._charged.cohorts.relation

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """What is charged for `num_rounds` rounds, for an accountant of `relation`.

    Under 'paper' it is the paper's Poisson event, not that of the sampler.
    """
    return dp_accounting.SelfComposedDpEvent(
      self._charged.dp_event,
      self._charged.cohorts.count_epochs(self.num_rounds),
    )

  @property
  def max_rounds(self) -> int:
    """The most rounds that are accounted for."""
    return ranges.MAX_ROUNDS

  def actual_epsilon_after(self, num_rounds: int) -> float:
    """Returns what the sampler really gives after so many rounds; 0 for none.

    It differs from `epsilon_after` under 'paper' only. There it is that of
    fixed-size cohorts under replace-one, the relation under which their cost is
    known, by 'pld', the tightest accountant that is proved for them, or by
    'rdp' where 'pld' has no answer (an epsilon in the hundreds).

    Args:
      num_rounds: As in `epsilon_after`.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or above `max_rounds`.
    """
    if self.sampling != 'paper':
      return self.epsilon_after(num_rounds)
    num_rounds = self._check_num_rounds(num_rounds)
    return self._account_for_drawn(num_rounds).epsilon if num_rounds else 0.0

  @property
  def running_sum_error(self) -> float:
    """Of independent noise; see the base class."""
    # The sum of t rounds has t variances of one; on average, (T + 1) / 2.
    return self.noise_multiplier * math.sqrt((self.num_rounds + 1) / 2)

  @property
  def actual_relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `actual_epsilon` is for."""
    return self._drawn.cohorts.relation

  def released_mechanism(
    self, num_rounds: int
  ) -> tuple[sampled_gaussian.SampledGaussian, int]:
    """Returns one round, and how many; see the base class."""
    return self._drawn, num_rounds

  @property
  def sampler_parameters(self) -> obligations.SamplerParameters:
    """What a sampler of clients has to do."""
    scheme = 'fixed_size' if self.sampling == 'paper' else self.sampling
    size = self.clients_per_round if scheme in ('fixed_size', 'none') else None
    return obligations.SamplerParameters(
      scheme, self.num_clients, self.sampling_prob, size
    )

  @property
  def share_parameters(self) -> obligations.ShareParameters:
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
    return obligations.ShareParameters(
      self.noise_multiplier, cohort, cohort - more, cohort + more
    )

  @classmethod
  def _find_noise(cls, given: dict[str, Any]) -> 'PrivacyPlan':
    _check_accountant(given)
    found = search.find_noise_multiplier(
      _build_cohorts(given),
      given['accountant'],
      num_rounds=given['num_rounds'],
      target_epsilon=given['target_epsilon'],
      target_delta=given['target_delta'],
    )
    return cls(**{**given, 'noise_multiplier': found})

  @classmethod
  def _find_rounds(cls, given: dict[str, Any]) -> 'PrivacyPlan':
    target_epsilon = ranges.check_target_epsilon(given['target_epsilon'])
    target_delta = ranges.check_target_delta(given['target_delta'])
    _check_accountant(given)
    cohorts, noise_multiplier = _build_cohorts(given), given['noise_multiplier']
    mechanism = sampled_gaussian.SampledGaussian(cohorts, noise_multiplier)
    cost = accountants.compose([(mechanism, 1)], given['accountant'])
    found = search.search_rounds_within(
      lambda num_rounds: cost.compute_epsilon(num_rounds, target_delta),
      noise_multiplier=noise_multiplier,
      target_epsilon=target_epsilon,
      most=ranges.MAX_ROUNDS,
      unit=cohorts.rounds_per_epoch,
    )
    if found > ranges.MAX_ROUNDS - cohorts.rounds_per_epoch:
      raise ValueError(
        f'`noise_multiplier` {noise_multiplier:g} allows more than '
        f'{ranges.MAX_ROUNDS} rounds within `target_epsilon` '
        f'{target_epsilon:g}: give fewer rounds, or less noise.'
      )
    return cls(**{**given, 'num_rounds': found})

  @classmethod
  def _find_largest_cohort(cls, given: dict[str, Any]) -> int:
    if given['sampling'] == 'none':
      raise ValueError(
        '`sampling` must be one that draws cohorts where `clients_per_round` '
        "is to be found, found 'none'."
      )
    if given['sampling'] == 'random_allocation':
      raise ValueError(
        '`clients_per_round` must be given where `sampling` is '
        "'random_allocation', found none: only those that divide the "
        'population have a plan.'
      )
    return ranges.check_population(given['num_clients'], 1)[0]

  def _check_attributes(self) -> dict[str, Any]:
    _check_accountant(vars(self))
    return {
      'num_rounds': ranges.check_num_rounds(self.num_rounds),
      'target_delta': ranges.check_target_delta(self.target_delta),
      'num_clients': self._charged.cohorts.num_clients,
      'clients_per_round': self._charged.cohorts.clients_per_round,
      'noise_multiplier': self._charged.noise_multiplier,
    }

  def _compute_epsilon(self, num_rounds: int) -> float:
    return self._cost.compute_epsilon(num_rounds, self.target_delta)

  def _explain_no_epsilon(self) -> str:
    return accountants.explain_no_epsilon(
      self._charged,
      self.accountant,
      self.num_rounds,
      self.target_delta,
    )

  def _describe(self) -> str:
    is_paper = self.sampling == 'paper'
    return plan_text.describe(
      plan_text.Account(self._charged, self.accountant, self.epsilon),
      num_rounds=self.num_rounds,
      target_delta=self.target_delta,
      drawn=self._account_for_drawn(self.num_rounds) if is_paper else None,
    )

  def _derive(self) -> dict[str, Any]:
    return {'sampling_prob': self.sampling_prob}

  @functools.cached_property
  def _charged(self) -> sampled_gaussian.SampledGaussian:
    """One round as it is charged, from attributes that it checks."""
    return sampled_gaussian.SampledGaussian(
      _build_cohorts(vars(self)), self.noise_multiplier
    )

  @functools.cached_property
  def _drawn(self) -> sampled_gaussian.SampledGaussian:
    """One round as it is drawn."""
    if self.sampling != 'paper':
      return self._charged
    cohorts = dataclasses.replace(self._charged.cohorts, sampling='fixed_size')
    return dataclasses.replace(self._charged, cohorts=cohorts)

  @functools.cached_property
  def _cost(self) -> costs.ComposedCost:
    """What rounds cost as they are charged."""
    return accountants.compose([(self._charged, 1)], self.accountant)

  def _account_for_drawn(self, num_rounds: int) -> plan_text.Account:
    """Returns what the cohorts that 'paper' draws cost."""
    for accountant in ('pld', 'rdp'):
      cost = accountants.compose([(self._drawn, 1)], accountant)
      epsilon = cost.compute_epsilon(num_rounds, self.target_delta)
      if math.isfinite(epsilon):
        break
    return plan_text.Account(self._drawn, accountant, epsilon)


def _charge_as(sampling: str) -> str:
  """Returns the sampler that a plan is charged for."""
  argument_checks.check_choice('sampling', sampling, SAMPLINGS)
  return 'poisson' if sampling == 'paper' else sampling


def _check_accountant(attributes: Mapping[str, Any]) -> None:
  """Raises unless there is such an accountant, and it knows the sampling."""
  accountants.check_accountant(attributes['accountant'])
  sampling = _charge_as(attributes['sampling'])
  accountants.check_pair(sampling, attributes['accountant'])


def _build_cohorts(attributes: Mapping[str, Any]) -> sampled_gaussian.Cohorts:
  """Returns the cohorts that a plan is charged for."""
  return sampled_gaussian.Cohorts(
    sampling=_charge_as(attributes['sampling']),
    num_clients=attributes['num_clients'],
    clients_per_round=attributes['clients_per_round'],
  )
