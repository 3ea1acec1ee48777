"""Corollary 1: the bound with privacy, its best parameters and their rate.

With c = η_l Q c′ and c′ >= G nothing is clipped, and with Theorem 2's σ² the
corrected bound of Theorem 1 becomes, constants kept,

    4 F / a + η_l² L² (Q − 1) (3 σ_l² + 2 Q σ_g²)
    + 12 η_g η_l L (σ_l² + ρ Q σ_g²) / P
    + a · 2 v L d c′² ln(1/δ) / (N² ε²),    a = η_g η_l Q T,

with F = f(x⁰) − f* and ρ = (N − P) / (N − 1) for cohorts of P of N clients. The
first and the last term depend on a alone; their best sum,
4 √(2 v F L d ln(1/δ)) c′ / (N ε), is the corollary's Õ(√d / (N ε)). It is
reached in the limit of many rounds and small η_l, where the others vanish.

Departs from the paper: it takes the bound as printed, without the variance of
client sampling. The rate stays.

Discussion 2 explains the cost of many layers by L² in the noise term, with
η_l ∝ 1/L. The L² is there for a given σ only: with c = η_l Q c′, η_l ∝ 1/L
takes L out of it.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.theory import bounds, theorem_2


@dataclasses.dataclass(frozen=True)
class Budget:
  """What is asked of the privacy.

  Attributes:
    target_epsilon: ε.
    target_delta: δ.
    relative_clipping_norm: c′ = c / (η_l Q), at least G.
    v: The v of Theorem 2.
  """

  target_epsilon: float
  target_delta: float
  relative_clipping_norm: float
  v: float = 1.0

  def __post_init__(self):
    argument_checks.check_positive('target_epsilon', self.target_epsilon)
    argument_checks.check_probability('target_delta', self.target_delta)
    argument_checks.check_positive(
      'relative_clipping_norm', self.relative_clipping_norm
    )
    argument_checks.check_positive('v', self.v)


class Optimum(NamedTuple):
  """The best parameters and the terms of the bound there."""

  schedule: bounds.Schedule
  terms: bounds.Theorem1Terms


def corollary_1_terms(
  problem: bounds.Problem, schedule: bounds.Schedule, budget: Budget
) -> bounds.Theorem1Terms:
  """The bound on 1/T Σ_t E||∇f(x^t)||² with Theorem 2's noise, term by term.

  Args:
    problem: The losses.
    schedule: The step sizes and sizes.
    budget: The privacy, and c′.

  Returns:
    The terms; those of clipping are 0.

  Raises:
    ValueError: c′ < G, where the corollary says nothing.

  Source: Corollary 1, eq. (9).
  """
  _check_nothing_is_clipped(problem, budget)
  noise_stddev = theorem_2.theorem_2_stddev(
    clipping_norm=(
      schedule.client_learning_rate
      * schedule.local_steps
      * budget.relative_clipping_norm
    ),
    num_clients=schedule.num_clients,
    clients_per_round=schedule.clients_per_round,
    num_rounds=schedule.num_rounds,
    target_epsilon=budget.target_epsilon,
    target_delta=budget.target_delta,
    v=budget.v,
  )
  return bounds.theorem_1_terms(problem, schedule, noise_stddev=noise_stddev)


def corollary_1_limit(
  problem: bounds.Problem, num_clients: int, budget: Budget
) -> float:
  """4 √(2 v F L d ln(1/δ)) c′ / (N ε): below every value of the bound.

  Args:
    problem: The losses.
    num_clients: N.
    budget: The privacy, and c′.

  Source: the rate of Corollary 1, with its constant.
  """
  _check_nothing_is_clipped(problem, budget)
  inner = (
    2.0
    * budget.v
    * problem.initial_gap
    * problem.smoothness
    * problem.dimension
    * math.log(1.0 / budget.target_delta)
  )
  return (
    4.0
    * math.sqrt(inner)
    * budget.relative_clipping_norm
    / (num_clients * budget.target_epsilon)
  )


def best_parameters(
  problem: bounds.Problem,
  budget: Budget,
  *,
  num_clients: int,
  clients_per_round: int,
  max_rounds: int = 10**9,
  max_local_steps: int = 1000,
) -> Optimum:
  """The η_g, η_l, Q and T of the least bound, under Theorem 1's conditions.

  For given Q, T and η_l the bound is A/η_g + B η_g + C, so its best η_g is
  √(A/B) or what the conditions allow. The other three are found on a grid of
  logarithms that is drawn closer around its best point.

  Args:
    problem: The losses.
    budget: The privacy, and c′.
    num_clients: N.
    clients_per_round: P.
    max_rounds: The largest T. The bound falls with T for ever, to
      `corollary_1_limit`.
    max_local_steps: The largest Q.

  Source: Corollary 1, 'by optimizing η_g, η_l, Q, T'.
  """
  _check_nothing_is_clipped(problem, budget)
  for name, value in (
    ('num_clients', num_clients),
    ('clients_per_round', clients_per_round),
    ('max_rounds', max_rounds),
    ('max_local_steps', max_local_steps),
  ):
    argument_checks.check_integer(name, value, at_least=1)
  bound = _bound_over_server_rates(
    problem, budget, num_clients, clients_per_round
  )
  largest_rate = 1.0 / (4.0 * problem.smoothness)
  rate_limits = math.log(largest_rate) - 40.0, math.log(largest_rate)
  step_limits = 0.0, math.log(max_local_steps)
  round_limits = 0.0, math.log(max_rounds)
  centre = [
    0.5 * (low + high) for low, high in (rate_limits, step_limits, round_limits)
  ]
  width = 1.0
  for _ in range(14):
    axes = [
      _axis(limits, middle, width)
      for limits, middle in zip(
        (rate_limits, step_limits, round_limits), centre, strict=True
      )
    ]
    rates = np.exp(axes[0])[:, None, None]
    steps = np.round(np.exp(axes[1]))[None, :, None]
    rounds = np.round(np.exp(axes[2]))[None, None, :]
    values, _ = bound(rates, steps, rounds)
    index = np.unravel_index(np.argmin(values), values.shape)
    centre = [axis[i] for axis, i in zip(axes, index, strict=True)]
    width *= 0.5
  steps, rounds = round(math.exp(centre[1])), round(math.exp(centre[2]))
  rate = math.exp(centre[0])
  _, server_rate = bound(
    np.float64(rate), np.float64(steps), np.float64(rounds)
  )
  schedule = bounds.Schedule(
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    local_steps=steps,
    num_rounds=rounds,
    client_learning_rate=rate,
    server_learning_rate=float(server_rate),
  )
  return Optimum(schedule, corollary_1_terms(problem, schedule, budget))


def _bound_over_server_rates(
  problem: bounds.Problem,
  budget: Budget,
  num_clients: int,
  clients_per_round: int,
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
  """The bound at the best η_g, and this η_g, as functions of η_l, Q and T."""
  p, smoothness = clients_per_round, problem.smoothness
  factor = bounds.sampling_factor(num_clients, p)
  local, between = problem.local_stddev**2, problem.global_stddev**2
  noise = (
    2.0
    * budget.v
    * smoothness
    * problem.dimension
    * budget.relative_clipping_norm**2
    * math.log(1.0 / budget.target_delta)
    / (num_clients * budget.target_epsilon) ** 2
  )

  def bound(rates, steps, rounds):
    falling = 4.0 * problem.initial_gap / (rates * steps * rounds)
    cohort = 12.0 * smoothness * (local + factor * steps * between) / p
    rising = rates * (cohort + noise * steps * rounds)
    drift = (
      (rates * smoothness) ** 2
      * (steps - 1)
      * (3 * local + 2 * steps * between)
    )
    # A hair below the limit, so that rounding does not break a condition.
    limit = (1.0 - 1e-9) / (16.0 * steps * smoothness * rates)
    server_rate = np.minimum(np.sqrt(falling / rising), limit)
    server_rate = np.where(server_rate > 0.0, server_rate, limit)
    values = falling / server_rate + rising * server_rate + drift
    allowed = 4.0 * rates * steps * smoothness <= 1.0
    return np.where(allowed, values, np.inf), server_rate

  return bound


def _axis(
  limits: tuple[float, float], middle: float, width: float
) -> np.ndarray:
  """Points of an axis around its middle, within its limits."""
  half = 0.5 * width * (limits[1] - limits[0])
  low, high = max(limits[0], middle - half), min(limits[1], middle + half)
  return np.linspace(low, high, 41)


def _check_nothing_is_clipped(problem: bounds.Problem, budget: Budget) -> None:
  if budget.relative_clipping_norm < problem.gradient_bound:
    raise ValueError(
      '`relative_clipping_norm` must be at least the bound on gradients, '
      f'{problem.gradient_bound}, found {budget.relative_clipping_norm}.'
    )
