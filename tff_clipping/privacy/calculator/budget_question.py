"""A question to the budget calculator, and the plan that answers it."""

import dataclasses
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import solve as solve_for
from tff_clipping.privacy.correlated_noise import by_name
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan
from tff_clipping.privacy.plans.plan import SAMPLINGS as INDEPENDENT
from tff_clipping.privacy.plans.plan import PrivacyPlan

SAMPLINGS = (*INDEPENDENT, *by_name.SAMPLINGS)

_NUMBERS = (
  *('num_clients', 'clients_per_round'),
  *('target_epsilon', 'noise_multiplier', 'num_rounds'),
)

# The constructor of a plan that solves for a number.
_CONSTRUCTORS = {
  'noise_multiplier': 'from_target_epsilon',
  'target_epsilon': 'from_noise_multiplier',
  'num_rounds': 'from_max_rounds',
  'clients_per_round': 'from_noise_to_clients_ratio',
  'num_clients': 'from_smallest_population',
}

# More rounds are not optimised for: it would take minutes.
MAX_STRATEGY_ROUNDS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
  """The attributes of a plan, of which one number is left to solve for.

  The number that is solved for is None. To solve for `clients_per_round`, give
  `noise_to_clients_ratio`, and no `noise_multiplier`.

  Attributes:
    noise_to_clients_ratio: z / P.
    mechanism: One of `by_name.MECHANISMS`; 'gaussian' for `PrivacyPlan`.
    min_separation: b, which 'min_separation' and 'grouped_poisson' need. With
      other samplings, the b of the strategies to compare with.
    accountant: As in `PrivacyPlan`; None for 'rdp', under 'random_allocation'
      for 'pld'. With correlated noise it must be None.

  The other attributes are those of a plan.

  Raises:
    ValueError: If not exactly one number is left to solve for, or attributes do
      not go together. `solve` checks each of them.
  """

  target_delta: float
  num_clients: int | None = None
  clients_per_round: int | None = None
  target_epsilon: float | None = None
  noise_multiplier: float | None = None
  num_rounds: int | None = None
  noise_to_clients_ratio: float | None = None
  sampling: str = 'poisson'
  mechanism: str = 'gaussian'
  min_separation: int | None = None
  accountant: str | None = None

  def __post_init__(self):
    given = [name for name in _NUMBERS if getattr(self, name) is not None]
    if self.noise_to_clients_ratio is not None:
      is_right = given == ['num_clients', 'target_epsilon', 'num_rounds']
    else:
      is_right = len(given) == 4 and 'clients_per_round' in given
    if not is_right:
      numbers, found = (
        ', '.join(f'`{name}`' for name in names) for names in (_NUMBERS, given)
      )
      raise ValueError(
        f'all but one of {numbers} must be given, or `noise_to_clients_ratio` '
        'in place of `clients_per_round` and `noise_multiplier`, found '
        f'{found or "none"}.'
      )
    if not self.is_correlated and self.mechanism != 'gaussian':
      listed = ', '.join(by_name.SAMPLINGS)
      raise ValueError(
        f"`mechanism` must be 'gaussian' where `sampling` is none of {listed}, "
        f'found {self.mechanism!r} for {self.sampling!r}.'
      )
    if self.is_correlated and self.min_separation is None:
      raise ValueError(
        f'`min_separation` must be given with `mechanism` {self.mechanism!r} '
        f'and `sampling` {self.sampling!r}: the rounds from one participation '
        'of a client to its next, at least.'
      )
    if self.is_correlated and self.accountant is not None:
      raise ValueError(
        '`accountant` must not be given where `sampling` is '
        f'{self.sampling!r}, found {self.accountant!r}: there is one only.'
      )

  @property
  def is_correlated(self) -> bool:
    """Whether the answer is a `CorrelatedNoisePlan`."""
    return self.sampling in by_name.SAMPLINGS

  @property
  def solved_for(self) -> str:
    """The number that is not given."""
    if self.noise_to_clients_ratio is not None:
      return 'clients_per_round'
    return next(name for name in _NUMBERS if getattr(self, name) is None)


def solve(
  question: Question, *, max_strategy_rounds: int = MAX_STRATEGY_ROUNDS
) -> BasePlan:
  """Returns the plan that answers a question.

  Args:
    question: The question.
    max_strategy_rounds: The most rounds of a strategy.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If a value is out of range, or there is no answer.
  """
  given = {
    name: value
    for name, value in vars(question).items()
    if value is not None and name not in ('mechanism', 'min_separation')
  }
  constructor = _CONSTRUCTORS[question.solved_for]
  if not question.is_correlated:
    if question.accountant is None and question.sampling == 'random_allocation':
      given['accountant'] = 'pld'
    return getattr(PrivacyPlan, constructor)(**given)
  if question.solved_for == 'num_rounds':
    return _find_rounds(question, given, max_strategy_rounds)
  num_rounds = given.pop('num_rounds')
  return getattr(CorrelatedNoisePlan, constructor)(
    **given, **_build_strategy(question, num_rounds, max_strategy_rounds)
  )


def _build_strategy(
  question: Question, num_rounds: int, most: int
) -> dict[str, Any]:
  """Returns the best strategy of so many rounds, and its separation."""
  argument_checks.check_integer(
    'num_rounds', num_rounds, at_least=1, at_most=most
  )
  separation = question.min_separation
  assert separation is not None  # As `Question` checks.
  # The number that is solved for is not known yet, and changes nothing here.
  clients_per_round = question.clients_per_round or 1
  strategy = by_name.build_strategy(
    question.mechanism,
    num_rounds=num_rounds,
    num_clients=question.num_clients or clients_per_round * separation,
    clients_per_round=clients_per_round,
    min_separation=separation,
    sampling=question.sampling,
  )
  return {'strategy': strategy, 'min_separation': separation}


def _find_rounds(
  question: Question, given: dict[str, Any], most: int
) -> BasePlan:
  """Returns the plan with the most rounds, and the best strategy for them."""
  target = given.pop('target_epsilon')
  plan = solve_for.find(
    lambda num_rounds: CorrelatedNoisePlan.from_noise_multiplier(
      **given, **_build_strategy(question, num_rounds, most)
    ),
    most,
    1,
    target,
    name='num_rounds',
    start=1,
    low_is_answer=False,
  )
  return dataclasses.replace(plan, target_epsilon=target)
