"""Epsilon, delta, noise multiplier or rounds of DP-FedAvg, from the others.

Every function takes the same keyword arguments:

  num_clients, clients_per_round: The paper's N and P.
  noise_multiplier: Standard deviation of the noise on the sum of the clipped
    updates, divided by the clipping norm, whatever the relation.
  num_rounds: The paper's T.
  target_epsilon, target_delta: The paper's epsilon and delta.
  sampling: 'poisson', 'truncated_poisson', 'fixed_size' or 'none', see
    `sampled_gaussian.Cohorts`. It fixes the neighbouring relation.
  min_clients_per_round, max_clients_per_round: The bounds of a cohort, for
    'truncated_poisson' alone, which needs both. `PrivacyPlan` chooses them.
  accountant: 'rdp' (default; what TensorFlow Privacy uses) or 'pld' (tighter).

All of them raise TypeError for an argument of the wrong kind and ValueError for
one that is out of range, and warn (`DeltaTooLargeWarning`) of a delta above
1/num_clients.
"""

import math

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  ranges,
  sampled_gaussian,
  search,
)


def compute_epsilon(
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
) -> float:
  """Returns the epsilon that `num_rounds` rounds spend, an upper bound.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A finite epsilon >= 0.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or the accountant has no finite
      answer.
  """
  cohorts = sampled_gaussian.Cohorts(
    sampling=_check_sampling(sampling, accountant),
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  mechanism = sampled_gaussian.SampledGaussian(cohorts, noise_multiplier)
  target_delta = _check_delta(target_delta, cohorts.num_clients)
  num_rounds = ranges.check_num_rounds(num_rounds)
  cost = accountants.compose([(mechanism, 1)], accountant)
  epsilon = cost.compute_epsilon(num_rounds, target_delta)
  if not math.isfinite(epsilon):
    raise accountants.NoEpsilonError(
      accountants.explain_no_epsilon(
        mechanism, accountant, num_rounds, target_delta
      )
    )
  return epsilon


def compute_delta(
  *,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  noise_multiplier: float,
  target_epsilon: float,
  sampling: str = 'poisson',
  accountant: str = 'rdp',
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
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
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A delta in [0, 1]; 1 promises nothing.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.
  """
  cohorts = sampled_gaussian.Cohorts(
    sampling=_check_sampling(sampling, accountant),
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  mechanism = sampled_gaussian.SampledGaussian(cohorts, noise_multiplier)
  num_rounds = ranges.check_num_rounds(num_rounds)
  target_epsilon = ranges.check_target_epsilon(target_epsilon)
  cost = accountants.compose([(mechanism, 1)], accountant)
  return cost.compute_delta(num_rounds, target_epsilon)


def calibrate_noise_multiplier(
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
) -> float:
  """Returns the smallest noise multiplier that keeps epsilon in the target.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    num_rounds: Rounds, at least 1.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A multiplier of 6 significant digits, rounded up: its epsilon by the same
    accountant was computed and is not above the target. It is the least such
    multiplier but for the search's tolerance: 1e-6 of it by 'rdp', 1e-5 by
    'pld'.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or no multiplier in the
      accountants' range has this epsilon.
  """
  cohorts = sampled_gaussian.Cohorts(
    sampling=_check_sampling(sampling, accountant),
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  target_delta = _check_delta(target_delta, cohorts.num_clients)
  return search.find_noise_multiplier(
    cohorts,
    accountant,
    num_rounds=num_rounds,
    target_epsilon=target_epsilon,
    target_delta=target_delta,
  )


def compute_max_rounds(
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
) -> int:
  """Returns the most rounds whose epsilon is not above the target.

  Args:
    num_clients: Clients in the population, at least 1.
    clients_per_round: Clients in a cohort, expected for Poisson sampling.
    noise_multiplier: Noise on the sum over the clipping norm.
    target_epsilon: The epsilon that must not be passed, positive.
    target_delta: Delta, in (0, 1).
    sampling: How cohorts are drawn.
    accountant: How the rounds are added up.
    min_clients_per_round: The least cohort, for 'truncated_poisson'.
    max_clients_per_round: The largest cohort, for 'truncated_poisson'.

  Returns:
    A number of rounds >= 1.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, one round alone passes the
      target, or more rounds would fit than are accounted for.
  """
  cohorts = sampled_gaussian.Cohorts(
    sampling=_check_sampling(sampling, accountant),
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_clients_per_round=min_clients_per_round,
    max_clients_per_round=max_clients_per_round,
  )
  mechanism = sampled_gaussian.SampledGaussian(cohorts, noise_multiplier)
  target_delta = _check_delta(target_delta, cohorts.num_clients)
  return search.find_max_rounds(
    mechanism,
    accountant,
    target_epsilon=target_epsilon,
    target_delta=target_delta,
  )


def _check_sampling(sampling: str, accountant: str) -> str:
  """Returns the sampling if it has one epsilon; checks the accountant too."""
  if sampling == 'paper':
    raise ValueError(
      "`sampling` 'paper' has two epsilons, the paper's and the one that its "
      "sampler really gives: build a `PrivacyPlan`, or take 'poisson' for the "
      "first and 'fixed_size' for the second, found 'paper'."
    )
  argument_checks.check_choice(
    'sampling', sampling, [*sampled_gaussian.RELATIONS]
  )
  accountants.check_accountant(accountant)
  return sampling


def _check_delta(target_delta: float, num_clients: int) -> float:
  """Returns delta in its range, and warns of one that is too large."""
  target_delta = ranges.check_target_delta(target_delta)
  ranges.warn_of_large_delta(target_delta, num_clients)
  return target_delta
