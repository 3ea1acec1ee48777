"""Adds noise to an aggregate that is correlated between rounds."""

import hashlib
from typing import Any, Final, Protocol

import numpy as np

from tff_clipping.aggregators import factories, server_noise
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import keys, stream

_TABLES: Final = ('phases', 'read_weights', 'keep_weights', 'write_weights')


class NoiseStrategy(Protocol):
  """What says how noise is correlated, as `privacy.blt_strategy` returns."""

  @property
  def recurrence(self) -> stream.NoiseRecurrence:
    """The noise as a stream, for a standard deviation of 1."""


def correlated_noise_factory(
  strategy: NoiseStrategy,
  noise_stddev: float,
  inner_agg_factory: SumFactory | None = None,
  *,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """Adds noise that later rounds' noise partly takes back, at the SERVER.

  At SERVER, `inner_agg_factory`'s result + the round's row of C^{-1} Z, where C
  is the matrix of `strategy` and Z has a row of independent N(0,
  `noise_stddev`^2) for each round. The rows come one by one, from one draw a
  round and a few arrays of the size of the result: the bands of a banded
  strategy less one, or the buffers of a BLT.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2 in the rounds in which it takes part, all rounds together are one
  Gaussian mechanism with noise multiplier `noise_stddev` / (`s` *
  `strategy.compute_sensitivity(participation)`), under zeroing out one client.
  What holds clients to `participation` is the sampler; what bounds `s` is a
  clip, outside or inside. An empty cohort gives 0 + noise. An update that is
  not finite becomes zero.

  The draw of a round is fresh, and what later rounds take back of it is in the
  state. Whoever has a state can subtract a part of the noise of later rounds:
  keep the state secret. And a round must not be run again once its result has
  been released: two results with the same noises of earlier rounds cost more
  than is charged. `programs.run_private_round` never does.

  What is released lies on a grid, of at most 2^-24 standard deviations of a
  draw, to which clients' values are rounded towards zero; Theorem 2 of
  `aggregators.noise` has the proof. For n elements in T rounds, the noise is
  larger by a factor of some 1 + 2^-24 sqrt(n T), which pays for the rounding up
  to a noise multiplier of 32. Where a clip is inside `inner_agg_factory`, sums
  are rounded too, with a factor of 1 + 2^-19 sqrt(n), which pays up to
  `noise_stddev` / `s` = 32. For a larger multiplier of one draw, put the clip
  outside, as `correlated_dp_mean_factory` does, which pays for its multiplier.

  Measurements:
    noise_stddev: That of one draw, `float32`.
    strategy_digest: A string, by which `strategy` is told from others.

  What `inner_agg_factory` measures is dropped, as by `gaussian_noise_factory`.

  State: `privacy_noise`, with `round_num` (`int64`), `slots` (`float64`), what
  is kept of the noises before, with a dimension for them before those of each
  tensor, and `key` (`int64[2]`, as secret as the noise) if one was given;
  `inner_agg`.

  Args:
    strategy: How the noise of a round depends on the rounds before. Its last
      round is the last that can be run.
    noise_stddev: The standard deviation of a draw, from 1e-37 to 1e37, in the
      unit of the result.
    inner_agg_factory: As for `gaussian_noise_factory`.
    noise_key: As for `gaussian_noise_factory`.

  Raises:
    ValueError: By `create`, if rounding moves the mechanism by more than a 64th
      of the noise, as where noises of later rounds become ever larger.

  Source: Denisov et al. 2022 (arXiv 2202.08312); for the strategies, see
    `tff_clipping.privacy.correlated_noise`.
  """
  recurrence = check_strategy(strategy)
  noise_stddev = server_noise.check_noise_stddev(noise_stddev)
  return server_noise.noised_sum_factory(
    noise_stddev,
    factories.check_sum_factory('inner_agg_factory', inner_agg_factory),
    noise_key=noise_key,
    recurrence=recurrence,
    constants={
      'noise_stddev': np.float32(noise_stddev),
      'strategy_digest': strategy_digest(recurrence),
    },
  )


def check_strategy(strategy: Any) -> stream.NoiseRecurrence:
  """Returns the noise of a strategy as a stream."""
  recurrence = getattr(strategy, 'recurrence', None)
  if recurrence is None:
    raise TypeError(
      '`strategy` must be a noise strategy, such as `privacy.blt_strategy` '
      f'returns, found {strategy!r}.'
    )
  return recurrence


def strategy_digest(recurrence: stream.NoiseRecurrence) -> str:
  """Returns a string that tells a stream of noise from others.

  It is a digest of the tables, to the last bit. A strategy that was written
  down and read back has the same. One that is optimised anew may have another,
  on another processor or with another version of SciPy.
  """
  digest = hashlib.blake2b(digest_size=8)
  for name in _TABLES:
    # Zero has no sign then.
    table = np.asarray(getattr(recurrence, name), np.float64) + 0.0
    digest.update(f'{name} {table.shape};'.encode())
    digest.update(table.tobytes())
  return digest.hexdigest()
