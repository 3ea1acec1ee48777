"""Noise that the server adds to a sum, independent or correlated."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_clipping import argument_checks
from tff_clipping.aggregators import (
  clipping,
  factories,
  pipeline,
  secure_sum,
  values,
)
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import gaussian, grid, keys, stream

_SLOTS = 'slots'

# A number of `float32` may be 34 times as large.
_MIN_STDDEV, _MAX_STDDEV = 1e-37, 1e37


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
  1 + 2^-24 sqrt(d), for d elements, which pays for the rounding up to a noise
  multiplier of 32.

  Measurements:
    noise_stddev: The standard deviation, `float32`.

  What `inner_agg_factory` measures is dropped: counts of clipped updates, for
  example, are exact.

  State: `privacy_noise`, the seed of the noise, if it takes one; `inner_agg`.

  Args:
    noise_stddev: The standard deviation, from 1e-37 to 1e37, in the unit of
      the result. No noise is another pipeline, not 0.
    inner_agg_factory: Sums the values, in `float64`. `None` is
      `tff.aggregators.SumFactory()`. Around a mean, or what compresses, the
      noise is not that of the Gaussian mechanism.
    noise_key: `None` draws fresh noise whenever a round runs, so that one that
      is run twice is two releases. A pair of 64-bit integers is a seed, for
      tests and simulations: noise is a function of the seed, the round and the
      tensor, and whoever knows the seed can subtract the noise.
  """
  noise_stddev = check_noise_stddev(noise_stddev)
  return noised_sum_factory(
    noise_stddev,
    factories.check_sum_factory('inner_agg_factory', inner_agg_factory),
    noise_key=noise_key,
    constants={'noise_stddev': np.float32(noise_stddev)},
  )


def noised_sum_factory(
  noise_stddev: float,
  sum_factory: SumFactory,
  *,
  noise_key: keys.NoiseKey,
  recurrence: stream.NoiseRecurrence | None = None,
  clip: clipping.Clip = clipping.NO_CLIP,
  multiplier: float = grid.PAID_MULTIPLIER,
  denominator: float = 1.0,
  constants: Mapping[str, Any],
) -> SumFactory:
  """Returns the factory of a sum, or mean, with noise of the server.

  `noise_stddev` is that of a draw, and `recurrence` says how noise follows from
  the draws. `multiplier` is the most that the noise multiplier of all rounds
  can be, where it is known. `constants` are the measurements.
  """
  noise_key = check_noise_key(noise_key)
  num_steps, shift = 1, 0.0
  if recurrence is not None:
    num_steps = stream.num_steps(recurrence)
    shift = stream.rounding_shift(recurrence)
  if not secure_sum.is_plain_sum(sum_factory, clip.norm):
    shift += num_steps * grid.RELATIVE_STEP

  def build(value_type):
    clip_value = clip.build(value_type)
    specs = tf.nest.flatten(values.specs_of(value_type))
    stddev = noise_stddev * grid.noise_factor(
      values.size_of(value_type), shift, multiplier
    )

    def initial():
      state = keys.initial_state(noise_key)
      if recurrence is not None:
        state[keys.ROUND] = tf.constant(0, tf.int64)
        state[_SLOTS] = [
          tf.zeros([recurrence.read_weights.shape[1], *spec.shape], tf.float64)
          for spec in specs
        ]
      return collections.OrderedDict(privacy_noise=state)

    def send(value):
      step = num_steps * grid.grid_step(stddev)
      clipped = clip_value(value).value
      return grid.round_towards_zero(clipped, step, clip.norm), ()

    def release(total, kept, _):
      state = kept[pipeline.NOISE_STATE]
      key = keys.round_key(state)
      if recurrence is None:
        noises = gaussian.draw_gaussian([s.shape for s in specs], stddev, key)
        after = keys.next_state(state)
      else:
        noises, slots = stream.next_noise(
          recurrence, stddev, key, state[keys.ROUND], list(state[_SLOTS])
        )
        after = keys.next_state(state, slots=slots)
      noised = gaussian.add_noise(
        total, noises, num_steps * grid.grid_step(stddev)
      )
      return noised, collections.OrderedDict(privacy_noise=after), constants

    return pipeline.Steps(sum_factory, initial, send, release)

  return pipeline.build_factory(build, denominator)


def check_noise_key(noise_key: Any) -> keys.NoiseKey:
  """Returns `noise_key` if it is a pair of 64-bit integers or `None`."""
  if noise_key is None:
    return None
  if not isinstance(noise_key, (tuple, list)) or len(noise_key) != 2:
    raise TypeError(
      f'`noise_key` must be a pair of integers or None, found {noise_key!r}.'
    )
  first, second = (
    argument_checks.check_integer(
      'noise_key', word, at_least=-(2**63), at_most=2**63 - 1
    )
    for word in noise_key
  )
  return first, second


def check_noise_stddev(noise_stddev: Any) -> float:
  """Returns a standard deviation as a float, if `float32` holds such noise."""
  number = argument_checks.check_positive('noise_stddev', noise_stddev)
  if not _MIN_STDDEV <= number <= _MAX_STDDEV:
    raise ValueError(
      f'`noise_stddev` must be at least {_MIN_STDDEV} and at most '
      f'{_MAX_STDDEV}, found {noise_stddev!r}: `float32` holds no draws '
      'of another.'
    )
  return number
