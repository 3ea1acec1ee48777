"""Adds Gaussian noise to an aggregate, at the server."""

from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators import secure_sum
from tff_clipping.aggregators.parts import (
  gaussian_draws,
  grid_sums,
  noise_keys,
  noised_sum,
  type_checks,
)


def gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
  *,
  noise_key: gaussian_draws.NoiseKey = None,
) -> 'GaussianNoiseFactory':
  """Adds Gaussian noise to every element of an aggregate, at the SERVER.

  At SERVER, `inner_agg_factory`'s result + N(0, `noise_stddev`^2), drawn once a
  round. Around a sum it is the Gaussian mechanism.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2, a round is the Gaussian mechanism with noise multiplier
  `noise_stddev / s`. What bounds `s` is a clip, outside or inside: this factory
  does not clip. An empty cohort gives 0 + noise. Nobody checks what is composed
  by hand, and it has no record of a mechanism: `dp_mean_factory` has one.

  The guarantee holds for the numbers that are released: clients' values are
  rounded towards zero to a grid of at most 2^-29 standard deviations, their
  sums are exact up to 2^23 standard deviations, and the noise is drawn in
  integers on the grid; see `gaussian_draws` for the theorem, and for what it
  takes for granted. An `inner_agg_factory` that is neither
  `tff.aggregators.SumFactory` nor `secure_sum_factory`, such as a clip, may
  leave the grid: its result is rounded, and the noise is larger by a factor of
  1 + 2^-24 sqrt(d), for d elements, which pays for that up to a noise
  multiplier of 32.

  Measurements:
    noise_stddev: The standard deviation, `float32`.

  What `inner_agg_factory` measures is dropped: counts of clipped updates, for
  example, are exact.

  State: `privacy_noise`, the seed of the noise, if it takes one; `inner_agg`.

  Args:
    noise_stddev: The standard deviation, from 1e-37 to 1e37, in the unit of
      the result. No noise is another pipeline, not 0.
    inner_agg_factory: Sums the values, in `float64`; unweighted. `None` is
      `tff.aggregators.SumFactory()`. Around a mean, or what compresses, the
      noise is not that of the Gaussian mechanism.
    noise_key: `None` draws fresh noise whenever a round runs, so that one that
      is run twice is two releases. A pair of 64-bit integers is a seed, for
      tests and simulations: noise is a function of the seed, the round and the
      tensor, and whoever knows the seed can subtract the noise.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If an argument is of the wrong kind, or the factory is weighted.
    ValueError: If `noise_stddev` is out of range.
  """
  noise_stddev = gaussian_draws.check_noise_stddev(noise_stddev)
  noise_key = gaussian_draws.check_noise_key(noise_key)
  if inner_agg_factory is None:
    inner_agg_factory = tff.aggregators.SumFactory()
  type_checks.check_unweighted_factory('inner_agg_factory', inner_agg_factory)
  return GaussianNoiseFactory(noise_stddev, inner_agg_factory, noise_key)


class GaussianNoiseFactory(tff.aggregators.UnweightedAggregationFactory):
  """The factory that `gaussian_noise_factory` returns."""

  def __init__(self, noise_stddev, inner_agg_factory, noise_key):
    """Initializes the factory; see `gaussian_noise_factory`."""
    self._noise_stddev = noise_stddev
    self._inner_agg_factory = inner_agg_factory
    self._noise_key = noise_key

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of `value_type`; see the base class."""
    type_checks.check_float_leaves(value_type)
    return noised_sum.build_noised_sum(
      value_type,
      self._inner_agg_factory,
      build_noise(
        value_type, self._noise_stddev, self._inner_agg_factory, self._noise_key
      ),
      constants={'noise_stddev': np.float32(self._noise_stddev)},
    )


def build_noise(
  value_type: tff.Type,
  noise_stddev: float,
  sum_factory: tff.aggregators.UnweightedAggregationFactory,
  noise_key: gaussian_draws.NoiseKey,
  *,
  multiplier: float = grid_sums.PAID_MULTIPLIER,
) -> noised_sum.ServerNoise:
  """Returns independent noise for each round.

  Args:
    value_type: The type of the values that are summed.
    noise_stddev: The standard deviation.
    sum_factory: What sums the values.
    noise_key: As for `gaussian_noise_factory`.
    multiplier: The noise multiplier, at most.
  """
  keys = noise_keys.NoiseKeys(noise_key)
  is_on_grid = secure_sum.is_plain_sum(sum_factory)
  stddev = noise_stddev * grid_sums.noise_factor(
    value_type,
    0.0 if is_on_grid else gaussian_draws.RELATIVE_STEP,
    multiplier,
  )

  def add(total, state):
    key, next_state = keys.next_key(state)
    return gaussian_draws.add_gaussian_noise(total, stddev, key), next_state

  return noised_sum.ServerNoise(
    keys.initial, lambda: gaussian_draws.grid_step(stddev), add
  )
