"""A privacy plan: sampler, noise, relation and accountant as one object."""

import dataclasses
import functools
import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import dp_accounting

from tff_clipping.privacy import (
  accounting,
  arguments,
  noise_summary,
  sampled_gaussian,
  truncated_poisson,
)

# 'paper' draws cohorts of a fixed size and is charged as Poisson sampling.
SAMPLINGS = ('poisson', 'truncated_poisson', 'fixed_size', 'none', 'paper')

_JSON_FORMAT = 1

# The bounds of truncated cohorts: plans written before there were any have
# none in their JSON.
_BOUNDS = ('min_clients_per_round', 'max_clients_per_round')


class SamplerParameters(NamedTuple):
  """What a sampler of clients has to do for the plan's figures to hold.

  Attributes:
    scheme: 'poisson', 'truncated_poisson', 'fixed_size' or 'none', never
      'paper'.
    num_clients: The population to draw from.
    sampling_prob: Each client's chance to be in a round. Under 'poisson' the
      clients' draws are independent and a cohort may be empty. Under
      'truncated_poisson' it is that before a cohort is brought within bounds.
    cohort_size: The exact size of a cohort; None under 'poisson' and
      'truncated_poisson'.
    min_clients_per_round: The least cohort under 'truncated_poisson'; None
      for all others.
    max_clients_per_round: The largest cohort under 'truncated_poisson'; None
      for all others.
  """

  scheme: str
  num_clients: int
  sampling_prob: float
  cohort_size: int | None
  min_clients_per_round: int | None
  max_clients_per_round: int | None


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

    An empty cohort sends nothing: m = 0 is as 1.
    """
    return self.noise_multiplier / math.sqrt(max(self.min_clients_per_round, 1))

  @property
  def release_multiplier(self) -> float:
    """z sqrt(M / m): the noise on the sum that is released, over the norm."""
    return self.share_multiplier * math.sqrt(self.max_clients_per_round)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
  """How cohorts are drawn, how much noise is added, and what that costs.

  A plan cannot pair a sampler with the event of another one, with one exception
  that has a name: `sampling='paper'` draws cohorts of a fixed size, as the
  paper's experiments do, and charges them as Poisson samples, as the paper's
  accounting does. Its `epsilon` is the paper's figure and holds for Poisson
  sampling only; `actual_epsilon`, which every description shows beside it, is
  what the cohorts that are really drawn give.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the cohort (expected, for 'poisson').
    num_rounds: The paper's T, the rounds that the plan is made for.
    target_delta: The paper's delta. A value above 1/num_clients is warned of.
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm c, whatever the relation: sigma_sum =
      noise_multiplier * c. The accountant of the replace-one relation, where a
      client changes the sum by up to 2c, is given half of it.
    sampling: 'poisson', 'truncated_poisson', 'fixed_size', 'none' or 'paper'.
    accountant: 'rdp' or 'pld'.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.
    min_clients_per_round: The least cohort of 'truncated_poisson', where a
      smaller one is filled up; None for all others. If it is not given, the
      largest that costs 0.5 % of `target_delta`.
    max_clients_per_round: The largest cohort of 'truncated_poisson', to which a
      larger one is cut; None for all others. If it is not given, the least
      that costs 0.5 % of `target_delta`.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, `num_rounds` rounds cost more
      than `target_epsilon`, or cohorts out of bounds cost all of
      `target_delta`.
  """

  # Whether a round may be run again with another cohort and other noise.
  allows_new_draws: ClassVar[bool] = True

  num_clients: int
  clients_per_round: int
  num_rounds: int
  target_delta: float
  noise_multiplier: float
  sampling: str = 'poisson'
  accountant: str = 'rdp'
  target_epsilon: float | None = None
  min_clients_per_round: int | None = None
  max_clients_per_round: int | None = None

  def __post_init__(self):
    arguments.check_choice('sampling', self.sampling, SAMPLINGS)
    if self.accountant == 'pld_one_sided':
      raise ValueError(
        "`accountant` must be one of 'rdp', 'pld', found 'pld_one_sided', "
        'which is no guarantee for more than one round.'
      )
    arguments.check_choice(
      'accountant', self.accountant, accounting.ACCOUNTANTS
    )
    checked = {
      'num_rounds': arguments.check_num_rounds(self.num_rounds),
      'target_delta': arguments.check_target_delta(self.target_delta),
    }
    if self.sampling == 'truncated_poisson':
      self._choose_bounds()
    mechanism = self._charged_mechanism
    checked |= {
      'num_clients': mechanism.num_clients,
      'clients_per_round': mechanism.clients_per_round,
      'noise_multiplier': mechanism.noise_multiplier,
      'min_clients_per_round': mechanism.min_clients_per_round,
      'max_clients_per_round': mechanism.max_clients_per_round,
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
        accounting.explain_no_epsilon(
          mechanism, self.accountant, self.num_rounds, self.target_delta
        )
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
    num_rounds: int,
    target_epsilon: float,
    target_delta: float,
    sampling: str = 'poisson',
    accountant: str = 'rdp',
    min_clients_per_round: int | None = None,
    max_clients_per_round: int | None = None,
  ) -> 'PrivacyPlan':
    """Returns the plan with the least noise that stays within an epsilon.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      num_rounds: The paper's T.
      target_epsilon: The paper's epsilon, positive.
      target_delta: The paper's delta, in (0, 1).
      sampling: As the attribute. For 'paper' it is the paper's epsilon that
        stays within the target; the actual one is larger.
      accountant: As the attribute.
      min_clients_per_round: As the attribute.
      max_clients_per_round: As the attribute.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or no noise in the
        accountant's range has this epsilon.
    """
    bounds = [min_clients_per_round, max_clients_per_round]
    if sampling == 'truncated_poisson' and None in bounds:
      bounds = _fill_in(
        bounds,
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        num_rounds=num_rounds,
        epsilon=arguments.check_positive('target_epsilon', target_epsilon),
        target_delta=target_delta,
      )
    noise_multiplier = accounting.calibrate_noise_multiplier(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=num_rounds,
      target_epsilon=target_epsilon,
      target_delta=target_delta,
      sampling=_charged_sampling(sampling),
      accountant=_check_plan_accountant(accountant),
      **dict(zip(_BOUNDS, bounds, strict=True)),
      warn=False,
    )
    return cls(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=num_rounds,
      target_delta=target_delta,
      noise_multiplier=noise_multiplier,
      sampling=sampling,
      accountant=accountant,
      target_epsilon=target_epsilon,
      **dict(zip(_BOUNDS, bounds, strict=True)),
    )

  @classmethod
  def from_noise_multiplier(
    cls,
    *,
    num_clients: int,
    clients_per_round: int,
    num_rounds: int,
    noise_multiplier: float,
    target_delta: float,
    sampling: str = 'poisson',
    accountant: str = 'rdp',
    min_clients_per_round: int | None = None,
    max_clients_per_round: int | None = None,
  ) -> 'PrivacyPlan':
    """Returns the plan with this noise; its epsilon is that of `num_rounds`.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      num_rounds: The paper's T.
      noise_multiplier: Noise on the sum over the clipping norm.
      target_delta: The paper's delta, in (0, 1).
      sampling: As the attribute.
      accountant: As the attribute.
      min_clients_per_round: As the attribute.
      max_clients_per_round: As the attribute.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range.
    """
    return cls(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=num_rounds,
      target_delta=target_delta,
      noise_multiplier=noise_multiplier,
      sampling=sampling,
      accountant=accountant,
      min_clients_per_round=min_clients_per_round,
      max_clients_per_round=max_clients_per_round,
    )

  @classmethod
  def from_max_rounds(
    cls,
    *,
    num_clients: int,
    clients_per_round: int,
    noise_multiplier: float,
    target_epsilon: float,
    target_delta: float,
    sampling: str = 'poisson',
    accountant: str = 'rdp',
    min_clients_per_round: int | None = None,
    max_clients_per_round: int | None = None,
  ) -> 'PrivacyPlan':
    """Returns the plan with the most rounds that stay within an epsilon.

    Args:
      num_clients: The paper's N.
      clients_per_round: The paper's P.
      noise_multiplier: Noise on the sum over the clipping norm.
      target_epsilon: The paper's epsilon, positive.
      target_delta: The paper's delta, in (0, 1).
      sampling: As the attribute.
      accountant: As the attribute.
      min_clients_per_round: As the attribute.
      max_clients_per_round: As the attribute.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or not a single round fits.
    """
    bounds = [min_clients_per_round, max_clients_per_round]
    if sampling == 'truncated_poisson' and None in bounds:
      bounds = _fill_in(
        bounds,
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        # With these bounds, so many rounds fit, and perhaps one more.
        num_rounds=accounting.compute_max_rounds(
          num_clients=num_clients,
          clients_per_round=clients_per_round,
          noise_multiplier=noise_multiplier,
          target_epsilon=target_epsilon,
          target_delta=truncated_poisson.without_tails(
            arguments.check_target_delta(target_delta)
          ),
          accountant=_check_plan_accountant(accountant),
          warn=False,
        ),
        epsilon=target_epsilon,
        target_delta=target_delta,
      )
    num_rounds = accounting.compute_max_rounds(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      noise_multiplier=noise_multiplier,
      target_epsilon=target_epsilon,
      target_delta=target_delta,
      sampling=_charged_sampling(sampling),
      accountant=_check_plan_accountant(accountant),
      **dict(zip(_BOUNDS, bounds, strict=True)),
      warn=False,
    )
    return cls(
      num_clients=num_clients,
      clients_per_round=clients_per_round,
      num_rounds=num_rounds,
      target_delta=target_delta,
      noise_multiplier=noise_multiplier,
      sampling=sampling,
      accountant=accountant,
      target_epsilon=target_epsilon,
      **dict(zip(_BOUNDS, bounds, strict=True)),
    )

  @property
  def sampling_prob(self) -> float:
    """The paper's q = P / N: a client's chance to be in a round."""
    return self._charged_mechanism.sampling_prob

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """The neighbouring relation that `epsilon` is for."""
    return self._charged_mechanism.relation

  @property
  def sensitivity_factor(self) -> int:
    """By how many clipping norms a client can change the sum: 1 or 2."""
    return self.relation.sensitivity_factor

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """What is charged for `num_rounds` rounds, for an accountant of `relation`.

    Under 'paper' it is the paper's Poisson event, not that of the sampler.
    Under 'truncated_poisson' it is the Poisson event, which is charged at the
    delta that cohorts out of bounds leave.
    """
    return dp_accounting.SelfComposedDpEvent(
      self._charged_mechanism.dp_event, self.num_rounds
    )

  @functools.cached_property
  def epsilon(self) -> float:
    """The epsilon of `num_rounds` rounds; under 'paper' the paper's figure."""
    return self.epsilon_after(self.num_rounds)

  @functools.cached_property
  def actual_epsilon(self) -> float:
    """The epsilon that the sampler really gives; differs under 'paper' only.

    For 'paper' it is that of fixed-size cohorts under replace-one, the relation
    under which their cost is known, by 'pld', the tightest accountant that is
    proved for them, or by 'rdp' where 'pld' has no answer (an epsilon in the
    hundreds).
    """
    return self.actual_epsilon_after(self.num_rounds)

  def epsilon_after(self, num_rounds: int) -> float:
    """Returns the epsilon of so many rounds; 0 for none.

    Args:
      num_rounds: Releases, each charged once, repeated rounds as well.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or more than are accounted for.
    """
    num_rounds = _check_num_releases(num_rounds)
    if num_rounds == 0:
      return 0.0
    return self._charged_rounds.compute_epsilon(num_rounds, self.target_delta)

  def actual_epsilon_after(self, num_rounds: int) -> float:
    """Returns what the sampler really gives after so many rounds; 0 for none.

    Args:
      num_rounds: As in `epsilon_after`.

    Raises:
      TypeError: If `num_rounds` is not an integer.
      ValueError: If it is negative or more than are accounted for.
    """
    if self.sampling != 'paper':
      return self.epsilon_after(num_rounds)
    num_rounds = _check_num_releases(num_rounds)
    if num_rounds == 0:
      return 0.0
    return self._compute_drawn(num_rounds)[0]

  def permits(self, num_releases: int) -> bool:
    """Returns whether so many releases stay within the plan.

    They do if they are at most `num_rounds`, or cost at most `target_epsilon`.

    Args:
      num_releases: All releases, those already made included.

    Raises:
      TypeError: If `num_releases` is not an integer.
      ValueError: If it is negative.
    """
    num_releases = arguments.check_integer(
      'num_releases', num_releases, at_least=0, at_most=2**63
    )
    if num_releases <= self.num_rounds:
      return True
    if self.target_epsilon is None or num_releases > arguments.MAX_ROUNDS:
      return False
    return self.epsilon_after(num_releases) <= self.target_epsilon

  @property
  def sampler_parameters(self) -> SamplerParameters:
    """What a sampler of clients has to do."""
    scheme = 'fixed_size' if self.sampling == 'paper' else self.sampling
    size = self.clients_per_round if scheme in ('fixed_size', 'none') else None
    bounds = [getattr(self, name) for name in _BOUNDS]
    return SamplerParameters(
      scheme, self.num_clients, self.sampling_prob, size, *bounds
    )

  @property
  def aggregator_parameters(self) -> AggregatorParameters:
    """What an aggregator has to add and divide by."""
    return AggregatorParameters(self.noise_multiplier, self.clients_per_round)

  @property
  def share_parameters(self) -> ShareParameters:
    """What an aggregator has to add if the clients bring shares of the noise.

    Its bounds hold for the population and for its neighbours: where all clients
    take part, one client less and one more.

    Raises:
      ValueError: If `sampling` is 'poisson', whose cohorts have no bounds: the
        shares of a cohort would tell its size.
    """
    if self.sampling == 'poisson':
      raise ValueError(
        "`sampling` must be 'truncated_poisson' or 'fixed_size' where the "
        "noise comes in shares, found 'poisson': without a largest cohort the "
        'noise tells how many clients took part.'
      )
    cohort = self.clients_per_round
    bounds = cohort, cohort
    if self.sampling == 'truncated_poisson':
      bounds = self.min_clients_per_round, self.max_clients_per_round
    if self.sampling == 'none':
      bounds = cohort - 1, cohort + 1
    return ShareParameters(self.noise_multiplier, cohort, *bounds)

  def summarize_noise(
    self, *, clipping_norm: float = 1.0, model_size: int | None = None
  ) -> noise_summary.NoiseSummary:
    """Returns how large the noise is; see `noise_summary.summarize_noise`."""
    return noise_summary.summarize_noise(
      noise_multiplier=self.noise_multiplier,
      clients_per_round=self.clients_per_round,
      clipping_norm=clipping_norm,
      model_size=model_size,
      min_clients_per_round=self.min_clients_per_round,
      max_clients_per_round=self.max_clients_per_round,
    )

  def describe(self, caveats: Sequence[str] = ()) -> str:
    """Returns the plan in sentences that one could put into a paper.

    Args:
      caveats: Why a run of the plan does not have its guarantee, in main
        clauses without a full stop. They come first.
    """
    if caveats:
      return (
        f'Not private as it was run: {"; ".join(caveats)}. The plan: '
        f'{self.describe()}'
      )
    version = importlib.metadata.version('dp-accounting')
    relations = {
      sampled_gaussian.Relation.ADD_OR_REMOVE_ONE: (
        'adding or removing one client'
      ),
      sampled_gaussian.Relation.REPLACE_ONE: 'replacing one client by another',
    }
    cohorts = {
      'poisson': (
        f'each of the {self.num_clients} clients takes part independently with '
        f'probability {self.sampling_prob:.6g} '
        f'({self.clients_per_round} expected)'
      ),
      'truncated_poisson': (
        f'each of the {self.num_clients} clients takes part independently with '
        f'probability {self.sampling_prob:.6g} ({self.clients_per_round} '
        f'expected; a cohort outside of {self.min_clients_per_round} to '
        f'{self.max_clients_per_round} clients is filled up or cut at random)'
      ),
      'fixed_size': (
        f'{self.clients_per_round} of the {self.num_clients} clients are drawn '
        'uniformly without replacement'
      ),
      'none': f'all {self.num_clients} clients take part',
    }
    accountants = {
      'rdp': f'Renyi differential privacy (dp-accounting {version})',
      'pld': f'privacy loss distributions (dp-accounting {version})',
    }
    rounds = '1 round' if self.num_rounds == 1 else f'{self.num_rounds} rounds'
    noise = (
      'Gaussian noise of standard deviation '
      f'{self.noise_multiplier:g} times the clipping norm is added to the sum '
      'of the clipped updates'
    )
    if self.sampling == 'paper':
      _, method = self._compute_drawn(self.num_rounds)
      return (
        f'In each of {rounds}, {cohorts["fixed_size"]} and {noise}. Charged as '
        f'in the paper, as if each client took part independently with '
        f'probability {self.sampling_prob:.6g}, this is '
        f'epsilon = {_round_up(self.epsilon)} at delta = {self.target_delta:g} '
        f'by {accountants[self.accountant]}; that figure does not hold for '
        'these cohorts. What holds is client-level '
        f'({_round_up(self.actual_epsilon)}, {self.target_delta:g})-'
        'differential privacy with respect to replacing one client by another, '
        'by '
        f'{accountants[method]}.'
      )
    return (
      f'Training for {rounds} satisfies client-level '
      f'({_round_up(self.epsilon)}, {self.target_delta:g})-differential '
      f'privacy with respect to {relations[self.relation]}: in each round '
      f'{cohorts[self.sampling]} and {noise}; accounted for by '
      f'{accountants[self.accountant]}.'
    )

  def __str__(self) -> str:
    return self.describe()

  def to_json(self, caveats: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the plan for `json.dump`: its attributes, and what follows.

    `from_json` reads the attributes back; the rest is for readers of the file.

    Args:
      caveats: Why a run of the plan does not have its guarantee; see
        `describe`.
    """
    return {
      'format': _JSON_FORMAT,
      **dataclasses.asdict(self),
      'sampling_prob': self.sampling_prob,
      'relation': self.relation.value,
      'epsilon': self.epsilon,
      'actual_epsilon': self.actual_epsilon,
      'dp_event': repr(self.dp_event),
      'caveats': list(caveats),
      'description': self.describe(caveats),
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'PrivacyPlan':
    """Returns the plan that `to_json` wrote.

    Args:
      value: What `json.load` returned.

    Raises:
      TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
      ValueError: If attributes are missing, unknown or out of range, or the
        epsilon in it is not that of the attributes: it was changed by hand.
    """
    if not isinstance(value, Mapping):
      raise TypeError(f'`value` must be a mapping, found {value!r}.')
    if value.get('format') != _JSON_FORMAT:
      raise ValueError(
        f'`value` must be of format {_JSON_FORMAT}, found '
        f'{value.get("format")!r}.'
      )
    names = [field.name for field in dataclasses.fields(cls)]
    missing = [name for name in names if name not in (*value, *_BOUNDS)]
    if missing:
      raise ValueError(f'`value` must hold {names}, found none of {missing}.')
    derived = {'format', 'sampling_prob', 'relation', 'epsilon'}
    derived |= {'actual_epsilon', 'dp_event', 'caveats', 'description'}
    unknown = sorted(set(value) - set(names) - derived)
    if unknown:
      raise ValueError(f'`value` must hold only {names}, found {unknown}.')
    plan = cls(**{name: value[name] for name in names if name in value})
    for name in ('epsilon', 'actual_epsilon'):
      # Versions of the accountant may differ in the last digits.
      found, expected = value.get(name), getattr(plan, name)
      if found is not None and not math.isclose(found, expected, rel_tol=1e-3):
        raise ValueError(
          f'`{name}` must be the {expected:.6g} that the plan costs, found '
          f'{found!r}.'
        )
    return plan

  def _choose_bounds(self) -> None:
    """Sets the bounds that are not given, for the plan's own epsilon."""
    bounds = [getattr(self, name) for name in _BOUNDS]
    if None not in bounds:
      return
    mechanism = sampled_gaussian.SampledGaussian(
      sampling='poisson',
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round,
      noise_multiplier=self.noise_multiplier,
    )
    rounds = accounting.build_rounds(mechanism, self.accountant)
    bounds = _fill_in(
      bounds,
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round,
      num_rounds=self.num_rounds,
      epsilon=rounds.compute_epsilon(
        self.num_rounds, truncated_poisson.without_tails(self.target_delta)
      ),
      target_delta=self.target_delta,
    )
    for name, bound in zip(_BOUNDS, bounds, strict=True):
      object.__setattr__(self, name, bound)

  @functools.cached_property
  def _charged_mechanism(self) -> sampled_gaussian.SampledGaussian:
    """One round as it is charged."""
    return self._build_mechanism(_charged_sampling(self.sampling))

  @functools.cached_property
  def _charged_rounds(self) -> accounting.Rounds:
    """Rounds as they are charged."""
    return accounting.build_rounds(self._charged_mechanism, self.accountant)

  def _compute_drawn(self, num_rounds: int) -> tuple[float, str]:
    """Returns the epsilon of the cohorts that 'paper' draws, and by what."""
    mechanism = self._build_mechanism('fixed_size')
    rounds = accounting.build_rounds(mechanism, 'pld')
    epsilon = rounds.compute_epsilon(num_rounds, self.target_delta)
    if math.isfinite(epsilon):
      return epsilon, 'pld'
    rounds = accounting.build_rounds(mechanism, 'rdp')
    return rounds.compute_epsilon(num_rounds, self.target_delta), 'rdp'

  def _build_mechanism(self, sampling: str) -> sampled_gaussian.SampledGaussian:
    """Returns one round with this sampler."""
    return sampled_gaussian.SampledGaussian(
      sampling=sampling,
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round,
      noise_multiplier=self.noise_multiplier,
      min_clients_per_round=self.min_clients_per_round,
      max_clients_per_round=self.max_clients_per_round,
    )


def _charged_sampling(sampling: str) -> str:
  """Returns the sampler whose event is charged."""
  arguments.check_choice('sampling', sampling, SAMPLINGS)
  return 'poisson' if sampling == 'paper' else sampling


def _fill_in(bounds: Sequence[int | None], **question: Any) -> tuple[int, int]:
  """Returns the bounds of cohorts, chosen where they are None."""
  chosen = truncated_poisson.choose_bounds(**question)
  return tuple(
    other if bound is None else bound
    for bound, other in zip(bounds, chosen, strict=True)
  )


def _check_plan_accountant(accountant: str) -> str:
  """Returns an accountant whose answers are guarantees."""
  return arguments.check_choice(
    'accountant', accountant, accounting.ACCOUNTANTS
  )


def _check_num_releases(num_rounds: int) -> int:
  """Returns a number of rounds in [0, MAX_ROUNDS]."""
  return arguments.check_integer(
    'num_rounds', num_rounds, at_least=0, at_most=arguments.MAX_ROUNDS
  )


def _round_up(epsilon: float) -> str:
  """Returns an epsilon with 4 significant digits that it does not exceed."""
  if epsilon == 0 or not math.isfinite(epsilon):
    return f'{epsilon:g}'
  unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
  return f'{math.ceil(epsilon / unit - 1e-9) * unit:.4g}'
