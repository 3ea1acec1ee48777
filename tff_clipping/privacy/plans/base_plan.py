"""What every privacy plan has: constructors, and what its rounds cost."""

import abc
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
  search,
  slack,
)
from tff_clipping.privacy.plans import (
  obligations,
  plan_json,
  plan_search,
  plan_text,
)

if TYPE_CHECKING:
  from typing_extensions import Unpack

  from tff_clipping.privacy.plans.plan_attributes import PlanAttributes

_Plan = TypeVar('_Plan', bound='BasePlan')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BasePlan(abc.ABC):
  """How cohorts are drawn, how much noise is added, and what that costs.

  What ledgers, samplers and reports ask of a plan, whichever it is. A subclass
  says what its attributes mean, checks them, and accounts for rounds.

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
    checked = self._check_attributes()
    if self.target_epsilon is not None:
      checked['target_epsilon'] = ranges.check_target_epsilon(
        self.target_epsilon
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
      target_epsilon: The paper's epsilon, positive. For the sampling 'paper' it
        is the paper's epsilon that stays within; the actual one is larger.
      **attributes: The others, by their names, but for `noise_multiplier`. Of a
        `CorrelatedNoisePlan`, `num_rounds` are those of its strategy.

    Returns:
      A plan whose multiplier has 6 significant digits, rounded up.

    Raises:
      TypeError: If an attribute is missing, is one that is found, or is of the
        wrong kind.
      ValueError: If an attribute is out of range, or no noise in the
        accountant's range has this epsilon.
    """
    given: dict[str, Any] = {**attributes, 'target_epsilon': target_epsilon}
    return cls._find_noise(cls._complete(given, 'noise_multiplier'))

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
      **attributes: As in `from_target_epsilon`, but for `target_epsilon`.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: If an attribute is out of range.
    """
    given: dict[str, Any] = {**attributes, 'noise_multiplier': noise_multiplier}
    return cls(**cls._complete(given, 'target_epsilon'))

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
      target_epsilon: The paper's epsilon, positive.
      **attributes: As in `from_target_epsilon`, but for `num_rounds`.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: If an attribute is out of range, or not a single round fits.
    """
    given: dict[str, Any] = {**attributes, 'target_epsilon': target_epsilon}
    given['noise_multiplier'] = noise_multiplier
    return cls._find_rounds(cls._complete(given, 'num_rounds'))

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
      target_epsilon: The paper's epsilon, positive.
      **attributes: As in `from_target_epsilon`, but for `clients_per_round`.
        All clients in every round, the sampling 'none', leave nothing to find.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: If an attribute is out of range, or no cohort is large enough.
    """
    given: dict[str, Any] = {**attributes, 'target_epsilon': target_epsilon}
    given = cls._complete(given, 'clients_per_round', 'noise_multiplier')
    return plan_search.with_fewest_clients(
      cls,
      given,
      noise_to_clients_ratio=noise_to_clients_ratio,
      most=cls._find_largest_cohort(given),
    )

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
      target_epsilon: The paper's epsilon, positive.
      **attributes: As in `from_target_epsilon`, but for `num_clients`.

    Raises:
      TypeError: As in `from_target_epsilon`.
      ValueError: If an attribute is out of range, no population is large
        enough, or `sampling` ties the population to the cohorts: 'none' and
        'random_allocation' do.
    """
    given: dict[str, Any] = {**attributes, 'target_epsilon': target_epsilon}
    given['noise_multiplier'] = noise_multiplier
    return plan_search.with_smallest_population(
      cls, cls._complete(given, 'num_clients')
    )

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
  @abc.abstractmethod
  def dp_event(self) -> dp_accounting.DpEvent:
    """The event of `num_rounds` rounds, for an accountant of `relation`."""

  @property
  @abc.abstractmethod
  def max_rounds(self) -> int:
    """The most rounds that there is a cost for."""

  @property
  @abc.abstractmethod
  def running_sum_error(self) -> float:
    """How large the noise in the running sums is, over the clipping norm.

    A model that adds up what is released sees the sums of the first 1, 2, ...,
    `num_rounds` rounds. It is the root of the mean, over these sums, of the
    variance of a coordinate: what mechanisms are compared by.
    """

  @abc.abstractmethod
  def released_mechanism(
    self, num_rounds: int
  ) -> tuple[sampled_gaussian.SampledGaussian, int]:
    """Returns what the first rounds release: equal rounds of one mechanism.

    Of the cohorts that are really drawn: under 'paper' it is not what is
    charged. Correlated noise is one release, or one for each turn of a group.
    The rounds of 'random_allocation' begin with an epoch.

    Args:
      num_rounds: From 1 to `max_rounds`.
    """

  @property
  @abc.abstractmethod
  def sampler_parameters(self) -> NamedTuple:
    """What a sampler of clients has to do."""

  @property
  def actual_relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `actual_epsilon` is for."""
    return self.relation

  def tightest_delta(self, epsilon: float) -> float:
    """Returns the delta of `num_rounds` rounds at an epsilon of at least 0.

    By the tightest accountant that is proved for what is really drawn, whatever
    accountant the plan is charged by. It is for `actual_relation`.

    Args:
      epsilon: Any epsilon, not only the plan's.
    """
    parts = [self.released_mechanism(self.num_rounds)]
    return accountants.compose(parts, 'pld').compute_delta(1, epsilon)

  @functools.cached_property
  def tightest_epsilon(self) -> float:
    """The least epsilon that is proved of `num_rounds` rounds.

    It is for what is really drawn and for `actual_relation`, by 'pld' or by the
    plan's own accountant. Of noise in integers, 'pld' is not proved.
    """
    parts = [self.released_mechanism(self.num_rounds)]
    by_pld = accountants.compose(parts, 'pld')
    return min(
      self.actual_epsilon, by_pld.compute_epsilon(1, self.target_delta)
    )

  def describe_tightest(self) -> str:
    """Returns that a tighter accountant charges less, in a sentence, or ''."""
    return plan_text.state_tightest(self)

  @property
  def sensitivity_factor(self) -> int:
    """By how many clipping norms a client can change one round's sum."""
    return self.relation.sensitivity_factor

  @property
  def aggregator_parameters(self) -> obligations.AggregatorParameters:
    """What an aggregator has to add and divide by."""
    return obligations.AggregatorParameters(
      self.noise_multiplier, self.clients_per_round
    )

  @functools.cached_property
  def epsilon(self) -> float:
    """The epsilon of `num_rounds` rounds, in the plan's accounting."""
    return self.epsilon_after(self.num_rounds)

  @functools.cached_property
  def actual_epsilon(self) -> float:
    """The epsilon that the sampler really gives; see the subclass."""
    return self.actual_epsilon_after(self.num_rounds)

  def epsilon_after(self, num_rounds: int) -> float:
    """Returns the epsilon of so many rounds; 0 for none.

    Args:
      num_rounds: Rounds, each charged once. Settled before the run: where what
        was released decides when to stop, count all planned rounds.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or above `max_rounds`.
    """
    num_rounds = self._check_num_rounds(num_rounds)
    return self._compute_epsilon(num_rounds) if num_rounds else 0.0

  def actual_epsilon_after(self, num_rounds: int) -> float:
    """Returns what the sampler really gives after so many rounds; 0 for none.

    Args:
      num_rounds: As in `epsilon_after`.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or above `max_rounds`.
    """
    return self.epsilon_after(num_rounds)

  def permits(self, num_releases: int) -> bool:
    """Returns whether so many releases stay within the plan.

    They do if they are at most the plan's, or if they are at most
    `max_rounds` and cost at most `target_epsilon`, with the slack of
    `slack.is_within`: on each processor they are equally many.

    Args:
      num_releases: All releases, those already made included.

    Raises:
      TypeError: If `num_releases` is not an integer.
      ValueError: If it is negative.
    """
    num_releases = argument_checks.check_integer(
      'num_releases', num_releases, at_least=0, at_most=2**63
    )
    if num_releases <= self.num_rounds:
      return True
    if self.target_epsilon is None or num_releases > self.max_rounds:
      return False
    return slack.is_within(
      self.epsilon_after(num_releases), self.target_epsilon
    )

  @functools.cached_property
  def permitted_rounds(self) -> int:
    """The most releases that `permits` allows: `num_rounds`, or more.

    It is more where `target_epsilon` is a budget that `num_rounds` rounds leave
    a part of. Of a run that what was released may end, it is the epsilon of all
    these that holds.
    """
    return search.search_max_rounds(self.permits, self.max_rounds)

  def describe(self, caveats: Sequence[str] = ()) -> str:
    """Returns the plan in sentences that one could put into a paper.

    Args:
      caveats: Why a run of the plan does not have its guarantee, in main
        clauses without a full stop. They come first.
    """
    return plan_text.add_caveats(self._describe(), caveats)

  def __str__(self) -> str:
    return self.describe()

  def to_json(self, caveats: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the plan for `json.dump`: its attributes, and what follows.

    `from_json` reads the attributes back; the rest is for readers of the file.

    Args:
      caveats: Why a run of the plan does not have its guarantee; see
        `describe`.
    """
    return plan_json.write(self, self._derive(), caveats)

  @classmethod
  def from_json(cls: type[_Plan], value: Mapping[str, Any]) -> _Plan:
    """Returns the plan that `to_json` wrote.

    Args:
      value: What `json.load` returned.

    Raises:
      TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
      ValueError: If attributes are missing, unknown or out of range, or the
        epsilon in it is not that of the attributes: it was changed by hand.
    """
    return plan_json.read(
      cls,
      value,
      read_attributes=cls._read_attributes,
    )

  @classmethod
  def _complete(cls, given: dict[str, Any], *found: str) -> dict[str, Any]:
    """Returns attributes with the defaults of those that are not given.

    Args:
      given: The attributes of a new plan.
      *found: Those that must not be given, because they are found.
    """
    attributes = {
      field.name: field.default
      for field in dataclasses.fields(cls)
      if field.name not in found
    }
    for name, default in attributes.items():
      if default is dataclasses.MISSING and name not in given:
        raise TypeError(f'`{name}` must be given for a {cls.__name__}.')
    for name in given:
      if name not in attributes:
        raise TypeError(
          f'`{name}` must not be given: it is found, or is no attribute of a '
          f'{cls.__name__}.'
        )
    return {**attributes, **given}

  @classmethod
  @abc.abstractmethod
  def _find_noise(cls: type[_Plan], given: dict[str, Any]) -> _Plan:
    """Returns the plan of `from_target_epsilon`."""

  @classmethod
  @abc.abstractmethod
  def _find_rounds(cls: type[_Plan], given: dict[str, Any]) -> _Plan:
    """Returns the plan of `from_max_rounds`."""

  @classmethod
  @abc.abstractmethod
  def _find_largest_cohort(cls, given: dict[str, Any]) -> int:
    """Returns the most clients a round that there is a plan for."""

  @abc.abstractmethod
  def _check_attributes(self) -> dict[str, Any]:
    """Returns the attributes that are to be replaced by what was checked."""

  @abc.abstractmethod
  def _compute_epsilon(self, num_rounds: int) -> float:
    """Returns the epsilon of at least one round; inf if there is none."""

  def _explain_no_epsilon(self) -> str:
    """Returns why `num_rounds` rounds have no finite epsilon."""
    return accountants.explain_little_noise(
      self.noise_multiplier, self.target_delta
    )

  @abc.abstractmethod
  def _describe(self) -> str:
    """Returns the plan in sentences, without caveats."""

  @abc.abstractmethod
  def _derive(self) -> dict[str, Any]:
    """Returns what the JSON has beside attributes and what all plans have."""

  @classmethod
  def _read_attributes(cls, attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes from their JSON values."""
    return attributes

  def _check_num_rounds(self, num_rounds: int) -> int:
    """Returns a number of rounds in [0, max_rounds]."""
    return argument_checks.check_integer(
      'num_rounds', num_rounds, at_least=0, at_most=self.max_rounds
    )
