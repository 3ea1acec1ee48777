"""A privacy plan for noise that is correlated between rounds."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy import (
  accountants,
  arguments,
  calibration,
  correlated_noise,
  gaussian_mechanism,
  noise_summary,
  plan_json,
  plan_parameters,
  plan_text,
  rounding,
  sampled_gaussian,
)

# Samplers that hold a client to what is charged: at most once in so many rounds
# (fixed groups that take turns, without or with a secret draw from the group
# whose turn it is), or at most once in an epoch.
SAMPLINGS = ('min_separation', 'grouped_poisson', 'shuffled_epochs')

# What stands in a plan's JSON for whoever reads it.
_DERIVED = (
  *('mechanism', 'max_participations', 'sensitivity', 'accountant', 'relation'),
  *('epsilon', 'actual_epsilon', 'dp_event', 'caveats', 'description'),
)


class SeparatedSamplerParameters(NamedTuple):
  """What a sampler of clients has to do for the plan's figures to hold.

  Attributes:
    scheme: 'min_separation', 'grouped_poisson' or 'shuffled_epochs'.
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
class CorrelatedNoisePlan:
  """When clients may come, how their noise is correlated, and what it costs.

  All rounds together are one Gaussian mechanism, under zeroing out one client:
  neighbouring populations differ in one client, which sends zeros in one of
  them in all rounds in which it takes part. Who takes part when is public, and
  nothing is amplified by sampling. The cohorts must not depend on the updates.

  With one exception: under 'grouped_poisson' the draws are secret, and banded
  noise costs as much as so many rounds of Poisson sampling as a group has
  turns, from a population of the size of a group.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the most clients in a cohort; the expected
      number under 'grouped_poisson'.
    num_rounds: The paper's T, the rounds that the plan is made for, at most
      those of `strategy`.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: Standard deviation of a draw over the clipping norm c:
      what `correlated_dp_mean_factory` takes. The noise of one round alone is
      larger, and that of the running sums is what `strategy` made small.
    strategy: How the noise of a round depends on those before.
    min_separation: b. From one participation of a client to its next there are
      at least so many rounds. 1 with 'shuffled_epochs'.
    sampling: 'min_separation': the population is split into b groups, which
      take turns. 'grouped_poisson': the same, and each client of the group
      whose turn it is joins by a coin of its own, with probability P b / N, for
      strategies of at most b bands alone. 'shuffled_epochs': everybody comes
      once in each epoch of ceil(N / P) rounds, in a new order in each; two
      participations may be next to each other.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, the population is too small for
      the cohorts and the separation, the sensitivity of the strategy is not
      known, it is not banded under 'grouped_poisson', or `num_rounds` rounds
      cost more than `target_epsilon`.

  Source: arXiv 2202.08312, Theorem 2.1 (one Gaussian mechanism, also where the
    updates depend on what was released); 2306.08153 (participation, and its
    Theorem 4 for 'grouped_poisson').
  """

  # Later rounds take back the noise that a round had: with a new draw of it,
  # they would not be the mechanism that is charged.
  allows_new_draws: ClassVar[bool] = False

  num_clients: int
  clients_per_round: int
  num_rounds: int
  target_delta: float
  noise_multiplier: float
  strategy: correlated_noise.NoiseStrategy
  min_separation: int = 1
  sampling: str = 'min_separation'
  target_epsilon: float | None = None

  def __post_init__(self):
    participation = _check_participation(
      self.num_clients,
      self.clients_per_round,
      self.min_separation,
      self.sampling,
    )
    _check_strategy(self.strategy)
    _check_amplified(self.strategy, self.min_separation, self.sampling)
    checked = {
      'num_clients': int(self.num_clients),
      'clients_per_round': int(self.clients_per_round),
      'num_rounds': argument_checks.check_integer(
        'num_rounds',
        self.num_rounds,
        at_least=1,
        at_most=self.strategy.num_rounds,
      ),
      'target_delta': arguments.check_target_delta(self.target_delta),
      'noise_multiplier': arguments.check_noise_multiplier(
        self.noise_multiplier
      ),
      'min_separation': participation.min_separation,
    }
    if self.target_epsilon is not None:
      checked['target_epsilon'] = arguments.check_target_epsilon(
        self.target_epsilon
      )
    for name, value in checked.items():
      object.__setattr__(self, name, value)
    arguments.warn_of_large_delta(
      self.target_delta, self.num_clients, stacklevel=3
    )
    if not math.isfinite(self.epsilon):
      raise ValueError(
        'The accountant has no finite epsilon for `noise_multiplier` '
        f'{self.noise_multiplier:g} and `target_delta` {self.target_delta:g}.'
      )
    if self.target_epsilon is not None and self.epsilon > self.target_epsilon:
      raise ValueError(
        f'`target_epsilon` must be at least the {self.epsilon:.6g} that '
        f'{self.num_rounds} rounds cost with a noise multiplier of '
        f'{self.noise_multiplier:g}, found {self.target_epsilon:g}.'
      )

  @classmethod
  def from_target_epsilon(
    cls,
    *,
    num_clients: int,
    clients_per_round: int,
    strategy: correlated_noise.NoiseStrategy,
    target_epsilon: float,
    target_delta: float,
    min_separation: int = 1,
    sampling: str = 'min_separation',
  ) -> 'CorrelatedNoisePlan':
    """Returns the plan with the least noise that stays within an epsilon.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      strategy: How noise is correlated, for all rounds that are to be run.
      target_epsilon: The paper's epsilon, positive.
      target_delta: The paper's delta, in (0, 1).
      min_separation: As the attribute.
      sampling: As the attribute.

    Returns:
      A plan whose multiplier has 6 significant digits, rounded up.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or the sensitivity of the
        strategy is not known.
    """
    participation = _check_participation(
      num_clients, clients_per_round, min_separation, sampling
    )
    _check_strategy(strategy)
    if sampling == 'grouped_poisson':
      _check_amplified(strategy, min_separation, sampling)
      sensitivity = _sensitivity_of_one_round(strategy)
      over_sensitivity = calibration.find_noise_multiplier(
        _turn_of_group(num_clients, clients_per_round, min_separation),
        'pld',
        num_rounds=participation.count(strategy.num_rounds),
        target_epsilon=target_epsilon,
        target_delta=target_delta,
      )
    else:
      sensitivity = strategy.compute_sensitivity(participation)
      over_sensitivity = gaussian_mechanism.gaussian_noise_multiplier(
        target_epsilon, target_delta
      )
    multiplier = sensitivity * over_sensitivity
    return cls(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=strategy.num_rounds,
      target_delta=target_delta,
      noise_multiplier=rounding.round_up(multiplier, digits=6),
      strategy=strategy,
      min_separation=min_separation,
      sampling=sampling,
      target_epsilon=target_epsilon,
    )

  @classmethod
  def from_noise_multiplier(
    cls,
    *,
    num_clients: int,
    clients_per_round: int,
    strategy: correlated_noise.NoiseStrategy,
    noise_multiplier: float,
    target_delta: float,
    min_separation: int = 1,
    sampling: str = 'min_separation',
  ) -> 'CorrelatedNoisePlan':
    """Returns the plan with this noise; its epsilon is that of all rounds.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      strategy: How noise is correlated, for all rounds that are to be run.
      noise_multiplier: Standard deviation of a draw over the clipping norm.
      target_delta: The paper's delta, in (0, 1).
      min_separation: As the attribute.
      sampling: As the attribute.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or the sensitivity of the
        strategy is not known.
    """
    return cls(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=_check_strategy(strategy).num_rounds,
      target_delta=target_delta,
      noise_multiplier=noise_multiplier,
      strategy=strategy,
      min_separation=min_separation,
      sampling=sampling,
    )

  @classmethod
  def from_max_rounds(
    cls,
    *,
    num_clients: int,
    clients_per_round: int,
    strategy: correlated_noise.NoiseStrategy,
    noise_multiplier: float,
    target_epsilon: float,
    target_delta: float,
    min_separation: int = 1,
    sampling: str = 'min_separation',
  ) -> 'CorrelatedNoisePlan':
    """Returns the plan with the most rounds that stay within an epsilon.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      strategy: How noise is correlated, for at least so many rounds. More
        rounds than its own are not considered: its error is least for those.
      noise_multiplier: Standard deviation of a draw over the clipping norm.
      target_epsilon: The paper's epsilon, positive.
      target_delta: The paper's delta, in (0, 1).
      min_separation: As the attribute.
      sampling: As the attribute.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or not a single round fits.
    """
    target_epsilon = arguments.check_target_epsilon(target_epsilon)
    whole = cls.from_noise_multiplier(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      strategy=strategy,
      noise_multiplier=noise_multiplier,
      target_delta=target_delta,
      min_separation=min_separation,
      sampling=sampling,
    )
    if whole.epsilon_after(1) > target_epsilon:
      raise ValueError(
        f'`target_epsilon` {target_epsilon:g} does not allow a single round: '
        f'with `noise_multiplier` {whole.noise_multiplier:g} one round costs '
        f'{whole.epsilon_after(1):.4g}.'
      )
    # Invariant: `low` rounds fit, `high` rounds do not.
    low, high = 1, whole.num_rounds + 1
    while high - low > 1:
      middle = (low + high) // 2
      fits = whole.epsilon_after(middle) <= target_epsilon
      low, high = (middle, high) if fits else (low, middle)
    return dataclasses.replace(
      whole, num_rounds=low, target_epsilon=target_epsilon
    )

  @property
  def participation(self) -> correlated_noise.Participation:
    """The rounds in which the sampler lets one client take part."""
    return _check_participation(
      self.num_clients,
      self.clients_per_round,
      self.min_separation,
      self.sampling,
    )

  @property
  def max_participations(self) -> int:
    """k, the most rounds in which one client takes part."""
    return self.participation.count(self.num_rounds)

  @property
  def accountant(self) -> str:
    """'gaussian', the exact curve of one Gaussian mechanism, or 'pld'.

    The second is for 'grouped_poisson', where rounds are composed.
    """
    return 'pld' if self._is_amplified else 'gaussian'

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return sampled_gaussian.Relation.ZERO_OUT

  @property
  def sensitivity_factor(self) -> int:
    """By how many clipping norms a client can change one round's sum: 1."""
    return self.relation.sensitivity_factor

  @property
  def sensitivity(self) -> float:
    """By how many clipping norms a client can change what is noised.

    In the whole run, or by one participation under 'grouped_poisson'.
    """
    if self._is_amplified:
      return _sensitivity_of_one_round(self.strategy)
    return self.strategy.compute_sensitivity(
      self.participation, self.num_rounds
    )

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """What is charged for `num_rounds` rounds, for an accountant of `relation`.

    It is one Gaussian event for the whole run, or under 'grouped_poisson' a
    Poisson-sampled one for each turn of a group.
    """
    gaussian = dp_accounting.GaussianDpEvent(
      self.noise_multiplier / self.sensitivity
    )
    if not self._is_amplified:
      return gaussian
    return dp_accounting.SelfComposedDpEvent(
      dp_accounting.PoissonSampledDpEvent(self._turn.sampling_prob, gaussian),
      self.max_participations,
    )

  @functools.cached_property
  def epsilon(self) -> float:
    """The epsilon of `num_rounds` rounds."""
    return self.epsilon_after(self.num_rounds)

  @property
  def actual_epsilon(self) -> float:
    """`epsilon`: what is charged is what is done."""
    return self.epsilon

  def epsilon_after(self, num_rounds: int) -> float:
    """Returns the epsilon of the first so many rounds; 0 for none.

    A round that is run again does not count twice: it releases the same bits.

    Args:
      num_rounds: At most the rounds of the strategy.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is out of range.
    """
    num_rounds = argument_checks.check_integer(
      'num_rounds', num_rounds, at_least=0, at_most=self.strategy.num_rounds
    )
    if num_rounds == 0:
      return 0.0
    if self._is_amplified:
      turns = accountants.build_rounds(self._turn, self.accountant)
      return turns.compute_epsilon(
        self.participation.count(num_rounds), self.target_delta
      )
    sensitivity = self.strategy.compute_sensitivity(
      self.participation, num_rounds
    )
    return gaussian_mechanism.gaussian_epsilon(
      self.noise_multiplier / sensitivity, self.target_delta
    )

  def actual_epsilon_after(self, num_rounds: int) -> float:
    """Returns `epsilon_after(num_rounds)`."""
    return self.epsilon_after(num_rounds)

  def permits(self, num_releases: int) -> bool:
    """Returns whether so many releases stay within the plan.

    They do if they are at most `num_rounds`, or if the strategy has noise for
    them and they cost at most `target_epsilon`.

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
    if self.target_epsilon is None or num_releases > self.strategy.num_rounds:
      return False
    return self.epsilon_after(num_releases) <= self.target_epsilon

  @property
  def sampler_parameters(self) -> SeparatedSamplerParameters:
    """What a sampler of clients has to do."""
    return SeparatedSamplerParameters(
      scheme=self.sampling,
      num_clients=self.num_clients,
      cohort_size=self.clients_per_round,
      min_separation=self.min_separation,
    )

  @property
  def aggregator_parameters(self) -> plan_parameters.AggregatorParameters:
    """What an aggregator has to add and divide by, beside `strategy`."""
    return plan_parameters.AggregatorParameters(
      self.noise_multiplier, self.clients_per_round
    )

  def summarize_noise(
    self, *, clipping_norm: float = 1.0, model_size: int | None = None
  ) -> noise_summary.NoiseSummary:
    """Returns how large a draw is; see `noise_summary.summarize_noise`."""
    return noise_summary.summarize_noise(
      noise_multiplier=self.noise_multiplier,
      clients_per_round=self.clients_per_round,
      clipping_norm=clipping_norm,
      model_size=model_size,
    )

  def describe(self, caveats: Sequence[str] = ()) -> str:
    """Returns the plan in sentences that one could put into a paper.

    Args:
      caveats: As for `PrivacyPlan.describe`.
    """
    text = (
      self._describe_amplified()
      if self._is_amplified
      else self._describe_public()
    )
    return plan_text.add_caveats(text, caveats)

  def __str__(self) -> str:
    return self.describe()

  def to_json(self, caveats: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the plan for `json.dump`: its attributes, and what follows.

    `from_json` reads the attributes back; the rest is for readers of the file.

    Args:
      caveats: As for `PrivacyPlan.to_json`.
    """
    attributes = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
    }
    return plan_json.write(
      {
        'mechanism': 'correlated_noise',
        **attributes,
        'strategy': self.strategy.to_json(),
      },
      max_participations=self.max_participations,
      sensitivity=self.sensitivity,
      accountant=self.accountant,
      relation=self.relation.value,
      epsilon=self.epsilon,
      actual_epsilon=self.actual_epsilon,
      dp_event=repr(self.dp_event),
      caveats=list(caveats),
      description=self.describe(caveats),
    )

  @property
  def _is_amplified(self) -> bool:
    """Whether the draws from a group are secret, and lower the cost."""
    return self.sampling == 'grouped_poisson'

  @property
  def _turn(self) -> sampled_gaussian.SampledGaussian:
    """One turn of a group under 'grouped_poisson', as it is charged."""
    return sampled_gaussian.add_noise(
      _turn_of_group(
        self.num_clients, self.clients_per_round, self.min_separation
      ),
      self.noise_multiplier / self.sensitivity,
    )

  def _describe_public(self) -> str:
    """Returns the description where everybody may know who comes when."""
    rounds = '1 round' if self.num_rounds == 1 else f'{self.num_rounds} rounds'
    most = self.max_participations
    times = 'once' if most == 1 else f'{most} times'
    limit = {
      'min_separation': (
        'a client takes part at most once in any '
        f'{self.min_separation} consecutive rounds'
      ),
      'shuffled_epochs': (
        'a client takes part once in each epoch of '
        f'{self.participation.rounds_per_epoch} rounds, in a shuffled order'
      ),
    }[self.sampling]
    return (
      f'Training for {rounds} satisfies client-level '
      f'({plan_text.round_up(self.epsilon)}, {self.target_delta:g})-'
      'differential privacy with respect to zeroing out one client: '
      f'up to {self.clients_per_round} of the {self.num_clients} clients take '
      f'part in a round, {limit}, {times} at most, and the sum of the clipped '
      f'updates has {self.strategy.describe()}, whose draws have a standard '
      f'deviation of {self.noise_multiplier:g} times the clipping norm; '
      f'accounted for exactly as one Gaussian mechanism, which one client '
      f'changes by {plan_text.round_up(self.sensitivity)} times the '
      'clipping norm. Nothing is assumed to be secret or random about who '
      'takes part.'
    )

  def _describe_amplified(self) -> str:
    """Returns the description under 'grouped_poisson'."""
    return (
      f'Training for {self.num_rounds} rounds satisfies client-level '
      f'({plan_text.round_up(self.epsilon)}, {self.target_delta:g})-'
      'differential privacy with respect to zeroing out one client: the '
      f'{self.num_clients} clients are in {self.min_separation} fixed groups '
      'that take turns, each client of a group takes part in its turn '
      f'independently with probability {self._turn.sampling_prob:.6g} '
      f'({self.clients_per_round} expected), in secret, and the sum of the '
      f'clipped updates has {self.strategy.describe()}, whose draws have a '
      f'standard deviation of {self.noise_multiplier:g} times the clipping '
      f'norm; accounted for as {self.max_participations} Poisson-sampled '
      'Gaussian mechanisms, which one client changes by '
      f'{plan_text.round_up(self.sensitivity)} times the clipping norm, by '
      f'{plan_text.name_accountant(self.accountant)}.'
    )

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'CorrelatedNoisePlan':
    """Returns the plan that `to_json` wrote.

    Args:
      value: What `json.load` returned.

    Raises:
      TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
      ValueError: If attributes are missing, unknown or out of range, or the
        epsilon in it is not that of the attributes: it was changed by hand.
    """
    names = [field.name for field in dataclasses.fields(cls)]
    attributes = plan_json.read_attributes(value, names, derived=_DERIVED)
    attributes['strategy'] = correlated_noise.strategy_from_json(
      value['strategy']
    )
    found = cls(**attributes)
    plan_json.check_figures(value, epsilon=found.epsilon)
    return found


def _check_amplified(
  strategy: correlated_noise.NoiseStrategy, min_separation: int, sampling: str
) -> None:
  """Raises where no amplification by sampling is known."""
  if sampling != 'grouped_poisson':
    return
  bands = getattr(strategy, 'num_bands', None)
  if bands is None or bands > min_separation:
    raise ValueError(
      '`strategy` must be banded, with at most `min_separation` = '
      f"{min_separation} bands, where `sampling` is 'grouped_poisson', found "
      f'{strategy}: no other is known to gain from sampling.'
    )


def _turn_of_group(
  num_clients: int, clients_per_round: int, min_separation: int
) -> sampled_gaussian.CohortSampling:
  """Returns how a group draws its cohort: q = P b / N."""
  return sampled_gaussian.CohortSampling(
    sampling='poisson',
    num_clients=num_clients,
    clients_per_round=clients_per_round * min_separation,
  )


def _sensitivity_of_one_round(
  strategy: correlated_noise.NoiseStrategy,
) -> float:
  """Returns by how much a client that comes once can change C x."""
  return strategy.compute_sensitivity(
    correlated_noise.Participation(
      min_separation=strategy.num_rounds, max_participations=1
    )
  )


def _check_strategy(strategy: Any) -> correlated_noise.NoiseStrategy:
  """Returns the strategy if it is one."""
  if not isinstance(strategy, correlated_noise.NoiseStrategy):
    raise TypeError(f'`strategy` must be a NoiseStrategy, found {strategy!r}.')
  return strategy


def _check_participation(
  num_clients: int, clients_per_round: int, min_separation: int, sampling: str
) -> correlated_noise.Participation:
  """Returns the rounds in which a sampler lets one client take part."""
  argument_checks.check_choice('sampling', sampling, SAMPLINGS)
  num_clients, clients_per_round = arguments.check_population(
    num_clients, clients_per_round
  )
  min_separation = argument_checks.check_integer(
    'min_separation', min_separation, at_least=1, at_most=arguments.MAX_ROUNDS
  )
  if sampling == 'shuffled_epochs':
    if min_separation != 1:
      raise ValueError(
        "`min_separation` must be 1 where `sampling` is 'shuffled_epochs', "
        'which may draw a client last in an epoch and first in the next, '
        f'found {min_separation}.'
      )
    return correlated_noise.Participation(
      min_separation=1, rounds_per_epoch=-(-num_clients // clients_per_round)
    )
  most = num_clients // clients_per_round
  if min_separation > most:
    raise ValueError(
      f'`min_separation` must be at most {most}, found {min_separation}: '
      f'{num_clients} clients cannot fill cohorts of {clients_per_round} '
      'without coming back sooner.'
    )
  return correlated_noise.Participation(min_separation=min_separation)
