"""The algorithms, their settings, and which of them a run's settings choose."""

import dataclasses
from typing import TYPE_CHECKING

from tasks.algorithms.algorithm import Algorithm, names_of
from tasks.algorithms.clipping import ClippingSettings
from tasks.algorithms.correlated import CorrelatedFedAvg, MechanismSettings
from tasks.algorithms.distributed import DistributedFedAvg
from tasks.algorithms.fed_avg import ClippedFedAvg, FedAvg
from tasks.algorithms.gaussian import GaussianFedAvg
from tasks.algorithms.model_clipping import ModelClipping
from tasks.algorithms.private import AuditSettings, PrivacySettings
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
  AggregatorSettings,
  ClippingSettings,
):
  """The settings that some algorithms take; all have a default.

  None may have a default that stands for a choice: what an algorithm does not
  take is refused where it is another than the default.
  """


_OF_NOISE = frozenset.union(
  *map(names_of, (PrivacySettings, MechanismSettings, AuditSettings))
)
# What one way to bound updates takes alone.
_OF_BOUNDS = {'smoothing': 'smooth', 'target_quantile': 'adaptive'}
# As `--algorithm` has them.
NAMES = tuple(dict.fromkeys(builder.name for builder in BUILDERS))


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
    if value != field.default and name not in algorithm.takes:
      raise ValueError(
        f'`{name}` must not be given for {algorithm.title}, '
        f'{_reason(algorithm, name)}, found {value}{_hint(config, name)}.'
      )
  algorithm.check()


def _reason(algorithm: Algorithm, name: str) -> str:
  """Returns why an algorithm does not take a setting."""
  if not algorithm.is_private and name in _OF_NOISE:
    return 'which adds no noise'
  if name in _OF_BOUNDS:
    return f'whose `clipping` is not {_OF_BOUNDS[name]}'
  return algorithm.reasons.get(name, 'which does not take it')


def _hint(config: 'ExperimentConfig', name: str) -> str:
  """Returns which other algorithms take a setting, if this one never does."""
  takers = {b.name for b in BUILDERS if name in b(config).takes}
  if not takers or config.algorithm in takers:
    return ''
  return f'; it is for {", ".join(sorted(takers))}'
