"""The base class of privacy plans: constructors, and what rounds cost."""

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
  """The attributes of all plans but noise and epsilon, for type checkers."""

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
  """The noise and the denominator of an aggregator, for any clipping norm.

  Attributes:
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm.
    clients_per_round: The constant by which the noisy sum is divided, whatever
      the size of the cohort.
  """

  noise_multiplier: float
  clients_per_round: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BasePlan(abc.ABC):
  """How cohorts are drawn, how much noise is added, and what both cost.

  A subclass checks its attributes, and returns from `parts` the mechanisms of
  its rounds. All costs follow from `parts`.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the constant by which sums are divided.
    num_rounds: The paper's T, the rounds that the plan is made for.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: Standard deviation of the noise over the clipping norm.
    sampling: How cohorts are drawn.
    target_epsilon: The largest epsilon allowed, but for the last digits, in
      which processors differ (`slack.SLACK`); None means the epsilon of
      `num_rounds` rounds.

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
    if not math.isfinite(self.epsilon):
      raise accountants.NoEpsilonError(self._explain_no_epsilon())
    ranges.warn_of_delta(self.target_delta, self.epsilon, self.num_clients)
    if self.target_epsilon is not None and not self._is_within_target:
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
      **attributes: All other attributes by name, without `noise_multiplier`.

    Returns:
      The plan with the least multiplier of 6 significant digits whose epsilon
      is at most the target.

    Raises:
      TypeError: If an attribute is missing, is solved for, or is of the wrong
        kind.
      ValueError: If an attribute is out of range, or no multiplier in the
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
    """Returns the plan with this noise, without a target.

    Args:
      noise_multiplier: As the attribute.
      **attributes: As in `from_target_epsilon`, as are errors.
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

    A `CorrelatedNoisePlan` has at most the rounds of its strategy, whose error
    is least for exactly these.

    Args:
      noise_multiplier: As the attribute.
      target_epsilon: As in `from_target_epsilon`, as are errors.
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

    The noise on the mean is given, as large as the model bears it. The noise on
    the sum grows with the cohort.

    Args:
      noise_to_clients_ratio: z / P, the standard deviation of the noise on the
        mean over the clipping norm. If noise is correlated, z is of one draw.
      target_epsilon: As in `from_target_epsilon`.
      **attributes: As there, but for `clients_per_round`.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: As there, or if `sampling` is 'none' or 'random_allocation',
        where the cohort is a fixed share of the population.
    """
    separation = _check_cohorts_are_free(attributes, 'clients_per_round')
    ratio = argument_checks.check_positive(
      'noise_to_clients_ratio', noise_to_clients_ratio
    )
    population, _ = ranges.check_population(attributes.get('num_clients'), 1)
    least, most = ranges.MIN_NOISE_MULTIPLIER, ranges.MAX_NOISE_MULTIPLIER
    # The noise is in the range accounted for; the population fills all turns.
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
    """Returns the plan with the smallest population within an epsilon.

    The larger the population, the less often a client is drawn, and the less
    the same noise costs. If cohorts are not secret, the population need only
    fill them.

    Args:
      noise_multiplier: As the attribute.
      target_epsilon: As in `from_noise_to_clients_ratio`, as are errors.
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
    """Returns the mechanisms of the first rounds, and how often each is run.

    All rounds of correlated noise together are one mechanism; under
    'grouped_poisson' each turn of a group is one. Under 'random_allocation' the
    first round begins an epoch.

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
    """The standard deviation of the running sums' noise over the clipping norm.

    The running sums are of the first 1, 2, ..., `num_rounds` rounds, and the
    variance of a coordinate is averaged over them. Mechanisms are compared by
    this error divided by `clients_per_round`, the error of the running means.
    """

  @property
  @abc.abstractmethod
  def sampler_parameters(self) -> NamedTuple:
    """The cohorts that a sampler of clients must draw."""

  @property
  def aggregator_parameters(self) -> AggregatorParameters:
    """The noise and the denominator that an aggregator must use."""
    return AggregatorParameters(self.noise_multiplier, self.clients_per_round)

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """The event of `num_rounds` rounds, for an accountant of `relation`."""
    ((mechanism, count),) = self.parts(self.num_rounds)
    if mechanism.sampling == 'none' and count == 1:
      return mechanism.dp_event
    return dp_accounting.SelfComposedDpEvent(
      mechanism.dp_event, mechanism.count_epochs(count)
    )

  @functools.cached_property
  def epsilon(self) -> float:
    """The epsilon of `num_rounds` rounds, in the plan's accounting."""
    return self.epsilon_after(self.num_rounds)

  @property
  def caveats(self) -> tuple[str, ...]:
    """Why no run has the guarantee, in main clauses; see `describe_plan`."""
    return ranges.list_caveats(self.target_delta, self.epsilon, self.num_rounds)

  @functools.cached_property
  def tightest_epsilon(self) -> float:
    """The smaller of the epsilons by 'pld' and by the plan's accountant.

    For noise in integers, 'pld' is not proved.
    """
    by_pld = accountants.compose(self.parts(self.num_rounds), 'pld')
    return min(self.epsilon, by_pld.compute_epsilon(self.target_delta))

  def epsilon_after(self, num_rounds: int) -> float:
    """Returns the epsilon of the first rounds; 0 for none.

    It holds if the number of rounds was fixed before the run. If releases
    decide when to stop, the epsilon of all planned rounds holds.

    Args:
      num_rounds: The number of rounds, each charged once.

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
    """Returns whether the plan allows a number of releases.

    Without a target it allows `num_rounds` of them. With a target it allows as
    many, up to `max_rounds`, as cost at most `target_epsilon`. The slack of
    `slack.is_within` makes the answer equal on every processor.

    Args:
      num_releases: All releases, the past ones included.
    """
    if self.target_epsilon is None:
      return num_releases <= self.num_rounds
    if num_releases <= self.num_rounds and self._is_within_target:
      return True
    return num_releases <= self.max_rounds and slack.is_within(
      self.epsilon_after(num_releases), self.target_epsilon
    )

  @property
  def _is_within_target(self) -> bool:
    """Whether `num_rounds` rounds cost at most the target, if there is one.

    Only a plan that was read may cost more, by a newer accountant.
    """
    return self.target_epsilon is None or slack.is_within(
      self.epsilon, self.target_epsilon
    )

  @functools.cached_property
  def permitted_rounds(self) -> int:
    """The most releases that `permits` allows.

    If releases may decide when a run ends, the epsilon of all of these holds.
    """
    if self.target_epsilon is None:
      return self.num_rounds
    if self.num_rounds == self.max_rounds and self._is_within_target:
      return self.num_rounds
    if not self.permits(1):
      return 0
    most = solve.find(
      lambda rounds: dataclasses.replace(
        self, num_rounds=rounds, target_epsilon=None
      ),
      self.max_rounds,
      1,
      self.target_epsilon * (1 + slack.SLACK),
      name='num_rounds',
      start=self.num_rounds,
    )
    return most.num_rounds

  def _explain_no_epsilon(self) -> str:
    """Returns the error for an infinite epsilon, with the epsilon by 'rdp'."""
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
    """Returns the attributes of a subclass as they were checked."""


def _check_cohorts_are_free(given: Mapping[str, Any], found: str) -> int:
  """Returns b; raises if the cohort is a fixed share of the population."""
  sampling = given.get('sampling')
  if sampling in ('none', 'random_allocation'):
    raise ValueError(
      f'`{found}` must be given where `sampling` is {sampling!r}, found none: '
      'cohorts there have a fixed share of the population.'
    )
  return ranges.check_count('min_separation', given.get('min_separation', 1))
