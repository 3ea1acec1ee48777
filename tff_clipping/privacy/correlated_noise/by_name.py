"""Noise strategies by their names: for a sampler, or from a file."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_clipping import argument_checks, gone
from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.correlated_noise import optimization
from tff_clipping.privacy.correlated_noise.banded import (
  BandedStrategy,
  identity_strategy,
)
from tff_clipping.privacy.correlated_noise.buffered_toeplitz import (
  BufferedToeplitzStrategy,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import (
  NoiseStrategy,
  Participation,
)

# 'gaussian' is independent noise in each round.
MECHANISMS = ('gaussian', 'banded', 'blt')
# Cohorts that limit how soon a client comes back. 'min_separation': fixed
# groups take turns. 'grouped_poisson': the same, with a secret draw from the
# group whose turn it is.
SAMPLINGS = ('min_separation', 'grouped_poisson')

# The strategies of files.
_CLASSES: dict[str, Any] = {
  BandedStrategy.kind: BandedStrategy,
  BufferedToeplitzStrategy.kind: BufferedToeplitzStrategy,
}


def build_strategy(
  mechanism: str,
  *,
  num_rounds: int,
  num_clients: int,
  clients_per_round: int,
  min_separation: int = 1,
  sampling: str = 'min_separation',
) -> NoiseStrategy:
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
    ValueError: If an argument is out of range, or arguments do not go together.
  """
  argument_checks.check_choice('mechanism', mechanism, MECHANISMS)
  check_cohorts(sampling, num_clients, clients_per_round, min_separation)
  if mechanism == 'gaussian':
    return identity_strategy(num_rounds=num_rounds)
  if sampling == 'grouped_poisson':
    if mechanism != 'banded':
      raise ValueError(
        "`mechanism` must be 'banded' or 'gaussian' where `sampling` is "
        f"'grouped_poisson', found {mechanism!r}: no other is known to gain "
        'from sampling.'
      )
    return optimization.banded_strategy(
      num_rounds=num_rounds,
      participation=Participation(
        min_separation=min_separation, max_participations=1
      ),
      num_bands=min(min_separation, num_rounds),
    )
  participation = Participation(min_separation=min_separation)
  if mechanism == 'banded':
    return optimization.banded_strategy(
      num_rounds=num_rounds, participation=participation
    )
  return optimization.blt_strategy(
    num_rounds=num_rounds, participation=participation
  )


def check_cohorts(
  sampling: str, num_clients: int, clients_per_round: int, min_separation: int
) -> dict[str, int]:
  """Returns checked numbers of cohorts with a separation.

  Args:
    sampling: One of `SAMPLINGS`.
    num_clients: The paper's N.
    clients_per_round: The paper's P.
    min_separation: b.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If it is out of range, or the population is too small for such
      cohorts and such a separation.
  """
  argument_checks.check_choice('sampling', sampling, SAMPLINGS)
  num_clients, clients_per_round = ranges.check_population(
    num_clients, clients_per_round
  )
  separation = ranges.check_count('min_separation', min_separation)
  most = num_clients // clients_per_round
  if separation > most:
    raise ValueError(
      f'`min_separation` must be at most {most}, found {separation}: '
      f'{num_clients} clients cannot fill cohorts of {clients_per_round} '
      'without coming back sooner.'
    )
  return {
    'num_clients': num_clients,
    'clients_per_round': clients_per_round,
    'min_separation': separation,
  }


def strategy_from_json(value: Mapping[str, Any]) -> NoiseStrategy:
  """Returns the strategy that `NoiseStrategy.to_json` wrote.

  Args:
    value: What `json.load` returned.

  Raises:
    TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
    GoneError: If this version has no such strategy any more.
    ValueError: If attributes are missing, unknown or out of range.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  attributes = gone.read(value)
  kind = argument_checks.check_choice(
    'kind', attributes.pop('kind', ''), [*_CLASSES]
  )
  names = [field.name for field in dataclasses.fields(_CLASSES[kind])]
  if sorted(names) != sorted(attributes):
    raise ValueError(f'`value` must hold {names}, found {[*attributes]}.')
  return _CLASSES[kind](**attributes)
