"""The algorithms, their settings, and which of them a run's settings choose."""

import dataclasses
from typing import TYPE_CHECKING

from tasks.algorithms.algorithm import Algorithm, names_of
from tasks.algorithms.clipping import ClippingSettings
from tasks.algorithms.correlated import CorrelatedFedAvg, MechanismSettings
from tasks.algorithms.distributed import DistributedFedAvg, DistributedSettings
from tasks.algorithms.fed_avg import ClippedFedAvg, FedAvg
from tasks.algorithms.gaussian import (
  AuditSettings,
  GaussianFedAvg,
  PrivacySettings,
)
from tasks.algorithms.model_clipping import ModelClipping
from tasks.algorithms.user_aggregator import (
  AggregatorSettings,
  UserClippedFedAvg,
  UserFedAvg,
  UserGaussianFedAvg,
)

if TYPE_CHECKING:
  from tasks.algorithms.experiment import ExperimentConfig

# The first that is chosen is it.
BUILDERS: tuple[type[Algorithm], ...] = (
  UserFedAvg,
  UserClippedFedAvg,
  UserGaussianFedAvg,
  CorrelatedFedAvg,
  DistributedFedAvg,
  FedAvg,
  ClippedFedAvg,
  GaussianFedAvg,
  ModelClipping,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
  AuditSettings,
  PrivacySettings,
  MechanismSettings,
  DistributedSettings,
  AggregatorSettings,
  ClippingSettings,
):
  """The settings that some algorithms take; all have a default.

  None may have a default that stands for a choice: what an algorithm does not
  take is refused where it is another than the default.
  """


_OF_NOISE = names_of(
  PrivacySettings,
  MechanismSettings,
  AuditSettings,
)
# What `--algorithm` may be, and what that is.
NAMES = {builder.name: builder.summary for builder in BUILDERS}


def find(config: 'ExperimentConfig') -> Algorithm:
  """Returns the algorithm that the settings choose, unchecked."""
  return next(
    builder(config) for builder in BUILDERS if builder.is_chosen(config)
  )


def check(config: 'ExperimentConfig') -> None:
  """Raises unless the algorithm takes the settings that are given.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If it is not taken, or does not fit another.
  """
  algorithm = find(config)
  for field in dataclasses.fields(Settings):
    name, value = field.name, getattr(config, field.name)
    if value == field.default or _is_taken(algorithm, name):
      continue
    reason = algorithm.refuses.get(name, 'which does not take it')
    if not algorithm.is_private and name in _OF_NOISE:
      reason = 'which adds no noise'
    takers = {b.name for b in BUILDERS if _is_taken(b(config), name)}
    hint = f'; it is for {", ".join(sorted(takers))}'
    raise ValueError(
      f'`{name}` must not be given for {algorithm.title}, {reason}, found '
      f'{value}{hint if takers and config.algorithm not in takers else ""}.'
    )
  algorithm.check()


def _is_taken(algorithm: Algorithm, name: str) -> bool:
  return name in algorithm.settings and name not in algorithm.refuses
