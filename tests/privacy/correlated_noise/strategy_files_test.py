"""Tests of strategies in files."""

import json

import pytest

from tff_clipping import gone
from tff_clipping.privacy import correlated_noise

_STRATEGIES = [
  correlated_noise.BandedStrategy(num_rounds=12, coefficients=(1.0, 0.1)),
  correlated_noise.BufferedToeplitzStrategy(
    num_rounds=12, scales=(1 / 3,), decays=(0.9,)
  ),
]


@pytest.mark.parametrize('strategy', _STRATEGIES)
def test_strategies_are_read_as_they_were_written(strategy):
  text = json.dumps(strategy.to_json())
  assert correlated_noise.strategy_from_json(json.loads(text)) == strategy


@pytest.mark.parametrize('strategy', _STRATEGIES)
def test_attributes_that_are_missing_or_unknown_raise(strategy):
  value = strategy.to_json()
  with pytest.raises(ValueError, match='`value` must hold'):
    correlated_noise.strategy_from_json({**value, 'other': 1})
  del value['num_rounds']
  with pytest.raises(ValueError, match='`value` must hold'):
    correlated_noise.strategy_from_json(value)


def test_other_values_raise():
  with pytest.raises(ValueError, match='`kind` must be one of'):
    correlated_noise.strategy_from_json({'kind': 'dense'})
  with pytest.raises(TypeError, match='`value` must be a mapping'):
    correlated_noise.strategy_from_json(3)


@pytest.mark.parametrize('kind', ['tree', 'restarted'])
def test_strategies_that_went_are_refused_by_their_names(kind):
  with pytest.raises(gone.GoneError, match=f"`kind` '{kind}' .* went in 0.3.0"):
    correlated_noise.strategy_from_json({'kind': kind, 'num_rounds': 12})
