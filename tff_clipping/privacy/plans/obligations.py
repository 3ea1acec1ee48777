"""What samplers and aggregators have to do for a plan's figures to hold."""

import math
from typing import NamedTuple


class SamplerParameters(NamedTuple):
  """What a sampler of clients has to do for the plan's figures to hold.

  Attributes:
    scheme: 'poisson', 'random_allocation', 'fixed_size' or 'none'.
    num_clients: The population to draw from.
    sampling_prob: Each client's chance to be in a round. Under 'poisson' the
      clients' draws are independent and a cohort may be empty. Under
      'random_allocation' each client draws one of the 1 / sampling_prob rounds
      of each epoch, independently of all others.
    cohort_size: The exact size of a cohort; None under 'poisson' and
      'random_allocation'.
  """

  scheme: str
  num_clients: int
  sampling_prob: float
  cohort_size: int | None


class SeparatedSamplerParameters(NamedTuple):
  """What a sampler of clients has to do for the plan's figures to hold.

  Attributes:
    scheme: 'min_separation' or 'grouped_poisson'.
    num_clients: The population to draw from.
    cohort_size: The most clients in a cohort, for 'grouped_poisson' the
      expected number.
    min_separation: The least number of rounds from one participation of a
      client to its next.
  """

  scheme: str
  num_clients: int
  cohort_size: int
  min_separation: int


class AggregatorParameters(NamedTuple):
  """What an aggregator has to add and divide by, for any clipping norm.

  Attributes:
    noise_multiplier: Standard deviation of the noise on the sum of the clipped
      updates over the clipping norm.
    clients_per_round: The constant by which the noisy sum is divided, also when
      a Poisson cohort is larger, smaller or empty.
  """

  noise_multiplier: float
  clients_per_round: int


class ShareParameters(NamedTuple):
  """What an aggregator needs whose noise comes in shares of the clients.

  The noise of m shares is what the plan charges; what is released has that of M
  shares in every round.

  Attributes:
    noise_multiplier: z, the noise of m shares over the clipping norm.
    clients_per_round: P, the constant by which the noisy sum is divided.
    min_clients_per_round: m, the least cohort of the population and of its
      neighbours.
    max_clients_per_round: M, the largest.
  """

  noise_multiplier: float
  clients_per_round: int
  min_clients_per_round: int
  max_clients_per_round: int

  @property
  def share_multiplier(self) -> float:
    """z / sqrt(m): the noise of one client over the clipping norm.

    An empty cohort sends nothing, so that m = 0 counts as m = 1.
    """
    return self.noise_multiplier / math.sqrt(max(self.min_clients_per_round, 1))

  @property
  def release_multiplier(self) -> float:
    """z sqrt(M / m): the noise on the sum that is released, over the norm."""
    return self.share_multiplier * math.sqrt(self.max_clients_per_round)
