"""Adds Gaussian noise to an aggregate, at the server."""

import numpy as np

from tff_clipping.aggregators import factories, pipeline, server_noise
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import keys


def gaussian_noise_factory(
  noise_stddev: float,
  inner_agg_factory: SumFactory | None = None,
  *,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """Adds Gaussian noise to every element of an aggregate, at the SERVER.

  At SERVER, `inner_agg_factory`'s result + N(0, `noise_stddev`^2), drawn once a
  round. Around a sum it is the Gaussian mechanism.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2, a round is the Gaussian mechanism with noise multiplier
  `noise_stddev / s`. What bounds `s` is a clip, outside or inside: this factory
  does not clip. An empty cohort gives 0 + noise. An update that is not finite
  becomes zero. Nobody checks what is composed by hand, and it has no record of
  a mechanism: `dp_mean_factory` has one.

  The guarantee holds for the numbers that are released, by the theorem of
  `aggregators.noise`. Clients' values are rounded towards zero to a grid of at
  most 2^-29 standard deviations. An `inner_agg_factory` other than
  `tff.aggregators.SumFactory`, such as a clip, or a secure sum that clamps, may
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
  noise_stddev = server_noise.check_noise_stddev(noise_stddev)
  noise_key = server_noise.check_noise_key(noise_key)
  sum_factory = factories.check_sum_factory(
    'inner_agg_factory', inner_agg_factory
  )

  def build(value_type):
    return server_noise.build_steps(
      value_type,
      noise_stddev,
      sum_factory,
      noise_key=noise_key,
      constants={'noise_stddev': np.float32(noise_stddev)},
    )

  return pipeline.NoisedSumFactory(build)
