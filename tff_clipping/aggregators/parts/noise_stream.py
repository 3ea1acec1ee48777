"""The noise of one round after the other, each from one draw and what is kept.

What a round adds is a fresh draw, which is exact, and a mean. The mean is
computed from the noises that were added before, and from nothing else, and is
rounded to the grid of the draw.

Theorem: let C be the inverse of the stream, by which the draws follow from the
noises, and let one client move the sums of all rounds by D, a multiple of the
grid of what is released, with ||C D|| <= s. Then the releases together are what
one Gaussian mechanism of multiplier m gives, where 1 / m = s / stddev + r, and
r = sqrt(d) * `rounding_shift` for sums of d elements; for m of at least 1/19,
but for the distance of the draws from Gaussian ones (see `gaussian_draws`), and
a probability of 1e-35 for each number that is kept.

Proof: whoever takes the client away has to take the noises that were added, N,
for N + D. Given what was released before, a round is then a Gaussian mechanism,
on a grid, whose value moves by D_t plus the difference of the means for N and
for N + D. With exact means that is the row t of C D. Each computed mean is off
by half a step of the grid of the draw, and by the rounding of `float64` before
that; the difference of two, by twice as much. By the triangle inequality, all
rounds together move by r more than with exact means. Rounds of Gaussian
mechanisms that depend on each other, whose values together move by no more than
a bound, are one Gaussian mechanism that moves by it (Smith and Thakurta 2022,
arXiv 2210.17520).

Under a banded C, taking part in a round moves the rounds of its bands alone, so
that the theorem holds of these rounds. It does where chance decides whether the
client takes part, too: what makes both cases of a release from two Gaussians
makes their mixture from the mixture of these. So a sampled Gaussian mechanism
of 1 / m is what amplification by sampling has for each of them.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from tff_clipping.aggregators.parts import gaussian_draws

# The step of what is released, in steps of the draws, where these are mixed:
# each point is reached.
_STEPS = 2**5

# What is kept is below so many of its standard deviations: 13 for the noise,
# which is above them with a probability of 1e-38, and the rest for what a
# client moves, down to a multiplier of 1/19, and for the rounding of releases.
_TAIL = 40.0

# Noises and means below so many standard deviations of their draw are exact on
# its grid in `float64`.
_LARGEST_NOISE = 2.0**22

# Half of the distance of 1 and the next number of `float64`.
_ROUNDING = 2.0**-53


class NoiseRecurrence(Protocol):
  """Noise as a stream; see `privacy.correlated_noise.NoiseRecurrence`."""

  @property
  def phases(self) -> np.ndarray:
    """The row of the tables for each round, of shape [num_rounds]."""

  @property
  def read_weights(self) -> np.ndarray:
    """What the slots count for, of shape [num_phases, num_slots]."""

  @property
  def keep_weights(self) -> np.ndarray:
    """The share of each slot that stays, of the same shape."""

  @property
  def write_weights(self) -> np.ndarray:
    """How much of the noise goes to each slot, of the same shape."""


def relative_step(recurrence: NoiseRecurrence) -> float:
  """Returns the step of what is released, at most, in standard deviations."""
  return _num_steps(recurrence) * gaussian_draws.RELATIVE_STEP


def release_step(recurrence: NoiseRecurrence, stddev: float) -> tf.Tensor:
  """Returns the step of the grid of what is released, a power of 2.

  Args:
    recurrence: The noise.
    stddev: The standard deviation of a draw.
  """
  return _num_steps(recurrence) * gaussian_draws.grid_step(stddev)


def next_noise(
  recurrence: NoiseRecurrence,
  stddev: float,
  key: tf.Tensor,
  round_num: tf.Tensor,
  slots: Sequence[tf.Tensor],
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
  """Returns the noise of a round and what is kept after it.

  Args:
    recurrence: How the noises follow from the draws.
    stddev: The standard deviation of a draw.
    key: Of the round's draws, an `int64` tensor of shape [2].
    round_num: The round, from 0. In a graph, a round that `recurrence` has no
      noise for fails.
    slots: What is kept for each tensor that is noised, `float64` of shape
      [num_slots, ...].

  Returns:
    Noises of the tensors, on the grid of `release_step`; and slots.
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

  draws = gaussian_draws.draw_gaussian(
    [slot.shape[1:] for slot in slots], stddev, key
  )
  step = release_step(recurrence, stddev)
  read = row(recurrence.read_weights)
  keep, write = row(recurrence.keep_weights), row(recurrence.write_weights)
  noises, kept = [], []
  for draw, slot in zip(draws, slots, strict=True):
    mean = gaussian_draws.round_to_nearest(
      tf.reduce_sum(_column(read, slot) * slot, axis=0),
      gaussian_draws.grid_step(stddev),
    )
    noise = gaussian_draws.round_noise(draw + mean, step)
    noises.append(noise)
    # Of the noise that is added, and not of what was rounded off.
    kept.append(_column(keep, slot) * slot + _column(write, slot) * noise)
  return noises, kept


def rounding_shift(recurrence: NoiseRecurrence) -> float:
  """Returns by how much rounding moves the mechanism, at most.

  Returns:
    For all rounds and one element, in standard deviations of the draws; 0 where
    nothing is kept, and infinite where noises become so large that `float64`
    does not hold them on their grid.
  """
  num_slots = recurrence.read_weights.shape[1]
  if not num_slots:
    return 0.0
  # Of what is kept for one element: covariance, and how far it is off.
  covariance = np.zeros([num_slots, num_slots])
  error = np.zeros(num_slots)
  # Of a sum of so many products.
  of_sum = (num_slots + 3) * _ROUNDING
  total = 0.0
  for phase in recurrence.phases:
    read, keep, write = (
      table[phase]
      for table in (
        recurrence.read_weights,
        recurrence.keep_weights,
        recurrence.write_weights,
      )
    )
    # Not below 0, by rounding.
    size = _TAIL * np.sqrt(np.maximum(np.diag(covariance), 0))
    of_mean = np.abs(read) @ error + of_sum * (np.abs(read) @ size)
    total += (gaussian_draws.RELATIVE_STEP + 2 * of_mean) ** 2
    from_slots = covariance @ read
    variance = 1 + read @ from_slots
    noise_size = _TAIL * np.sqrt(variance)
    if not np.abs(read) @ size + noise_size <= _LARGEST_NOISE:
      return math.inf
    # Noises are exact, and so is what is moved, not mixed.
    is_rounded = ~(
      _is_whole(keep) & _is_whole(write) & ((keep == 0) | (write == 0))
    )
    error = np.abs(keep) * error + of_sum * is_rounded * (
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


def _is_whole(weights: np.ndarray) -> np.ndarray:
  """Returns which weights are 0, 1 or -1."""
  return (weights == 0) | (np.abs(weights) == 1)


def _num_steps(recurrence: NoiseRecurrence) -> int:
  return _STEPS if recurrence.read_weights.shape[1] else 1


def _column(weights: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Returns weights of slots, to be multiplied with them."""
  return tf.reshape(weights, [-1] + [1] * (slot.shape.rank - 1))
