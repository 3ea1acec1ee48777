"""Strategies from what `to_json` wrote."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy.correlated_noise.buffered_toeplitz import (
  BufferedToeplitzStrategy,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy
from tff_clipping.privacy.correlated_noise.restarted import RestartedStrategy
from tff_clipping.privacy.correlated_noise.toeplitz import BandedStrategy
from tff_clipping.privacy.correlated_noise.tree import TreeStrategy

_CLASSES: dict[str, Any] = {
  BandedStrategy.kind: BandedStrategy,
  BufferedToeplitzStrategy.kind: BufferedToeplitzStrategy,
  RestartedStrategy.kind: RestartedStrategy,
  TreeStrategy.kind: TreeStrategy,
}


def strategy_from_json(value: Mapping[str, Any]) -> NoiseStrategy:
  """Returns the strategy that `NoiseStrategy.to_json` wrote.

  Args:
    value: What `json.load` returned.

  Raises:
    TypeError: If `value` is not a mapping, or an attribute of the wrong kind.
    ValueError: If attributes are missing, unknown or out of range.
  """
  if not isinstance(value, Mapping):
    raise TypeError(f'`value` must be a mapping, found {value!r}.')
  attributes = dict(value)
  kind = argument_checks.check_choice(
    'kind', attributes.pop('kind', ''), [*_CLASSES]
  )
  if kind == 'restarted' and 'inner' in attributes:
    attributes['inner'] = strategy_from_json(attributes['inner'])
  names = [field.name for field in dataclasses.fields(_CLASSES[kind])]
  if sorted(names) != sorted(attributes):
    raise ValueError(f'`value` must hold {names}, found {[*attributes]}.')
  return _CLASSES[kind](**attributes)
