"""The noise of Theorem 2, and the constants that it leaves open.

Theorem 2 (Privacy of DP-FedAvg): there are constants u and v, not given, such
that for ε <= u q² T, q = P/N, the algorithm is (ε, δ)-differentially private if
σ² >= v c² P T ln(1/δ) / (N² ε²). It rephrases Theorem 1 of Abadi et al., "Deep
Learning with Differential Privacy", CCS 2016, whose accountant is for Poisson
sampling. The statement names the algorithm without noise; DP-FedAvg is meant.
At N = 1920, P = 80, T = 100 and ε = 1.5, u must be at least 8.64. The paper
does not say how its noise was calibrated.

Its σ is the noise of ONE client. The sum of P clipped updates then carries
√P σ, so that σ = z c / √P for a noise multiplier z.
"""

import math

from tff_clipping import argument_checks


def theorem_2_stddev(
  *,
  clipping_norm: float,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
  v: float,
) -> float:
  """The least σ of each client's noise: c √(v P T ln(1/δ)) / (N ε).

  Args:
    clipping_norm: c, positive, in the unit of the model's updates.
    num_clients: N.
    clients_per_round: P, at most N.
    num_rounds: T.
    target_epsilon: ε, positive.
    target_delta: δ, between 0 and 1.
    v: The theorem's v, positive. The paper gives none; `theorem_2_constant`
      says which one an accountant implies.

  Returns:
    The standard deviation of each coordinate, in the unit of `clipping_norm`.
    Without a proved v it is a scale, not a guarantee.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: Theorem 2.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  argument_checks.check_positive('v', v)
  argument_checks.check_integer('num_clients', num_clients, at_least=1)
  argument_checks.check_integer(
    'clients_per_round', clients_per_round, at_least=1
  )
  argument_checks.check_integer('num_rounds', num_rounds, at_least=1)
  argument_checks.check_positive('target_epsilon', target_epsilon)
  argument_checks.check_probability('target_delta', target_delta)
  if clients_per_round > num_clients:
    raise ValueError(
      f'`clients_per_round` must be at most {num_clients}, found '
      f'{clients_per_round}.'
    )
  variance = v * clients_per_round * num_rounds * -math.log(target_delta)
  return clipping_norm * math.sqrt(variance) / (num_clients * target_epsilon)


def theorem_2_constant(
  *,
  noise_multiplier: float,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """The v with which Theorem 2 asks for just this noise multiplier z.

  The noise of P clients is σ √P = z c, so v = z² ε² / (q² T ln(1/δ)).

  Args:
    noise_multiplier: z, the noise on the sum over the clipping norm, for
      instance the one that an accountant gives for the other arguments.
    num_clients: N.
    clients_per_round: P, at most N.
    num_rounds: T.
    target_epsilon: ε, positive.
    target_delta: δ, between 0 and 1.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: Theorem 2.
  """
  argument_checks.check_positive('noise_multiplier', noise_multiplier)
  unit = theorem_2_stddev(
    clipping_norm=1.0,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    num_rounds=num_rounds,
    target_epsilon=target_epsilon,
    target_delta=target_delta,
    v=1.0,
  )
  return noise_multiplier**2 / (clients_per_round * unit**2)
