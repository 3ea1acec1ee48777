"""How large the noise is against the clipped updates: can this run learn?"""

import dataclasses
import math

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges


@dataclasses.dataclass(frozen=True)
class NoiseSummary:
  """The noise of one round, where it is added and where it ends up.

  All standard deviations are of one coordinate, in the unit of `clipping_norm`.

  Attributes:
    clipping_norm: The paper's c: no clipped update is longer.
    model_size: The paper's d, the number of parameters; None if not given.
    sum_stddev: z c, on the sum of the clipped updates.
    client_stddev: z c / sqrt(m), each client's share, when the clients add the
      noise to cohorts of m to M; with m = M = P the paper's sigma.
    shares_stddev: z c sqrt(M / m), on the sum that is then released.
    mean_stddev: z c / P, on the mean that moves the model.
    mean_noise_norm: sqrt(d) z c / P, the length of the noise on the mean (root
      mean square; the mean length is less by a share of 1/(4 d)). None without
      a model size.
    relative_noise_norm: mean_noise_norm / c = z sqrt(d) / P. The mean of the
      clipped updates is at most 1 on this scale. None without a model size.
  """

  clipping_norm: float
  model_size: int | None
  sum_stddev: float
  client_stddev: float
  shares_stddev: float
  mean_stddev: float
  mean_noise_norm: float | None
  relative_noise_norm: float | None


def summarize_noise(
  *,
  noise_multiplier: float,
  clients_per_round: int,
  clipping_norm: float = 1.0,
  model_size: int | None = None,
  min_clients_per_round: int | None = None,
  max_clients_per_round: int | None = None,
) -> NoiseSummary:
  """Returns how large the noise of a round is.

  Args:
    noise_multiplier: Noise on the sum over the clipping norm.
    clients_per_round: The paper's P, the public constant by which sums are
      divided.
    clipping_norm: The paper's c, positive. With the default of 1, all figures
      are in units of the clipping norm.
    model_size: The number of the model's parameters, at least 1.
    min_clients_per_round: m, the least cohort; None is P, 0 counts as 1.
    max_clients_per_round: M, the largest cohort; None is P.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range.

  Source: Algorithm DP-FedAvg and Theorem 1 (the noise term, which grows with d
  and falls with P).
  """
  z = ranges.check_noise_multiplier(noise_multiplier)
  cohort = argument_checks.check_integer(
    'clients_per_round',
    clients_per_round,
    at_least=1,
    at_most=ranges.MAX_CLIENTS,
  )
  norm = argument_checks.check_positive('clipping_norm', clipping_norm)
  least, largest = (
    cohort
    if bound is None
    else argument_checks.check_integer(
      name, bound, at_least=0, at_most=ranges.MAX_CLIENTS
    )
    for name, bound in (
      ('min_clients_per_round', min_clients_per_round),
      ('max_clients_per_round', max_clients_per_round),
    )
  )
  share = z * norm / math.sqrt(max(least, 1))
  relative = None
  if model_size is not None:
    model_size = argument_checks.check_integer(
      'model_size', model_size, at_least=1, at_most=10**15
    )
    relative = relative_norm(z, cohort, model_size)
  return NoiseSummary(
    clipping_norm=norm,
    model_size=model_size,
    sum_stddev=z * norm,
    client_stddev=share,
    shares_stddev=share * math.sqrt(largest),
    mean_stddev=z * norm / cohort,
    mean_noise_norm=None if relative is None else relative * norm,
    relative_noise_norm=relative,
  )


def relative_norm(
  noise_multiplier: float, clients_per_round: int, model_size: int
) -> float:
  """Returns the length of the noise on a mean over the clipping norm: z √d / P.

  Args:
    noise_multiplier: z, of the noise on the sum.
    clients_per_round: The paper's P.
    model_size: The paper's d.
  """
  return noise_multiplier * math.sqrt(model_size) / clients_per_round
