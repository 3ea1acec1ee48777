"""Epsilon, delta, noise multiplier or rounds of DP-FedAvg, from the others.

Every function takes attributes of `PrivacyPlan` by their names, which has their
meaning and their defaults. Delta alone is not that of a plan.

All of them raise TypeError for an argument of the wrong kind or missing, and
ValueError for one that is out of range, and warn (`DeltaTooLargeWarning`) of a
delta above 1/num_clients.
"""

from typing import TYPE_CHECKING

from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
)
from tff_clipping.privacy.plans.base_plan import PlanAttributes
from tff_clipping.privacy.plans.plan import PrivacyPlan

if TYPE_CHECKING:
  from typing_extensions import Unpack


def compute_epsilon(
  *, noise_multiplier: float, **attributes: 'Unpack[PlanAttributes]'
) -> float:
  """Returns the epsilon that `num_rounds` rounds spend, an upper bound.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm.
    **attributes: `num_clients`, `clients_per_round`, `num_rounds` and
      `target_delta`; and, where they are not the defaults, `sampling`
      and `accountant`.

  Returns:
    A finite epsilon >= 0.

  Raises:
    TypeError: If an argument is of the wrong kind, or missing.
    ValueError: If an argument is out of range, or the accountant has no finite
      answer.
  """
  return PrivacyPlan.from_noise_multiplier(
    noise_multiplier=noise_multiplier, **attributes
  ).epsilon


def compute_delta(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  noise_multiplier: float,
  target_epsilon: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
) -> float:
  """Returns the delta that `num_rounds` rounds spend at an epsilon, from above.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_epsilon: Epsilon, positive.
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.

  Returns:
    A delta in [0, 1]; 1 promises nothing.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
  """
  accountants.check_accountant(accountant)
  cohorts = sampled_gaussian.Cohorts(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
  )
  mechanism = sampled_gaussian.SampledGaussian(
    cohorts, ranges.check_noise_multiplier(noise_multiplier)
  )
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  cost = accountants.compose([(mechanism, num_rounds)], accountant)
  return cost.compute_delta(target_epsilon)


def calibrate_noise_multiplier(
  *, target_epsilon: float, **attributes: 'Unpack[PlanAttributes]'
) -> float:
  """Returns the smallest noise multiplier that keeps epsilon in the target.

  Args:
    target_epsilon: The epsilon that must not be passed, positive.
    **attributes: As in `compute_epsilon`.

  Returns:
    The least multiplier of 6 significant digits whose epsilon by the same
    accountant is not above the target.

  Raises:
    TypeError: If an argument is of the wrong kind, or missing.
    ValueError: If an argument is out of range, or no multiplier in the
      accountants' range has this epsilon.
  """
  return PrivacyPlan.from_target_epsilon(
    target_epsilon=target_epsilon, **attributes
  ).noise_multiplier


def compute_max_rounds(
  *,
  noise_multiplier: float,
  target_epsilon: float,
  **attributes: 'Unpack[PlanAttributes]',
) -> int:
  """Returns the most rounds whose epsilon is not above the target.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm.
    target_epsilon: The epsilon that must not be passed, positive.
    **attributes: As in `compute_epsilon`, without `num_rounds`.

  Returns:
    A number of rounds >= 1.

  Raises:
    TypeError: If an argument is of the wrong kind, or missing.
    ValueError: If an argument is out of range, one round alone passes the
      target, or more rounds would fit than are accounted for.
  """
  return PrivacyPlan.from_max_rounds(
    noise_multiplier=noise_multiplier,
    target_epsilon=target_epsilon,
    **attributes,
  ).num_rounds
