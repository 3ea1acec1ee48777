"""Banded noise and a secret draw from the group whose turn it is.

The population is split into b fixed groups that take turns, and each client of
the group joins by a coin of its own. Where the noise of a round depends on
fewer than b rounds before it, the participations of a client do not share any
noise: a run costs as much as so many rounds of Poisson sampling, from a
population of the size of a group, as a group has turns.

Source: arXiv 2306.08153, Theorem 4.
"""

from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.accounting import sampled_gaussian


def check_strategy(
  strategy: correlated_noise.NoiseStrategy, min_separation: int
) -> None:
  """Raises ValueError where no amplification by sampling is known.

  Args:
    strategy: How noise is correlated.
    min_separation: b, the number of groups.
  """
  bands = getattr(strategy, 'num_bands', None)
  if bands is None or bands > min_separation:
    raise ValueError(
      '`strategy` must be banded, with at most `min_separation` = '
      f"{min_separation} bands, where `sampling` is 'grouped_poisson', found "
      f'{strategy}: no other is known to gain from sampling.'
    )


def build_turn(
  num_clients: int, clients_per_round: int, min_separation: int
) -> sampled_gaussian.CohortSampling:
  """Returns how a group draws its cohort: with the probability P b / N.

  Args:
    num_clients: The paper's N, the clients of all groups.
    clients_per_round: The paper's P, the expected cohort.
    min_separation: b, the number of groups.
  """
  return sampled_gaussian.CohortSampling(
    sampling='poisson',
    num_clients=num_clients,
    clients_per_round=clients_per_round * min_separation,
  )


def compute_sensitivity(strategy: correlated_noise.NoiseStrategy) -> float:
  """Returns by how much one participation of a client can change C x.

  Args:
    strategy: How noise is correlated.
  """
  return strategy.compute_sensitivity(
    correlated_noise.Participation(
      min_separation=strategy.num_rounds, max_participations=1
    )
  )
