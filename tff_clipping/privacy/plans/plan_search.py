"""What the constructors of plans find: noise, rounds, clients, a population."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  noise_search,
  ranges,
  rounding,
  search,
)

if TYPE_CHECKING:
  from tff_clipping.privacy.plans.base_plan import BasePlan

# The samplings whose cohorts are a fixed share of the population.
_TIED_TO_COHORTS = ('none', 'random_allocation')

_Plan = TypeVar('_Plan', bound='BasePlan')


def with_least_noise(
  plan_type: type[_Plan], given: Mapping[str, Any], exact: float
) -> _Plan:
  """Returns the plan of a multiplier that a closed form gives, rounded up.

  Args:
    plan_type: The kind of plan.
    given: The attributes, but for `noise_multiplier`.
    exact: The least multiplier that stays within `target_epsilon`.

  Raises:
    ValueError: If it is out of the range that is accounted for.
  """
  target_epsilon = given['target_epsilon']
  digits = noise_search.MULTIPLIER_DIGITS
  multiplier = rounding.round_up(exact, digits=digits)
  least, most = ranges.MIN_NOISE_MULTIPLIER, ranges.MAX_NOISE_MULTIPLIER
  if not least <= multiplier <= most:
    raise ValueError(
      f'`target_epsilon` {target_epsilon:g} needs a noise multiplier of '
      f'{multiplier:g}, which is not in the range that is accounted for, '
      f'{least:g} to {most:g}.'
    )
  plan = plan_type(**{**given, 'noise_multiplier': multiplier})
  if plan.epsilon <= target_epsilon:
    return plan
  # By a rounding error, for which a plan has slack and noise has none.
  more = rounding.round_up(multiplier * (1 + 10.0**-digits), digits=digits)
  return dataclasses.replace(plan, noise_multiplier=more)


def with_most_rounds(plan: _Plan, target_epsilon: float, most: int) -> _Plan:
  """Returns a plan with the most rounds that a target allows.

  Args:
    plan: The plan, of any number of rounds and without a target.
    target_epsilon: The paper's epsilon, checked.
    most: No plan has more rounds.
  """
  found = search.search_rounds_within(
    plan.epsilon_after,
    noise_multiplier=plan.noise_multiplier,
    target_epsilon=target_epsilon,
    most=most,
  )
  return dataclasses.replace(
    plan, num_rounds=found, target_epsilon=target_epsilon
  )


def with_fewest_clients(
  plan_type: type[_Plan],
  given: Mapping[str, Any],
  *,
  noise_to_clients_ratio: float,
  most: int,
) -> _Plan:
  """Returns the plan of the smallest cohort, with the noise that z / P gives.

  Args:
    plan_type: The kind of plan.
    given: The attributes, but for `clients_per_round` and `noise_multiplier`.
    noise_to_clients_ratio: z / P.
    most: The largest cohort that there is a plan for.
  """

  def build(clients_per_round: int, **target: Any) -> _Plan:
    return plan_type(
      **{**given, **target},
      clients_per_round=clients_per_round,
      noise_multiplier=noise_to_clients_ratio * clients_per_round,
    )

  found = search.search_clients_per_round(
    lambda clients: try_epsilon(lambda: build(clients, target_epsilon=None)),
    noise_to_clients_ratio=noise_to_clients_ratio,
    target_epsilon=given['target_epsilon'],
    most=most,
  )
  return build(found)


def with_smallest_population(
  plan_type: type[_Plan], given: Mapping[str, Any]
) -> _Plan:
  """Returns the plan of the smallest population within a target.

  Args:
    plan_type: The kind of plan.
    given: The attributes, but for `num_clients`.
  """
  if given['sampling'] in _TIED_TO_COHORTS:
    raise ValueError(
      '`num_clients` must be given where `sampling` is '
      f'{given["sampling"]!r}, found none: cohorts there have a fixed share '
      'of the population.'
    )

  def build(num_clients: int, **target: Any) -> _Plan:
    return plan_type(**{**given, **target}, num_clients=num_clients)

  found = search.search_num_clients(
    lambda clients: try_epsilon(lambda: build(clients, target_epsilon=None)),
    target_epsilon=given['target_epsilon'],
    fewest=_find_least_population(given),
  )
  return build(found)


def try_epsilon(build: Callable[[], 'BasePlan']) -> float:
  """Returns the epsilon of a plan that is only tried; inf if it has none.

  Args:
    build: Returns the plan. Of its delta, the one that is taken will warn.
  """
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', ranges.DeltaWarning)
    try:
      return build().epsilon
    except accountants.NoEpsilonError:
      return math.inf


def _find_least_population(given: Mapping[str, Any]) -> int:
  """Returns the fewest clients that can fill cohorts.

  Where a client keeps a distance, as many as fill the cohorts until it comes
  again.
  """
  cohort = argument_checks.check_integer(
    'clients_per_round',
    given['clients_per_round'],
    at_least=1,
    at_most=ranges.MAX_CLIENTS,
  )
  separation = argument_checks.check_integer(
    'min_separation',
    given.get('min_separation', 1),
    at_least=1,
    at_most=ranges.MAX_ROUNDS,
  )
  return cohort * separation
