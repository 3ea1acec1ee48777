"""Cohorts that keep a limit on how often and how soon a client comes back.

Correlated noise needs that limit and nothing else. 'min_separation': fixed
groups take turns. 'grouped_poisson': the same, with a secret draw from the
group whose turn it is.

Where the draw is secret and the noise of a round depends on fewer than b rounds
before it, the participations of a client do not share any noise. A run then
costs as much as Poisson sampling from one group alone, in as many rounds as a
group has turns (arXiv 2306.08153, Theorem 4).
"""

import dataclasses

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges, sampled_gaussian
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy
from tff_clipping.privacy.correlated_noise.participation import Participation

SAMPLINGS = ('min_separation', 'grouped_poisson')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparatedCohorts:
  """How cohorts are drawn where clients keep a distance.

  Attributes:
    sampling: One of `SAMPLINGS`.
    num_clients: The paper's N.
    clients_per_round: The paper's P, the most clients in a cohort; the expected
      number under 'grouped_poisson'.
    min_separation: b.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If it is out of range, or the population is too small for such
      cohorts and such a separation.
  """

  sampling: str
  num_clients: int
  clients_per_round: int
  min_separation: int

  def __post_init__(self):
    argument_checks.check_choice('sampling', self.sampling, SAMPLINGS)
    num_clients, clients_per_round = ranges.check_population(
      self.num_clients, self.clients_per_round
    )
    separation = argument_checks.check_integer(
      'min_separation',
      self.min_separation,
      at_least=1,
      at_most=ranges.MAX_ROUNDS,
    )
    object.__setattr__(self, 'num_clients', num_clients)
    object.__setattr__(self, 'clients_per_round', clients_per_round)
    object.__setattr__(self, 'min_separation', separation)
    most = num_clients // clients_per_round
    if separation > most:
      raise ValueError(
        f'`min_separation` must be at most {most}, found {separation}: '
        f'{num_clients} clients cannot fill cohorts of {clients_per_round} '
        'without coming back sooner.'
      )

  @property
  def is_amplified(self) -> bool:
    """Whether the draws from a group are secret, and lower the cost."""
    return self.sampling == 'grouped_poisson'

  @property
  def participation(self) -> Participation:
    """The rounds in which one client may take part."""
    return Participation(min_separation=self.min_separation)

  @property
  def turn(self) -> sampled_gaussian.Cohorts:
    """How a group draws its cohort where it is secret: by P b / N each."""
    return sampled_gaussian.Cohorts(
      sampling='poisson',
      num_clients=self.num_clients,
      clients_per_round=self.clients_per_round * self.min_separation,
    )

  def check_strategy(self, strategy: NoiseStrategy) -> None:
    """Raises ValueError where no amplification by a secret draw is known.

    Args:
      strategy: How noise is correlated.
    """
    bands = getattr(strategy, 'num_bands', None)
    if self.is_amplified and (bands is None or bands > self.min_separation):
      raise ValueError(
        '`strategy` must be banded, with at most `min_separation` = '
        f"{self.min_separation} bands, where `sampling` is 'grouped_poisson', "
        f'found {strategy}: no other is known to gain from sampling.'
      )

  def compute_sensitivity(
    self, strategy: NoiseStrategy, num_rounds: int
  ) -> float:
    """Returns by how many clipping norms a client changes what is noised.

    In all rounds, or by one participation where the draws are secret.

    Args:
      strategy: How noise is correlated.
      num_rounds: How many of its rounds.
    """
    if not self.is_amplified:
      return strategy.compute_sensitivity(self.participation, num_rounds)
    return strategy.compute_sensitivity(
      Participation(min_separation=strategy.num_rounds, max_participations=1)
    )
