"""Noise that the server adds to a sum, independent or correlated."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import argument_checks
from tff_clipping.aggregators import clipping, pipeline, secure_sum, values
from tff_clipping.aggregators.factories import SumFactory
from tff_clipping.aggregators.noise import gaussian, grid, keys, stream

_SLOTS = 'slots'

# A number of `float32` may be 34 times as large.
_MIN_STDDEV, _MAX_STDDEV = 1e-37, 1e37


def check_noise_key(noise_key: Any) -> keys.NoiseKey:
  """Returns `noise_key` if it is a pair of 64-bit integers or `None`.

  Raises:
    TypeError: If it is none of them.
    ValueError: If one of the integers does not fit.
  """
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
  """Returns a standard deviation as a float, if `float32` holds such noise.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is not positive, below `_MIN_STDDEV`, or above
      `_MAX_STDDEV`.
  """
  number = argument_checks.check_positive('noise_stddev', noise_stddev)
  if not _MIN_STDDEV <= number <= _MAX_STDDEV:
    raise ValueError(
      f'`noise_stddev` must be at least {_MIN_STDDEV} and at most '
      f'{_MAX_STDDEV}, found {noise_stddev!r}: `float32` holds no draws '
      'of another.'
    )
  return number


def build_steps(
  value_type: tff.Type,
  noise_stddev: float,
  sum_factory: SumFactory,
  *,
  noise_key: keys.NoiseKey,
  recurrence: stream.NoiseRecurrence | None = None,
  clip: clipping.Clip = clipping.NO_CLIP,
  multiplier: float = grid.PAID_MULTIPLIER,
  constants: Mapping[str, Any],
) -> pipeline.Steps:
  """Returns the steps of a sum with noise of the server.

  Args:
    value_type: The type of the values that are summed.
    noise_stddev: The standard deviation of a draw.
    sum_factory: Sums the values.
    noise_key: As for `gaussian_noise_factory`.
    recurrence: How noise follows from the draws; `None` if it is independent.
    clip: Of the clients' values.
    multiplier: The noise multiplier of all rounds together, at most.
    constants: What is measured.
  """
  clip_value = clip.build(value_type)
  specs = tf.nest.flatten(values.specs_of(value_type))
  num_steps, shift = 1, 0.0
  if recurrence is not None:
    num_steps = stream.num_steps(recurrence)
    shift = stream.rounding_shift(recurrence)
  if not secure_sum.keeps_grid(sum_factory, clip.norm):
    shift += num_steps * grid.RELATIVE_STEP
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
    return grid.round_towards_zero(clip_value(value).value, step, clip.norm)

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
    return noised, collections.OrderedDict(privacy_noise=after)

  return pipeline.Steps(
    sum_factory, initial, send, release, lambda _: constants
  )
