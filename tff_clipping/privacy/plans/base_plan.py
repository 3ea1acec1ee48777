"""What every privacy plan has: constructors, and what its rounds cost."""

import abc
import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  rounding,
  sampled_gaussian,
  slack,
  solve,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy

if TYPE_CHECKING:
  from typing_extensions import Unpack

_Plan = TypeVar('_Plan', bound='BasePlan')


class PlanAttributes(TypedDict, total=False):
  """The attributes of all plans, without noise and epsilon, for type checkers.

  A constructor is named for which of noise and epsilon it takes.
  """

  num_clients: int
  clients_per_round: int
  num_rounds: int
  target_delta: float
  sampling: str
  # Of a `PrivacyPlan`.
  accountant: str
  # Of a `CorrelatedNoisePlan`.
  strategy: NoiseStrategy
  min_separation: int


class AggregatorParameters(NamedTuple):
  """What an aggregator has to add and divide by, for any clipping norm.

  Attributes:
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm.
    clients_per_round: The constant by which the noisy sum is divided, also when
      a Poisson cohort is larger, smaller or empty.
  """

  noise_multiplier: float
  clients_per_round: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BasePlan(abc.ABC):
  """How cohorts are drawn, how much noise is added, and what that costs.

  A subclass checks its attributes, and names in `parts` what its rounds
  release. Whatever they cost follows from that.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the constant by which sums are divided.
    num_rounds: The paper's T, the rounds that the plan is made for.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: Standard deviation of the noise over the clipping norm.
    sampling: How cohorts are drawn.
    target_epsilon: The epsilon that must not be passed, but by what processors
      may differ in, `slack.SLACK`; None means that of `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, or `num_rounds` rounds cost
      more than `target_epsilon`.
  """

  num_clients: int
  clients_per_round: int
  num_rounds: int
  target_delta: float
  noise_multiplier: float
  sampling: str
  target_epsilon: float | None = None

  def __post_init__(self):
    checked = {
      'target_delta': ranges.check('target_delta', self.target_delta),
      'noise_multiplier': ranges.check(
        'noise_multiplier', self.noise_multiplier
      ),
      **self._check_attributes(),
    }
    if self.target_epsilon is not None:
      checked['target_epsilon'] = ranges.check(
        'target_epsilon', self.target_epsilon
      )
    for name, value in checked.items():
      object.__setattr__(self, name, value)
    ranges.warn_of_large_delta(self.target_delta, self.num_clients)
    if not math.isfinite(self.epsilon):
      raise accountants.NoEpsilonError(self._explain_no_epsilon())
    ranges.warn_of_small_delta(self.target_delta, self.epsilon)
    if self.target_epsilon is not None and not slack.is_within(
      self.epsilon, self.target_epsilon
    ):
      raise ValueError(
        f'`target_epsilon` must be at least the {self.epsilon:.6g} that '
        f'{self.num_rounds} rounds cost with a noise multiplier of '
        f'{self.noise_multiplier:g}, found {self.target_epsilon:g}.'
      )

  @classmethod
  def from_target_epsilon(
    cls: type[_Plan],
    *,
    target_epsilon: float,
    **attributes: 'Unpack[PlanAttributes]',
  ) -> _Plan:
    """Returns the plan with the least noise that stays within an epsilon.

    Args:
      target_epsilon: The paper's epsilon, positive.
      **attributes: The others, by their names, but for `noise_multiplier`.

    Returns:
      A plan whose multiplier has 6 significant digits. It is the least of them
      whose epsilon is within the target.

    Raises:
      TypeError: If an attribute is missing, is the one that is found, or is of
        the wrong kind.
      ValueError: If an attribute is out of range, or no value in the
        accountant's range has this epsilon.
    """
    given: dict[str, Any] = {**attributes}
    plan = solve.find(
      lambda noise: cls(**given, noise_multiplier=noise),
      ranges.MIN_NOISE_MULTIPLIER,
      ranges.MAX_NOISE_MULTIPLIER,
      target_epsilon,
      name='noise_multiplier',
      start=1.0,
      low_is_answer=False,
    )
    return dataclasses.replace(plan, target_epsilon=target_epsilon)

  @classmethod
  def from_noise_multiplier(
    cls: type[_Plan],
    *,
    noise_multiplier: float,
    **attributes: 'Unpack[PlanAttributes]',
  ) -> _Plan:
    """Returns the plan with this noise; its epsilon is that of all rounds.

    Args:
      noise_multiplier: As the attribute.
      **attributes: As in `from_target_epsilon`; errors are as there.
    """
    given: dict[str, Any] = {**attributes}
    return cls(**given, noise_multiplier=noise_multiplier)

  @classmethod
  def from_max_rounds(
    cls: type[_Plan],
    *,
    noise_multiplier: float,
    target_epsilon: float,
    **attributes: 'Unpack[PlanAttributes]',
  ) -> _Plan:
    """Returns the plan with the most rounds that stay within an epsilon.

    Of a `CorrelatedNoisePlan` they are at most those of its strategy, whose
    error is least for so many.

    Args:
      noise_multiplier: As the attribute.
      target_epsilon: As in `from_target_epsilon`; errors are as there.
      **attributes: As there, but for `num_rounds`.
    """
    given: dict[str, Any] = {**attributes}
    most = getattr(given.get('strategy'), 'num_rounds', ranges.MAX_ROUNDS)
    plan = solve.find(
      lambda num_rounds: cls(
        **given, num_rounds=num_rounds, noise_multiplier=noise_multiplier
      ),
      most,
      1,
      target_epsilon,
      name='num_rounds',
      start=1,
      low_is_answer=most < ranges.MAX_ROUNDS,
    )
    return dataclasses.replace(plan, target_epsilon=target_epsilon)

  @classmethod
  def from_noise_to_clients_ratio(
    cls: type[_Plan],
    *,
    noise_to_clients_ratio: float,
    target_epsilon: float,
    **attributes: 'Unpack[PlanAttributes]',
  ) -> _Plan:
    """Returns the plan with the fewest clients a round within an epsilon.

    The noise on the mean is fixed, as a model that was found to bear it needs;
    larger cohorts allow more noise on the sum.

    Args:
      noise_to_clients_ratio: z / P, the standard deviation of the noise on the
        mean over the clipping norm; of a draw, where noise is correlated.
      target_epsilon: As in `from_target_epsilon`.
      **attributes: As there, but for `clients_per_round`.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: As there, or if `sampling` ties the cohorts to the population:
        'none' and 'random_allocation' do.
    """
    separation = _check_cohorts_are_free(attributes, 'clients_per_round')
    ratio = argument_checks.check_positive(
      'noise_to_clients_ratio', noise_to_clients_ratio
    )
    population, _ = ranges.check_population(attributes.get('num_clients'), 1)
    least, most = ranges.MIN_NOISE_MULTIPLIER, ranges.MAX_NOISE_MULTIPLIER
    # The cohorts whose noise is accounted for, and that come by turns.
    fewest = max(1, math.ceil(least / ratio))
    largest = min(population // separation, math.floor(most / ratio))
    if fewest > largest:
      raise ValueError(
        f'`noise_to_clients_ratio` {ratio:g} gives no cohort a noise '
        f'multiplier from {least:g} to {most:g}, the range that is accounted '
        'for.'
      )
    given: dict[str, Any] = {**attributes}
    plan = solve.find(
      lambda cohort: cls(
        **given, clients_per_round=cohort, noise_multiplier=ratio * cohort
      ),
      fewest,
      largest,
      target_epsilon,
      name='clients_per_round',
    )
    return dataclasses.replace(plan, target_epsilon=target_epsilon)

  @classmethod
  def from_smallest_population(
    cls: type[_Plan],
    *,
    noise_multiplier: float,
    target_epsilon: float,
    **attributes: 'Unpack[PlanAttributes]',
  ) -> _Plan:
    """Returns the plan with the fewest clients in all within an epsilon.

    For the same noise and cohorts: who is drawn from a larger population is
    better hidden. Without secret cohorts a population need only be large enough
    for them.

    Args:
      noise_multiplier: As the attribute.
      target_epsilon: As in `from_noise_to_clients_ratio`; errors are as there.
      **attributes: As there, but for `num_clients`.
    """
    separation = _check_cohorts_are_free(attributes, 'num_clients')
    _, cohort = ranges.check_population(
      ranges.MAX_CLIENTS, attributes.get('clients_per_round')
    )
    given: dict[str, Any] = {**attributes}
    plan = solve.find(
      lambda clients: cls(
        **given, num_clients=clients, noise_multiplier=noise_multiplier
      ),
      # As many as fill the cohorts until a client comes again.
      cohort * separation,
      ranges.MAX_CLIENTS,
      target_epsilon,
      name='num_clients',
    )
    return dataclasses.replace(plan, target_epsilon=target_epsilon)

  @abc.abstractmethod
  def parts(self, num_rounds: int) -> sampled_gaussian.Parts:
    """Returns what the first rounds release: mechanisms, and how many of each.

    Correlated noise is one release, or one for each turn of a group. The rounds
    of 'random_allocation' begin with an epoch.

    Args:
      num_rounds: From 1 to `max_rounds`.
    """

  @property
  @abc.abstractmethod
  def allows_new_draws(self) -> bool:
    """Whether a round may be run again with another cohort and other noise."""

  @property
  @abc.abstractmethod
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""

  @property
  @abc.abstractmethod
  def accountant(self) -> str:
    """How the rounds are added up."""

  @property
  def max_rounds(self) -> int:
    """The most rounds that there is a cost for."""
    return ranges.MAX_ROUNDS

  @property
  @abc.abstractmethod
  def running_sum_error(self) -> float:
    """How large the noise in the running sums is, over the clipping norm.

    The root of the mean variance of a coordinate of the sums of the first 1, 2,
    ..., `num_rounds` rounds. Divided by `clients_per_round` it is that of the
    running means: what mechanisms are compared by.
    """

  @property
  @abc.abstractmethod
  def sampler_parameters(self) -> NamedTuple:
    """What a sampler of clients has to do."""

  @property
  def aggregator_parameters(self) -> AggregatorParameters:
    """What an aggregator has to add and divide by."""
    return AggregatorParameters(self.noise_multiplier, self.clients_per_round)

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """What `num_rounds` rounds release, for an accountant of `relation`."""
    ((mechanism, count),) = self.parts(self.num_rounds)
    if mechanism.cohorts.sampling == 'none' and count == 1:
      return mechanism.dp_event
    return dp_accounting.SelfComposedDpEvent(
      mechanism.dp_event, mechanism.cohorts.count_epochs(count)
    )

  @functools.cached_property
  def epsilon(self) -> float:
    """The epsilon of `num_rounds` rounds, in the plan's accounting."""
    return self.epsilon_after(self.num_rounds)

  @functools.cached_property
  def tightest_epsilon(self) -> float:
    """The least of the epsilons by 'pld' and by the plan's own accountant.

    Of noise in integers, 'pld' is not proved.
    """
    by_pld = accountants.compose(self.parts(self.num_rounds), 'pld')
    return min(self.epsilon, by_pld.compute_epsilon(self.target_delta))

  def epsilon_after(self, num_rounds: int) -> float:
    """Returns the epsilon of so many rounds; 0 for none.

    Args:
      num_rounds: Rounds, each charged once. Settled before the run: where what
        was released decides when to stop, count all planned rounds.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or above `max_rounds`.
    """
    num_rounds = argument_checks.check_integer(
      'num_rounds', num_rounds, at_least=0, at_most=self.max_rounds
    )
    if not num_rounds:
      return 0.0
    cost = accountants.compose(self.parts(num_rounds), self.accountant)
    return cost.compute_epsilon(self.target_delta)

  def permits(self, num_releases: int) -> bool:
    """Returns whether so many releases stay within the plan.

    They do if they are at most the plan's, or if they are at most
    `max_rounds` and cost at most `target_epsilon`, with the slack of
    `slack.is_within`: on each processor they are equally many.

    Args:
      num_releases: All releases, those already made included.
    """
    if num_releases <= self.num_rounds:
      return True
    if self.target_epsilon is None or num_releases > self.max_rounds:
      return False
    return slack.is_within(
      self.epsilon_after(num_releases), self.target_epsilon
    )

  @functools.cached_property
  def permitted_rounds(self) -> int:
    """The most releases that `permits` allows, at least `num_rounds`.

    Of a run that what was released may end, the epsilon of all these holds.
    """
    if self.target_epsilon is None or self.num_rounds == self.max_rounds:
      return self.num_rounds
    most = solve.find(
      lambda rounds: dataclasses.replace(
        self, num_rounds=rounds, target_epsilon=None
      ),
      self.max_rounds,
      self.num_rounds,
      self.target_epsilon * (1 + slack.SLACK),
      name='num_rounds',
      start=self.num_rounds,
    )
    return most.num_rounds

  def _explain_no_epsilon(self) -> str:
    """Returns that there is no finite epsilon, and what it is by 'rdp'."""
    reason = (
      'The accountant has no finite epsilon for `noise_multiplier` '
      f'{self.noise_multiplier:g} and `target_delta` {self.target_delta:g}.'
    )
    with contextlib.suppress(ValueError):  # It does not know all samplings.
      cost = accountants.compose(self.parts(self.num_rounds), 'rdp')
      by_rdp = cost.compute_epsilon(self.target_delta)
      if math.isfinite(by_rdp):
        known = rounding.format_up(by_rdp)
        return f"{reason} By the accountant 'rdp' it is {known}."
    return reason

  @abc.abstractmethod
  def _check_attributes(self) -> dict[str, Any]:
    """Returns the attributes that are to be replaced by what was checked."""


def _check_cohorts_are_free(given: Mapping[str, Any], found: str) -> int:
  """Returns b; raises if cohorts have a fixed share of the population."""
  sampling = given.get('sampling')
  if sampling in ('none', 'random_allocation'):
    raise ValueError(
      f'`{found}` must be given where `sampling` is {sampling!r}, found none: '
      'cohorts there have a fixed share of the population.'
    )
  return ranges.check_count('min_separation', given.get('min_separation', 1))
