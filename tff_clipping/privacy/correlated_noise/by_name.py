"""The noise strategy of a name, for the sampler that it is to go with."""

from tff_clipping import argument_checks
from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.correlated_noise import separated_sampling

# 'gaussian' is independent noise in each round.
MECHANISMS = ('gaussian', 'banded', 'blt')


def build_strategy(
  mechanism: str,
  *,
  num_rounds: int,
  num_clients: int,
  clients_per_round: int,
  min_separation: int = 1,
  sampling: str = 'min_separation',
) -> correlated_noise.NoiseStrategy:
  """Returns the strategy with the least error of its kind, for a sampler.

  Args:
    mechanism: 'gaussian' (independent noise), 'banded' or 'blt'.
    num_rounds: The paper's T, all rounds that are to be run.
    num_clients: The paper's N.
    clients_per_round: The paper's P.
    min_separation: As in `CorrelatedNoisePlan`.
    sampling: As in `CorrelatedNoisePlan`. Under 'grouped_poisson', banded noise
      has `min_separation` bands.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If an argument is out of range, or they do not go together.
  """
  argument_checks.check_choice('mechanism', mechanism, MECHANISMS)
  participation = separated_sampling.SeparatedCohorts(
    sampling=sampling,
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    min_separation=min_separation,
  ).participation
  if mechanism == 'gaussian':
    return correlated_noise.identity_strategy(num_rounds=num_rounds)
  if sampling == 'grouped_poisson':
    if mechanism != 'banded':
      raise ValueError(
        "`mechanism` must be 'banded' or 'gaussian' where `sampling` is "
        f"'grouped_poisson', found {mechanism!r}: no other is known to gain "
        'from sampling.'
      )
    return correlated_noise.banded_strategy(
      num_rounds=num_rounds,
      participation=correlated_noise.Participation(
        min_separation=min_separation, max_participations=1
      ),
      num_bands=min(min_separation, num_rounds),
    )
  build = (
    correlated_noise.banded_strategy
    if mechanism == 'banded'
    else correlated_noise.blt_strategy
  )
  return build(num_rounds=num_rounds, participation=participation)
