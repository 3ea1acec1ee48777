"""Strategies of noise that is correlated between rounds, in NumPy and SciPy."""

from tff_clipping.privacy.correlated_noise.banded import (
  BandedStrategy,
  identity_strategy,
)
from tff_clipping.privacy.correlated_noise.buffered_toeplitz import (
  BufferedToeplitzStrategy,
)
from tff_clipping.privacy.correlated_noise.by_name import strategy_from_json
from tff_clipping.privacy.correlated_noise.noise_strategy import (
  NoiseRecurrence,
  NoiseStrategy,
  Participation,
)
from tff_clipping.privacy.correlated_noise.optimization import (
  banded_strategy,
  blt_strategy,
)

__all__ = [
  'BandedStrategy',
  'BufferedToeplitzStrategy',
  'NoiseRecurrence',
  'NoiseStrategy',
  'Participation',
  'banded_strategy',
  'blt_strategy',
  'identity_strategy',
  'strategy_from_json',
]
