"""Epsilon, delta, noise multiplier or rounds of DP-FedAvg, from the others.

Every function takes attributes of `PrivacyPlan` by their names, with their
meaning and their defaults, and gives a guarantee. All of them raise TypeError
for an argument of the wrong kind or missing, and ValueError for one that is out
of range or where there is no answer. All but `compute_delta` warn
(`DeltaTooLargeWarning`) of a delta above 1/num_clients.
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
  """Returns the finite epsilon >= 0 that `num_rounds` rounds spend.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm.
    **attributes: `num_clients`, `clients_per_round`, `num_rounds` and
      `target_delta`; and, where they are not the defaults, `sampling`
      and `accountant`.

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
  """Returns the delta in [0, 1] that `num_rounds` rounds spend at an epsilon.

  Args:
    num_clients: As the attribute of a plan, and so are the others.
    clients_per_round: As there.
    num_rounds: As there.
    noise_multiplier: As there.
    target_epsilon: Epsilon, positive.
    sampling: As there.
    accountant: As there.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
  """
  cohorts = sampled_gaussian.Cohorts(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
  )
  mechanism = sampled_gaussian.SampledGaussian(
    cohorts, ranges.check('noise_multiplier', noise_multiplier)
  )
  num_rounds = ranges.check_count('num_rounds', num_rounds)
  target_epsilon = ranges.check('target_epsilon', target_epsilon)
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
    TypeError: As in `compute_epsilon`.
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
  """Returns the most rounds >= 1 whose epsilon is not above the target.

  Args:
    noise_multiplier: As in `compute_epsilon`.
    target_epsilon: As in `calibrate_noise_multiplier`.
    **attributes: As in `compute_epsilon`, without `num_rounds`.

  Raises:
    TypeError: As in `compute_epsilon`.
    ValueError: If an argument is out of range, one round alone passes the
      target, or more rounds would fit than are accounted for.
  """
  return PrivacyPlan.from_max_rounds(
    noise_multiplier=noise_multiplier,
    target_epsilon=target_epsilon,
    **attributes,
  ).num_rounds
