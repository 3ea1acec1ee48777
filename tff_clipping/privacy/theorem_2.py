"""The noise of the paper's Theorem 2, and the constant that it leaves open.

Theorem 2 (Privacy of DP-FedAvg): there are constants u and v, not given, such
that for epsilon <= u q^2 T the algorithm is (epsilon, delta)-differentially
private if sigma^2 >= v c^2 P T ln(1/delta) / (N^2 epsilon^2). It rephrases
Theorem 1 of Abadi et al., "Deep Learning with Differential Privacy", CCS 2016.

Its sigma is the noise of ONE client: Algorithm DP-FedAvg adds z_i ~
N(0, sigma^2 I) to each clipped update. The sum of P updates then carries
sigma_sum = sqrt(P) sigma, so that sigma = z c / sqrt(P) for a noise multiplier
z, and v = z^2 epsilon^2 / (q^2 T ln(1/delta)) with q = P/N.

The statement names the algorithm without noise; the one with noise is meant.
Its accountant is for Poisson sampling, see `PrivacyPlan` about 'paper'.
"""

import math

from tff_clipping.privacy import arguments


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
  """Returns the noise that Theorem 2 asks of each client.

  sigma = c sqrt(v P T ln(1/delta)) / (N epsilon).

  Args:
    clipping_norm: The paper's c, positive, in the unit of the model's updates.
    num_clients: The paper's N.
    clients_per_round: The paper's P, at most N.
    num_rounds: The paper's T.
    target_epsilon: Positive. The theorem also wants epsilon <= u q^2 T, for a
      constant u that it does not give.
    target_delta: In (0, 1).
    v: The theorem's constant, positive. The paper gives none;
      `theorem_2_constant` tells which one an accountant implies.

  Returns:
    Standard deviation of each coordinate of one client's noise, in the unit of
    `clipping_norm`. Without a proved v it is a scale, not a guarantee.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: Theorem 2, Section 3.2.
  """
  clipping_norm = arguments.check_positive('clipping_norm', clipping_norm)
  v = arguments.check_positive('v', v)
  return clipping_norm * math.sqrt(
    v
    * _variance_over_constant(
      num_clients, clients_per_round, num_rounds, target_epsilon, target_delta
    )
  )


def theorem_2_constant(
  *,
  noise_multiplier: float,
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns the v for which Theorem 2 asks for just this noise multiplier.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm, for instance the
      one that an accountant gives for the other arguments.
    num_clients: The paper's N.
    clients_per_round: The paper's P, at most N.
    num_rounds: The paper's T.
    target_epsilon: Positive.
    target_delta: In (0, 1).

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: Theorem 2, Section 3.2.
  """
  multiplier = arguments.check_noise_multiplier(noise_multiplier)
  return (
    multiplier**2
    / clients_per_round
    / _variance_over_constant(
      num_clients, clients_per_round, num_rounds, target_epsilon, target_delta
    )
  )


def _variance_over_constant(
  num_clients: int,
  clients_per_round: int,
  num_rounds: int,
  target_epsilon: float,
  target_delta: float,
) -> float:
  """Returns P T ln(1/delta) / (N epsilon)^2."""
  num_clients, clients_per_round = arguments.check_population(
    num_clients, clients_per_round
  )
  num_rounds = arguments.check_num_rounds(num_rounds)
  epsilon = arguments.check_positive('target_epsilon', target_epsilon)
  delta = arguments.check_target_delta(target_delta)
  return (
    clients_per_round
    * num_rounds
    * -math.log(delta)
    / (num_clients * epsilon) ** 2
  )
