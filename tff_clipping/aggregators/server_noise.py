"""Noise that the server adds to a sum, independent or correlated."""

import collections
import hashlib
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
from tff_clipping.privacy.correlated_noise import (
  NoiseRecurrence,
  NoiseStrategy,
)

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
  round.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2, a round is the Gaussian mechanism with noise multiplier
  `noise_stddev / s`, in the numbers that are released: `aggregators.noise` has
  the theorem. What bounds `s` is a clip, outside or inside: this factory does
  not clip. An empty cohort gives 0 + noise. An update that is not finite, or
  whose sum of squares is above the largest `float32`, becomes zero. No
  record of a mechanism is measured, so that a run counts as unchecked:
  `dp_mean_factory` has a record.

  Clients' values are rounded towards zero to a grid of at most 2^-29 standard
  deviations. An `inner_agg_factory` other than `tff.aggregators.SumFactory`,
  such as a clip, or a secure sum that clamps, may leave the grid: its result is
  rounded, and the noise is larger by a factor of 1 + 2^-24 sqrt(d), for d
  elements, which pays for the rounding up to a noise multiplier of 32.

  Measurements (those of `inner_agg_factory`, which have no noise, are dropped):
    noise_stddev: The standard deviation, `float32`.

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


def correlated_noise_factory(
  strategy: NoiseStrategy,
  noise_stddev: float,
  inner_agg_factory: SumFactory | None = None,
  *,
  noise_key: keys.NoiseKey = None,
) -> SumFactory:
  """Adds noise of which later rounds subtract a part, at the SERVER.

  At SERVER, `inner_agg_factory`'s result + the round's row of C^{-1} Z, where C
  is the matrix of `strategy` and Z has a row of independent N(0,
  `noise_stddev`^2) for each round. The rows come one by one, from one draw a
  round and a few arrays of the size of the result: the bands of a banded
  strategy less one, or the buffers of a BLT.

  Guarantee: if one client moves the result of `inner_agg_factory` by at most
  `s` in L2 in the rounds in which it takes part, all rounds together are one
  Gaussian mechanism with noise multiplier `noise_stddev` / (`s` *
  `strategy.compute_sensitivity(participation)`), under zeroing out one client;
  Theorem 2 of `aggregators.noise` has the proof. The sampler holds
  clients to `participation`; for clips, and updates that are not
  finite, see `gaussian_noise_factory`.

  A state tells a part of the noise of later rounds: keep it secret. A round
  must not run again once its result is released, which would cost more than the
  plan charges; `programs.run_private_round` never runs it again.

  What is released lies on a grid, of at most 2^-24 standard deviations of a
  draw, to which clients' values are rounded towards zero. For n elements in T
  rounds, the noise is larger by a factor of some 1 + 2^-24 sqrt(n T), which
  pays for the rounding up to a noise multiplier of 32. Where a clip is inside
  `inner_agg_factory`, sums are rounded too, with a factor of 1 + 2^-19 sqrt(n),
  which pays up to `noise_stddev` / `s` = 32. For a larger multiplier of one
  draw, put the clip outside, as `correlated_dp_mean_factory` does.

  Measurements (those of `inner_agg_factory`, which have no noise, are dropped):
    noise_stddev: That of one draw, `float32`.
    strategy_digest: A string that differs between strategies.

  State: `privacy_noise`, with `round_num` (`int64`), `slots` (`float64`, what
  is kept for each tensor, along a first dimension), and `key` (`int64[2]`, as
  secret as the noise) if one was given; `inner_agg`.

  Args:
    strategy: How the noise of a round depends on the rounds before. Its last
      round is the last that can be run.
    noise_stddev: The standard deviation of a draw; this and the others as for
      `gaussian_noise_factory`.
    inner_agg_factory: Sums the values.
    noise_key: A seed, or `None`.

  Raises:
    ValueError: By `create`, if rounding moves the mechanism by more than a 64th
      of the noise, as where noises of later rounds become ever larger.

  Source: Denisov et al. 2022 (arXiv 2202.08312); for the strategies, see
    `tff_clipping.privacy.correlated_noise`.
  """
  recurrence = check_strategy(strategy)
  noise_stddev = check_noise_stddev(noise_stddev)
  return noised_sum_factory(
    noise_stddev,
    factories.check_sum_factory('inner_agg_factory', inner_agg_factory),
    noise_key=noise_key,
    recurrence=recurrence,
    constants={
      'noise_stddev': np.float32(noise_stddev),
      'strategy_digest': strategy_digest(recurrence),
    },
  )


def noised_sum_factory(
  noise_stddev: float,
  sum_factory: SumFactory,
  *,
  noise_key: keys.NoiseKey,
  recurrence: NoiseRecurrence | None = None,
  clip: clipping.Clip = clipping.NO_CLIP,
  denominator: float = 1.0,
  constants: Mapping[str, Any],
) -> SumFactory:
  """Returns the factory of a sum, or mean, with noise of the server.

  `noise_stddev` is that of a draw, and `recurrence` says how noise follows from
  the draws. `constants` are the measurements.
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
    # A client that takes part moves the draws by the clipping norm at least, so
    # that the noise multiplier of all rounds is not above this one.
    stddev = noise_stddev * grid.noise_factor(
      values.size_of(value_type), shift, noise_stddev / clip.norm
    )

    def initial():
      state = keys.initial_state(noise_key)
      if recurrence is not None:
        state[keys.ROUND] = tf.constant(0, tf.int64)
        state['slots'] = [
          tf.zeros([recurrence.num_slots, *spec.shape], tf.float64)
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
          recurrence, stddev, key, state[keys.ROUND], list(state['slots'])
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
  return argument_checks.check_between(
    'noise_stddev', noise_stddev, _MIN_STDDEV, _MAX_STDDEV
  )


def check_strategy(strategy: Any) -> NoiseRecurrence:
  """Returns the noise of a strategy as a stream."""
  recurrence = getattr(strategy, 'recurrence', None)
  if not isinstance(recurrence, NoiseRecurrence):
    raise TypeError(
      '`strategy` must be a noise strategy, such as `privacy.blt_strategy` '
      f'returns, found {strategy!r}.'
    )
  return recurrence


def strategy_digest(recurrence: NoiseRecurrence) -> str:
  """Returns a string that differs between streams of noise, to the last bit.

  A strategy that is read back from a file keeps it. A strategy that is
  optimised anew may have another, on another processor or with another SciPy.
  """
  digest = hashlib.blake2b(digest_size=8)
  for name, table in recurrence._asdict().items():
    # Zero has no sign then.
    table = np.asarray(table, np.float64) + 0.0
    digest.update(f'{name} {table.shape};'.encode())
    digest.update(table.tobytes())
  return digest.hexdigest()
