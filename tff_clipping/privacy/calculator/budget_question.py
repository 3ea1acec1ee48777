"""What the budget calculator is asked, and the plan that answers it."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import accountants, ranges, search
from tff_clipping.privacy.correlated_noise import by_name, separated_sampling
from tff_clipping.privacy.plans import base_plan, correlated_plan
from tff_clipping.privacy.plans import plan as plan_lib

SAMPLINGS = (*plan_lib.SAMPLINGS, *separated_sampling.SAMPLINGS)

SOLVABLE = ('target_epsilon', 'noise_multiplier', 'num_rounds')

# More rounds are not optimised for: it would take minutes.
MAX_STRATEGY_ROUNDS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
  """What is given, with one of four numbers left to solve for.

  Two of `target_epsilon`, `noise_multiplier` and `num_rounds`, with
  `clients_per_round`; or `noise_to_clients_ratio` with `target_epsilon` and
  `num_rounds`, to solve for `clients_per_round`.

  Attributes:
    num_clients: The paper's N.
    target_delta: The paper's delta.
    clients_per_round: The paper's P, or None to solve for it.
    target_epsilon: The paper's epsilon, or None to solve for it.
    noise_multiplier: Noise on the sum over the clipping norm, or None; with
      correlated noise, that of a draw.
    num_rounds: The paper's T, or None.
    noise_to_clients_ratio: z / P, or None.
    sampling: As in `PrivacyPlan` or `CorrelatedNoisePlan`.
    mechanism: One of `mechanisms.MECHANISMS`; 'gaussian' for `PrivacyPlan`.
    min_separation: b, which 'min_separation' and 'grouped_poisson' need. With
      other samplings, that of the strategies to compare with.
    accountant: As in `PrivacyPlan`, None for 'rdp'. With correlated noise there
      is one only, and it must be None.
    clipping_norm: The paper's c, for the noise in its unit.
    model_size: The number of parameters, or None.
    min_clients_per_round: As in `PrivacyPlan`.
    max_clients_per_round: As in `PrivacyPlan`.
    false_positive_rate: That of the attacks to bound, or None for no bounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If they do not leave one number to solve for, or do not go
      together.
  """

  num_clients: int
  target_delta: float
  clients_per_round: int | None = None
  target_epsilon: float | None = None
  noise_multiplier: float | None = None
  num_rounds: int | None = None
  noise_to_clients_ratio: float | None = None
  sampling: str = 'poisson'
  mechanism: str = 'gaussian'
  min_separation: int | None = None
  accountant: str | None = None
  clipping_norm: float = 1.0
  model_size: int | None = None
  min_clients_per_round: int | None = None
  max_clients_per_round: int | None = None
  false_positive_rate: float | None = None

  def __post_init__(self):
    argument_checks.check_choice('sampling', self.sampling, SAMPLINGS)
    argument_checks.check_choice(
      'mechanism', self.mechanism, by_name.MECHANISMS
    )
    if self.false_positive_rate is not None:
      argument_checks.check_probability(
        'false_positive_rate', self.false_positive_rate
      )
    self._check_what_is_given()
    if self.is_correlated:
      self._check_correlated()
    elif self.mechanism != 'gaussian':
      listed = ', '.join(separated_sampling.SAMPLINGS)
      raise ValueError(
        f"`mechanism` must be 'gaussian' where `sampling` is none of {listed}, "
        f'found {self.mechanism!r} for {self.sampling!r}.'
      )

  @property
  def is_correlated(self) -> bool:
    """Whether a `CorrelatedNoisePlan` answers it."""
    return self.sampling in separated_sampling.SAMPLINGS

  @property
  def solved_for(self) -> str:
    """The number that is not given."""
    if self.noise_to_clients_ratio is not None:
      return 'clients_per_round'
    return next(name for name in SOLVABLE if getattr(self, name) is None)

  def _check_what_is_given(self) -> None:
    """Raises unless one number is left."""
    given = [name for name in SOLVABLE if getattr(self, name) is not None]
    listed = ' and '.join(f'`{name}`' for name in given) or 'none of them'
    if self.noise_to_clients_ratio is None:
      if len(given) != 2:
        raise ValueError(
          'exactly two of `target_epsilon`, `noise_multiplier` and '
          f'`num_rounds` must be given, found {listed}.'
        )
      if self.clients_per_round is None:
        raise ValueError(
          '`clients_per_round` must be given, or `noise_to_clients_ratio` to '
          'solve for it.'
        )
      return
    if given != ['target_epsilon', 'num_rounds']:
      raise ValueError(
        '`noise_to_clients_ratio` must be given with `target_epsilon` and '
        f'`num_rounds` alone, found {listed}.'
      )
    for name in (
      'clients_per_round',
      'min_clients_per_round',
      'max_clients_per_round',
    ):
      if getattr(self, name) is not None:
        raise ValueError(
          f'`{name}` must not be given with `noise_to_clients_ratio`, which '
          f'solves for `clients_per_round`, found {getattr(self, name)}.'
        )

  def _check_correlated(self) -> None:
    """Raises if what is given does not go with correlated noise."""
    for name in (
      'accountant',
      'min_clients_per_round',
      'max_clients_per_round',
    ):
      if getattr(self, name) is not None:
        raise ValueError(
          f'`{name}` must not be given where `sampling` is {self.sampling!r}, '
          f'found {getattr(self, name)!r}.'
        )
    if self.min_separation is None and self.sampling != 'shuffled_epochs':
      raise ValueError(
        f'`min_separation` must be given with `mechanism` {self.mechanism!r} '
        f'and `sampling` {self.sampling!r}: the rounds from one participation '
        'of a client to its next, at least.'
      )
    if (
      self.sampling == 'shuffled_epochs'
      and self.solved_for == 'clients_per_round'
    ):
      raise ValueError(
        '`noise_to_clients_ratio` must not be given where `sampling` is '
        "'shuffled_epochs': an epoch has as many rounds as "
        f'`clients_per_round` leaves, found {self.noise_to_clients_ratio:g}.'
      )


def solve(
  question: Question, *, max_strategy_rounds: int = MAX_STRATEGY_ROUNDS
) -> base_plan.BasePlan:
  """Returns the plan that answers a question.

  Args:
    question: What is given.
    max_strategy_rounds: The most rounds that a strategy is made for.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If a value is out of range, or there is no answer.
  """
  if question.is_correlated:
    return _solve_correlated(question, max_strategy_rounds)
  names = {
    'noise_multiplier': ('num_rounds', 'target_epsilon'),
    'target_epsilon': ('num_rounds', 'noise_multiplier'),
    'num_rounds': ('noise_multiplier', 'target_epsilon'),
    'clients_per_round': (
      *('num_rounds', 'target_epsilon', 'noise_to_clients_ratio'),
    ),
  }[question.solved_for]
  if question.solved_for != 'clients_per_round':
    names = (
      *names,
      *('clients_per_round', 'min_clients_per_round', 'max_clients_per_round'),
    )
  return _builder(plan_lib.PrivacyPlan, question)(
    num_clients=question.num_clients,
    target_delta=question.target_delta,
    sampling=question.sampling,
    accountant=question.accountant or 'rdp',
    **{name: getattr(question, name) for name in names},
  )


def _solve_correlated(
  question: Question, most: int
) -> correlated_plan.CorrelatedNoisePlan:
  """Returns the plan with correlated noise that answers a question."""
  if question.solved_for == 'num_rounds':
    return _find_rounds(question, most)
  names = {
    'noise_multiplier': ('target_epsilon', 'clients_per_round'),
    'target_epsilon': ('noise_multiplier', 'clients_per_round'),
    'clients_per_round': ('target_epsilon', 'noise_to_clients_ratio'),
  }[question.solved_for]
  return _builder(correlated_plan.CorrelatedNoisePlan, question)(
    num_clients=question.num_clients,
    target_delta=question.target_delta,
    strategy=_build_strategy(question, question.num_rounds, most),
    min_separation=_separation(question),
    sampling=question.sampling,
    **{name: getattr(question, name) for name in names},
  )


def _builder(
  plan_class: type[base_plan.BasePlan], question: Question
) -> Callable[..., Any]:
  """Returns the constructor that solves for what is not given."""
  name = {
    'noise_multiplier': 'from_target_epsilon',
    'target_epsilon': 'from_noise_multiplier',
    'num_rounds': 'from_max_rounds',
    'clients_per_round': 'from_noise_to_clients_ratio',
  }[question.solved_for]
  return getattr(plan_class, name)


def _build_strategy(
  question: Question, num_rounds: int, most: int
) -> correlated_noise.NoiseStrategy:
  """Returns the strategy of the question's mechanism for so many rounds."""
  argument_checks.check_integer(
    'num_rounds', num_rounds, at_least=1, at_most=most
  )
  return by_name.build_strategy(
    question.mechanism,
    num_rounds=num_rounds,
    num_clients=question.num_clients,
    # Not known yet where it is solved for, and of no account.
    clients_per_round=question.clients_per_round or 1,
    min_separation=_separation(question),
    sampling=question.sampling,
  )


def _separation(question: Question) -> int:
  """Returns b; 1 with epochs."""
  return 1 if question.min_separation is None else question.min_separation


def _find_rounds(
  question: Question, most: int
) -> correlated_plan.CorrelatedNoisePlan:
  """Returns the plan with the most rounds, its strategy made for so many.

  The search takes epsilon to grow with the rounds, each time with a strategy of
  its own. Should it not, more rounds might fit; those that are returned do.
  """
  target_epsilon = ranges.check_target_epsilon(question.target_epsilon)

  def build(
    num_rounds: int, **target: float
  ) -> correlated_plan.CorrelatedNoisePlan:
    return correlated_plan.CorrelatedNoisePlan(
      num_clients=question.num_clients,
      clients_per_round=question.clients_per_round,
      num_rounds=num_rounds,
      target_delta=question.target_delta,
      noise_multiplier=question.noise_multiplier,
      strategy=_build_strategy(question, num_rounds, most),
      min_separation=_separation(question),
      sampling=question.sampling,
      **target,
    )

  def compute_epsilon(num_rounds: int) -> float:
    with warnings.catch_warnings():  # Of delta: the plan itself warns.
      warnings.simplefilter('ignore', ranges.DeltaTooLargeWarning)
      try:
        return build(num_rounds).epsilon
      except accountants.NoEpsilonError:
        return math.inf

  unit = 1
  if (
    question.sampling == 'shuffled_epochs' and question.mechanism != 'gaussian'
  ):
    unit = -(-question.num_clients // question.clients_per_round)
  found = unit * search.search_max_rounds(
    lambda count: compute_epsilon(count * unit) <= target_epsilon, most // unit
  )
  if found == 0:
    what = 'a single round' if unit == 1 else f'an epoch of {unit} rounds'
    raise ValueError(
      f'`target_epsilon` {target_epsilon:g} does not allow {what}: with '
      f'`noise_multiplier` {question.noise_multiplier:g} it costs '
      f'{compute_epsilon(unit):.4g}.'
    )
  if found > most - unit:
    raise ValueError(
      f'`noise_multiplier` {question.noise_multiplier:g} allows more than '
      f'{found} rounds within `target_epsilon` {target_epsilon:g}, the most '
      'that strategies are made for here: give fewer rounds, or less noise.'
    )
  return build(found, target_epsilon=target_epsilon)
