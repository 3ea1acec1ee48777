"""The stream of correlated noise: from one draw a round and what is kept.

Theorem 2 of the package has the guarantee and its proof. What is kept follows
from the noises that were added, and from nothing else.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_clipping.aggregators.noise import gaussian, grid
from tff_clipping.privacy.correlated_noise import NoiseRecurrence

# The step of what is released, in steps of the draws, where these are mixed:
# each point is reached.
_STEPS = 2**5

# What is kept is below so many of its standard deviations: 13 for the noise,
# which is above them with a probability of 1e-38, 19 for what a client moves,
# down to a multiplier of 1/19, and 8 for the rounding of releases.
_TAIL = 40.0

# Noises and means below so many standard deviations of their draw are exact on
# its grid in `float64`.
_LARGEST_NOISE = 2.0**22

# Half of the distance of 1 and the next number of `float64`.
_ROUNDING = 2.0**-53


def num_steps(recurrence: NoiseRecurrence) -> int:
  """Returns the step of what is released, in steps of the draws."""
  return _STEPS if recurrence.num_slots else 1


def next_noise(
  recurrence: NoiseRecurrence,
  stddev: float,
  key: tf.Tensor,
  round_num: tf.Tensor,
  slots: Sequence[tf.Tensor],
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
  """Returns the noise of a round and what is kept after it.

  Args:
    recurrence: How the noises follow from the draws; its docstring has the
      formulas.
    stddev: The standard deviation of a draw.
    key: Of the round's draws.
    round_num: The round, from 0. One that `recurrence` has no noise for fails.
    slots: What is kept for each tensor, `float64` of shape [num_slots, ...].
  """
  num_rounds = len(recurrence.phases)
  # That of `tf.debugging` has a branch, behind which nothing is begun early.
  check = tf.raw_ops.Assert(
    condition=round_num < num_rounds,
    data=[
      f'The noise strategy is for {num_rounds} rounds, and all of them were '
      'run: what was released is private as planned, one more round is not. A '
      'longer run needs a strategy for all of its rounds from the start.'
    ],
  )
  with tf.control_dependencies([check] if check is not None else []):
    phase = tf.gather(tf.constant(recurrence.phases, tf.int64), round_num)

  def row(table):
    return tf.gather(tf.constant(table, tf.float64), phase)

  draws = gaussian.draw_gaussian(
    [slot.shape[1:] for slot in slots], stddev, key
  )
  step = num_steps(recurrence) * grid.grid_step(stddev)
  read = row(recurrence.read_weights)
  keep, write = row(recurrence.keep_weights), row(recurrence.write_weights)
  noises, kept = [], []
  for draw, slot in zip(draws, slots, strict=True):
    mean = grid.round_to_nearest(
      tf.reduce_sum(_column(read, slot) * slot, axis=0),
      grid.grid_step(stddev),
    )
    noise = grid.round_noise(draw + mean, step)
    noises.append(noise)
    # Of the noise that is added, and not of what was rounded off.
    kept.append(_column(keep, slot) * slot + _column(write, slot) * noise)
  return noises, kept


def rounding_shift(recurrence: NoiseRecurrence) -> float:
  """Returns by how much rounding moves the mechanism, at most.

  That is for all rounds and one element, in standard deviations of the draws; 0
  where nothing is kept, and infinite where noises become so large that
  `float64` does not hold them on their grid.
  """
  num_slots = recurrence.num_slots
  if not num_slots:
    return 0.0
  # Of what is kept for one element: covariance, and how far it is off.
  covariance = np.zeros([num_slots, num_slots])
  error = np.zeros(num_slots)
  # Of a sum of so many products.
  of_sum = (num_slots + 3) * _ROUNDING
  total = 0.0
  for phase in recurrence.phases:
    read = recurrence.read_weights[phase]
    keep = recurrence.keep_weights[phase]
    write = recurrence.write_weights[phase]
    # Not below 0, by rounding.
    size = _TAIL * np.sqrt(np.maximum(np.diag(covariance), 0))
    of_mean = np.abs(read) @ error + of_sum * (np.abs(read) @ size)
    total += (grid.RELATIVE_STEP + 2 * of_mean) ** 2
    from_slots = covariance @ read
    variance = 1 + read @ from_slots
    noise_size = _TAIL * np.sqrt(variance)
    if not np.abs(read) @ size + noise_size <= _LARGEST_NOISE:
      return math.inf
    error = np.abs(keep) * error + of_sum * (
      np.abs(keep) * size + np.abs(write) * noise_size
    )
    crossed = np.outer(keep * from_slots, write)
    covariance = (
      np.outer(keep, keep) * covariance
      + crossed
      + crossed.T
      + variance * np.outer(write, write)
    )
  return float(np.sqrt(total))


def _column(weights: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Returns weights of slots, to be multiplied with them."""
  return tf.reshape(weights, [-1] + [1] * (slot.shape.rank - 1))
