"""Theorem 1 term by term, with its conditions.

Here f is the mean of the clients' losses, as the proof of Theorem 1 takes it
(the paper's eq. (1) has the sum), and `noise_stddev` is σ of the noise that
each client adds.

Departs from the paper: the theorem is false as it is printed. Its proof loses
the variance of client sampling. `constants='corrected'`, the default, is a
bound that holds; docs/theory.md has its proof.
"""

import dataclasses
import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.theory import clipping_bias

# The bound that holds, or Theorem 1 as printed.
Constants = Literal['corrected', 'statement']
# How a cohort is drawn: P clients without replacement, each client by a coin of
# its own with probability P / N, or P independent draws (the paper's proof).
Sampling = Literal['fixed_size', 'poisson', 'with_replacement']


@dataclasses.dataclass(frozen=True)
class Problem:
  """What Theorem 1 assumes of the losses.

  Attributes:
    smoothness: L, the Lipschitz constant of every ∇f_i.
    gradient_bound: G, at least every ||g_i||.
    local_stddev: σ_l, the root of the bound on E||g_i − ∇f_i||².
    global_stddev: σ_g, the root of the bound on ||∇f_i − ∇f||². The corrected
      bound needs it for the mean over clients only.
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
    argument_checks.check_positive('smoothness', self.smoothness)
    argument_checks.check_non_negative('gradient_bound', self.gradient_bound)
    argument_checks.check_non_negative('local_stddev', self.local_stddev)
    argument_checks.check_non_negative('global_stddev', self.global_stddev)
    argument_checks.check_non_negative('initial_gap', self.initial_gap)
    argument_checks.check_integer('dimension', self.dimension, at_least=1)


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How DP-FedAvg is run.

  Attributes:
    num_clients: N.
    clients_per_round: P, at most N; with 'poisson', the expected number. The
      sum of a cohort's updates is divided by P in either case.
    local_steps: Q.
    num_rounds: T.
    client_learning_rate: η_l.
    server_learning_rate: η_g.
    sampling: How a cohort is drawn. Full participation is 'fixed_size' with
      P = N. With 'with_replacement' a client that is drawn twice works twice,
      each time with examples of its own.
  """

  num_clients: int
  clients_per_round: int
  local_steps: int
  num_rounds: int
  client_learning_rate: float
  server_learning_rate: float
  sampling: Sampling = 'fixed_size'

  def __post_init__(self):
    for name in (
      'num_clients',
      'clients_per_round',
      'local_steps',
      'num_rounds',
    ):
      argument_checks.check_integer(name, getattr(self, name), at_least=1)
    for name in ('client_learning_rate', 'server_learning_rate'):
      argument_checks.check_positive(name, getattr(self, name))
    if self.clients_per_round > self.num_clients:
      raise ValueError(
        f'`clients_per_round` must be at most {self.num_clients}, found '
        f'{self.clients_per_round}.'
      )
    argument_checks.check_choice('sampling', self.sampling, get_args(Sampling))


class Condition(NamedTuple):
  """One condition of a theorem: `value` must be at most `limit`."""

  name: str
  value: float
  limit: float

  @property
  def holds(self) -> bool:
    """Whether `value` is at most `limit`."""
    return self.value <= self.limit


class Theorem1Terms(NamedTuple):
  """The terms of the bound on 1/T Σ_t E[ᾱ^t ||∇f(x^t)||²].

  Attributes:
    initial_gap: 4 (f(x⁰) − f*) / (η_g η_l Q T).
    client_drift: What Q local steps on differing clients cost.
    sampling_noise: What the gradients' variance at P clients costs.
    client_sampling: What it costs that P of N differing clients take part; 0 in
      the printed theorem.
    privacy_noise: What the clients' noise costs.
    clipping_bias: G² times the mean deviation of the α.
    clipping_variance: The same in squares, times η_g η_l L Q.
  """

  initial_gap: float
  client_drift: float
  sampling_noise: float
  client_sampling: float
  privacy_noise: float
  clipping_bias: float
  clipping_variance: float

  @property
  def standard(self) -> float:
    """The terms that FedAvg has too."""
    return (
      self.initial_gap
      + self.client_drift
      + self.sampling_noise
      + self.client_sampling
    )

  @property
  def clipping(self) -> float:
    """Both terms that clipping causes."""
    return self.clipping_bias + self.clipping_variance

  @property
  def total(self) -> float:
    """The bound."""
    return self.standard + self.privacy_noise + self.clipping


def theorem_1_conditions(
  problem: Problem, schedule: Schedule, constants: Constants = 'corrected'
) -> list[Condition]:
  """The conditions on the step sizes, with the value and the limit of each.

  Of the corrected bound, with κ of `theorem_1_terms`:

    η_g η_l <= 1 / (16 κ Q L);
    η_l <= 1 / (4 Q L).

  Of the paper:

    η_g η_l <= P / (48 Q);
    η_g η_l <= P / (6 Q L (P − 1)), which is nothing for P = 1;
    η_l <= 1 / (√60 Q L).

  The paper's first condition lost a factor L: what it is to absorb asks for
  η_g η_l <= P / (48 Q L).

  Args:
    problem: The losses.
    schedule: The step sizes and sizes.
    constants: Whose conditions to take.

  Source: Theorem 1, the last steps of its proof, and docs/theory.md.
  """
  argument_checks.check_choice('constants', constants, get_args(Constants))
  p, q = schedule.clients_per_round, schedule.local_steps
  smoothness = problem.smoothness
  eta_l = schedule.client_learning_rate
  product = schedule.server_learning_rate * eta_l
  if constants == 'corrected':
    limit = 1.0 / (16 * _kappa(schedule) * q * smoothness)
    return [
      Condition('η_g η_l <= 1 / (16 κ Q L)', product, limit),
      Condition('η_l <= 1 / (4 Q L)', eta_l, 1.0 / (4 * q * smoothness)),
    ]
  second = p / (6 * q * smoothness * (p - 1)) if p > 1 else math.inf
  third = 1.0 / (math.sqrt(60) * q * smoothness)
  return [
    Condition('η_g η_l <= P / (48 Q)', product, p / (48 * q)),
    Condition('η_g η_l <= P / (6 Q L (P − 1))', product, second),
    Condition('η_l <= 1 / (√60 Q L)', eta_l, third),
  ]


def sampling_factor(
  num_clients: int, clients_per_round: int, sampling: Sampling = 'fixed_size'
) -> float:
  """ρ: P times the variance of a cohort's mean over that of the clients.

  (N − P) / (N − 1) with 'fixed_size', so 0 if all take part; 1 − P / N with
  'poisson', where it multiplies the clients' mean square, not their variance;
  1 with 'with_replacement'.

  Args:
    num_clients: N.
    clients_per_round: P, at most N.
    sampling: How a cohort is drawn.

  Source: docs/theory.md, step 1 of the proof.
  """
  if sampling == 'with_replacement':
    return 1.0
  absent = num_clients - clients_per_round
  if sampling == 'poisson':
    return absent / num_clients
  return absent / max(num_clients - 1, 1)


def theorem_1_terms(
  problem: Problem,
  schedule: Schedule,
  *,
  noise_stddev: float = 0.0,
  factors: clipping_bias.ClippingFactors | None = None,
  constants: Constants = 'corrected',
) -> Theorem1Terms:
  """The bound on 1/T Σ_t E[ᾱ^t ||∇f(x^t)||²], t = 0, ..., T − 1, term by term.

    4 (f(x⁰) − f*) / (η_g η_l Q T)
    + η_l² L² (Q − 1) (3 σ_l² + 2 Q σ_g²) γ_1
    + 12 η_g η_l L σ_l² γ_2 / P
    + 12 ρ η_g η_l L Q σ_g² γ_2 / P
    + 2 η_g L d σ² / (η_l P Q)
    + 4 G² 1/T Σ_t 1/N Σ_i (|α_i − α̃_i| + |α̃_i − ᾱ|)
    + 6 κ η_g η_l L Q G² 1/T Σ_t 1/N Σ_i (|α_i − α̃_i|² + |α̃_i − ᾱ|²)

  with γ_1 and γ_2 the means of ᾱ and ᾱ² over rounds, ρ from `sampling_factor`,
  and κ = 1, with 'poisson' 1 + ρ/P.

  Departs from the paper: its statement, `constants='statement'`, has
  25/2 η_l² L Q (σ_l² + 6 Q σ_g²) γ_1 in the second line, 6 in the third, no
  fourth, and 1/P for 1/N in the last. It is false: two clients of which one
  takes part break it.

  The conditions are not checked here: see `theorem_1_conditions`.

  Args:
    problem: The losses.
    schedule: The step sizes and sizes.
    noise_stddev: σ of the noise of each client, in the unit of the update.
    factors: The α. None if nothing is ever clipped: all are 1.
    constants: Of the bound that holds, or of the printed one.

  Source: Theorem 1, and docs/theory.md for the corrected bound.
  """
  argument_checks.check_choice('constants', constants, get_args(Constants))
  argument_checks.check_non_negative('noise_stddev', noise_stddev)
  n, p = schedule.num_clients, schedule.clients_per_round
  q, t = schedule.local_steps, schedule.num_rounds
  eta_l, eta_g = schedule.client_learning_rate, schedule.server_learning_rate
  smoothness, bound = problem.smoothness, problem.gradient_bound
  local, between = problem.local_stddev**2, problem.global_stddev**2
  noise = problem.dimension * noise_stddev**2
  product = eta_g * eta_l
  if constants == 'corrected':
    client_drift = (
      (eta_l * smoothness) ** 2 * (q - 1) * (3 * local + 2 * q * between)
    )
    sampling_noise = 12 * product * smoothness * local / p
    factor = sampling_factor(n, p, schedule.sampling)
    client_sampling = 12 * factor * product * smoothness * q * between / p
    kappa = _kappa(schedule)
  else:
    client_drift = 12.5 * eta_l**2 * smoothness * q * (local + 6 * q * between)
    sampling_noise = 6 * product * smoothness * local / p
    client_sampling = 0.0
    kappa = n / p
  gamma_1, gamma_2, first_order, second_order = _means_over_rounds(factors)
  return Theorem1Terms(
    initial_gap=4 * problem.initial_gap / (product * q * t),
    client_drift=client_drift * gamma_1,
    sampling_noise=sampling_noise * gamma_2,
    client_sampling=client_sampling * gamma_2,
    privacy_noise=2 * eta_g * smoothness * noise / (eta_l * p * q),
    clipping_bias=4 * bound**2 * first_order,
    clipping_variance=(
      6 * kappa * product * smoothness * q * bound**2 * second_order
    ),
  )


def standard_learning_rates(
  *,
  smoothness: float,
  clients_per_round: int,
  local_steps: int,
  num_rounds: int,
) -> tuple[float, float]:
  """The paper's η_l = 1 / (√T Q L) and η_g = √(Q P).

  Departs from the paper: they give O(1/√(P Q T) + 1/T) in full participation or
  with σ_g = 0 only. Otherwise the term of client sampling makes it
  O(√(Q / (P T)) + 1/T); with η_g = √P in place of √(Q P) it is O(1/√(P T)).

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


def _means_over_rounds(
  factors: clipping_bias.ClippingFactors | None,
) -> tuple[float, float, float, float]:
  """γ_1, γ_2, and the means of the α's deviations and of their squares."""
  if factors is None:
    return 1.0, 1.0, 0.0, 0.0
  first_order, second_order = (
    clipping_bias.local_deviation(factors, power)
    + clipping_bias.client_deviation(factors, power)
    for power in (1, 2)
  )
  return (
    float(np.mean(factors.mean)),
    float(np.mean(factors.mean**2)),
    float(np.mean(first_order)),
    float(np.mean(second_order)),
  )


def _kappa(schedule: Schedule) -> float:
  """κ: how far the square of a cohort's mean can exceed the mean square."""
  if schedule.sampling != 'poisson':
    return 1.0
  p = schedule.clients_per_round
  return 1.0 + sampling_factor(schedule.num_clients, p, 'poisson') / p
