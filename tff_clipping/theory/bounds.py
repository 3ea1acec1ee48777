"""Theorem 1 term by term, with its conditions.

Here f is the mean of the clients' losses, as the proof of Theorem 1 takes it
(the paper's eq. (1) has the sum), and `noise_stddev` is σ of the noise that
each client adds.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import numpy as np

from tff_clipping.theory import clipping_bias, validation

# Theorem 1 as it is stated, or with what its proof arrives at.
Constants = Literal['statement', 'proof']


@dataclasses.dataclass(frozen=True)
class Problem:
  """What Theorem 1 assumes of the losses.

  Attributes:
    smoothness: L, the Lipschitz constant of every ∇f_i.
    gradient_bound: G, at least every ||g_i||.
    local_stddev: σ_l, the root of the bound on E||g_i − ∇f_i||².
    global_stddev: σ_g, the root of the bound on ||∇f_i − ∇f||².
    initial_gap: f(x⁰) − f*.
    dimension: d, the number of the model's parameters.
  """

  smoothness: float
  gradient_bound: float
  local_stddev: float
  global_stddev: float
  initial_gap: float
  dimension: int

  def __post_init__(self):
    validation.check_positive('smoothness', self.smoothness)
    validation.check_non_negative('gradient_bound', self.gradient_bound)
    validation.check_non_negative('local_stddev', self.local_stddev)
    validation.check_non_negative('global_stddev', self.global_stddev)
    validation.check_non_negative('initial_gap', self.initial_gap)
    validation.check_count('dimension', self.dimension)


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How DP-FedAvg is run.

  Attributes:
    num_clients: N.
    clients_per_round: P, at most N.
    local_steps: Q.
    num_rounds: T.
    client_learning_rate: η_l.
    server_learning_rate: η_g.
  """

  num_clients: int
  clients_per_round: int
  local_steps: int
  num_rounds: int
  client_learning_rate: float
  server_learning_rate: float

  def __post_init__(self):
    for name in (
      'num_clients',
      'clients_per_round',
      'local_steps',
      'num_rounds',
    ):
      validation.check_count(name, getattr(self, name))
    for name in ('client_learning_rate', 'server_learning_rate'):
      validation.check_positive(name, getattr(self, name))
    if self.clients_per_round > self.num_clients:
      raise ValueError(
        f'`clients_per_round` must be at most {self.num_clients}, found '
        f'{self.clients_per_round}.'
      )


class Condition(NamedTuple):
  """One condition of a theorem: `value` must be at most `limit`."""

  name: str
  value: float
  limit: float

  @property
  def holds(self) -> bool:
    return self.value <= self.limit


class Theorem1Terms(NamedTuple):
  """The terms of the bound on 1/T Σ_t E[ᾱ^t ||∇f(x^t)||²].

  Attributes:
    initial_gap: 4 (f(x⁰) − f*) / (η_g η_l Q T).
    client_drift: What Q local steps on differing clients cost.
    sampling_noise: What the gradients' variance at P clients costs.
    privacy_noise: What the clients' noise costs.
    clipping_bias: G² times the mean deviation of the α.
    clipping_variance: The same in squares, times η_g η_l L Q.
  """

  initial_gap: float
  client_drift: float
  sampling_noise: float
  privacy_noise: float
  clipping_bias: float
  clipping_variance: float

  @property
  def standard(self) -> float:
    """The terms that FedAvg has too."""
    return self.initial_gap + self.client_drift + self.sampling_noise

  @property
  def clipping(self) -> float:
    """Both terms that clipping causes."""
    return self.clipping_bias + self.clipping_variance

  @property
  def total(self) -> float:
    """The bound."""
    return self.standard + self.privacy_noise + self.clipping


def theorem_1_conditions(
  problem: Problem, schedule: Schedule, constants: Constants = 'statement'
) -> list[Condition]:
  """The conditions on the step sizes, with the value and the limit of each.

  η_g η_l <= P / (48 Q), or √P / (√(48 Q) Q) in the proof;
  η_g η_l <= P / (6 Q L (P − 1)), which is nothing for P = 1;
  η_l <= 1 / (√60 Q L).

  Neither form of the first scales with 1/L as a product of two step sizes must;
  the term that it is to absorb, 12/P η_l² η_g² Q³ ||∇f||², lost a factor L on
  its way into the proof. And at η_l = 1 / (√60 Q L) the drift alone uses up all
  that the proof's −1/4 η_g η_l Q ||∇f||² leaves, so that the bound is only
  proved for smaller η_l.

  Args:
    problem: The losses.
    schedule: The step sizes and sizes.
    constants: Whose first condition to take.

  Source: Theorem 1 and, for 'proof', the last steps of its proof.
  """
  _check_constants(constants)
  p, q = schedule.clients_per_round, schedule.local_steps
  smoothness = problem.smoothness
  product = schedule.server_learning_rate * schedule.client_learning_rate
  if constants == 'statement':
    first = Condition('η_g η_l <= P / (48 Q)', product, p / (48 * q))
  else:
    first = Condition(
      'η_g η_l <= √P / (√(48 Q) Q)', product, math.sqrt(p / (48 * q)) / q
    )
  return [
    first,
    Condition(
      'η_g η_l <= P / (6 Q L (P − 1))',
      product,
      p / (6 * q * smoothness * (p - 1)) if p > 1 else math.inf,
    ),
    Condition(
      'η_l <= 1 / (√60 Q L)',
      schedule.client_learning_rate,
      1.0 / (math.sqrt(60) * q * smoothness),
    ),
  ]


def check_theorem_1(
  problem: Problem, schedule: Schedule, constants: Constants = 'statement'
) -> None:
  """Raises ValueError with the first condition that does not hold."""
  for condition in theorem_1_conditions(problem, schedule, constants):
    if not condition.holds:
      raise ValueError(
        f'`schedule` must have {condition.name} = {condition.limit:.6g}, found '
        f'{condition.value:.6g}.'
      )


def theorem_1_terms(
  problem: Problem,
  schedule: Schedule,
  *,
  noise_stddev: float = 0.0,
  factors: clipping_bias.ClippingFactors | None = None,
  constants: Constants = 'statement',
) -> Theorem1Terms:
  """The bound of Theorem 1 on 1/T Σ_t E[ᾱ^t ||∇f(x^t)||²], term by term.

    4 (f(x⁰) − f*) / (η_g η_l Q T)
    + 25/2 η_l² L Q (σ_l² + 6 Q σ_g²) γ_1 + 6 η_g η_l L σ_l² γ_2 / P
    + 2 η_g L d σ² / (η_l P Q)
    + 4 G² 1/T Σ_t 1/N Σ_i (|α_i − α̃_i| + |α̃_i − ᾱ|)
    + 6 η_g η_l L Q G² 1/T Σ_t 1/P Σ_i (|α_i − α̃_i|² + |α̃_i − ᾱ|²)

  with γ_1 and γ_2 the means of ᾱ and ᾱ² over rounds. The proof arrives at
  10 η_l² L² Q (1 + 12 η_l η_g / P) in place of 25/2 η_l² L Q, at 12 in place of
  the 6 of the variance, and at 1/N in place of the 1/P of the last sum, which
  runs over all N clients: `constants='proof'`.

  The conditions are not checked here: see `theorem_1_conditions`.

  Args:
    problem: The losses.
    schedule: The step sizes and sizes.
    noise_stddev: σ of the noise of each client, in the unit of the update.
    factors: The α. None if nothing is ever clipped: all are 1.
    constants: Those of the statement or of the proof.

  Source: Theorem 1.
  """
  _check_constants(constants)
  validation.check_non_negative('noise_stddev', noise_stddev)
  stated = constants == 'statement'
  n, p = schedule.num_clients, schedule.clients_per_round
  q, t = schedule.local_steps, schedule.num_rounds
  eta_l, eta_g = schedule.client_learning_rate, schedule.server_learning_rate
  smoothness, bound = problem.smoothness, problem.gradient_bound
  local, between = problem.local_stddev**2, problem.global_stddev**2

  gamma_1 = gamma_2 = 1.0
  first_order = second_order = 0.0
  if factors is not None:
    gamma_1 = float(np.mean(factors.mean))
    gamma_2 = float(np.mean(factors.mean**2))
    first_order, second_order = (
      float(
        np.mean(
          clipping_bias.local_deviation(factors, k)
          + clipping_bias.client_deviation(factors, k)
        )
      )
      for k in (1, 2)
    )

  if stated:
    drift = 12.5 * eta_l**2 * smoothness * q
  else:
    drift = 10 * eta_l**2 * smoothness**2 * q * (1 + 12 * eta_l * eta_g / p)
  return Theorem1Terms(
    initial_gap=4 * problem.initial_gap / (eta_g * eta_l * q * t),
    client_drift=drift * (local + 6 * q * between) * gamma_1,
    sampling_noise=(
      (6 if stated else 12) * eta_g * eta_l * smoothness * local * gamma_2 / p
    ),
    privacy_noise=(
      2
      * eta_g
      * smoothness
      * problem.dimension
      * noise_stddev**2
      / (eta_l * p * q)
    ),
    clipping_bias=4 * bound**2 * first_order,
    clipping_variance=(
      6
      * eta_g
      * eta_l
      * smoothness
      * q
      * bound**2
      * second_order
      * (n / p if stated else 1.0)
    ),
  )


def standard_learning_rates(
  *,
  smoothness: float,
  clients_per_round: int,
  local_steps: int,
  num_rounds: int,
) -> tuple[float, float]:
  """η_l = 1 / (√T Q L) and η_g = √(Q P), for O(1/√(P Q T) + 1/T).

  Args:
    smoothness: L.
    clients_per_round: P.
    local_steps: Q.
    num_rounds: T.

  Returns:
    η_l and η_g.

  Source: after Theorem 1.
  """
  eta_l = 1.0 / (math.sqrt(num_rounds) * local_steps * smoothness)
  return eta_l, math.sqrt(local_steps * clients_per_round)


def _check_constants(constants: str) -> None:
  if constants not in ('statement', 'proof'):
    raise ValueError(
      f"`constants` must be 'statement' or 'proof', found {constants!r}."
    )
