"""Strategies from what `to_json` wrote."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_clipping import argument_checks, gone
from tff_clipping.privacy.correlated_noise.banded import BandedStrategy
from tff_clipping.privacy.correlated_noise.buffered_toeplitz import (
  BufferedToeplitzStrategy,
)
from tff_clipping.privacy.correlated_noise.noise_strategy import NoiseStrategy

_CLASSES: dict[str, Any] = {
  BandedStrategy.kind: BandedStrategy,
  BufferedToeplitzStrategy.kind: BufferedToeplitzStrategy,
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
