"""The noise strategy of a name, for the sampler that it is to go with."""

from collections.abc import Callable

from tff_clipping import argument_checks
from tff_clipping.privacy import correlated_noise
from tff_clipping.privacy.correlated_noise import separated_sampling

# 'gaussian' is independent noise in each round.
MECHANISMS = ('gaussian', 'tree', 'banded', 'blt')


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
    mechanism: 'gaussian' (independent noise), 'tree', 'banded' or 'blt'.
    num_rounds: The paper's T, all rounds that are to be run.
    num_clients: The paper's N.
    clients_per_round: The paper's P.
    min_separation: As in `CorrelatedNoisePlan`.
    sampling: As in `CorrelatedNoisePlan`. Under 'grouped_poisson', banded noise
      has `min_separation` bands. Under 'shuffled_epochs', a strategy begins
      anew with each epoch: two participations of a client never share noise.

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
  epoch = participation.rounds_per_epoch
  if epoch is None or num_rounds <= epoch:
    if epoch is not None:
      participation = correlated_noise.Participation(min_separation=epoch)
    return _build_one(mechanism, num_rounds, participation)
  if num_rounds % epoch:
    raise ValueError(
      f'`num_rounds` must be a multiple of the {epoch} rounds of an epoch '
      "where `sampling` is 'shuffled_epochs' and `mechanism` is "
      f'{mechanism!r}, found {num_rounds}.'
    )
  return correlated_noise.RestartedStrategy(
    num_rounds=num_rounds,
    inner=_build_one(
      mechanism, epoch, correlated_noise.Participation(min_separation=epoch)
    ),
  )


def _build_one(
  mechanism: str, num_rounds: int, participation: correlated_noise.Participation
) -> correlated_noise.NoiseStrategy:
  """Returns a strategy that is not begun anew."""
  if mechanism == 'tree':
    return correlated_noise.TreeStrategy(num_rounds=num_rounds)
  builders: dict[str, Callable[..., correlated_noise.NoiseStrategy]] = {
    'banded': correlated_noise.banded_strategy,
    'blt': correlated_noise.blt_strategy,
  }
  return builders[mechanism](num_rounds=num_rounds, participation=participation)
