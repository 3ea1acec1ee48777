"""Tests of the stream of correlated noise, and of what its rounding costs."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import noise_strategies
from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.noise import (
  gaussian,
  grid,
  stream,
)
from tff_clipping.privacy import correlated_noise

_SIZE = 200
_STRATEGIES = {
  'banded': noise_strategies.banded(12),
  'blt': noise_strategies.two_buffers(12),
}


@pytest.fixture(name='recurrence', params=list(_STRATEGIES))
def _recurrence(request):
  return _STRATEGIES[request.param].recurrence


def _next(recurrence, stddev, round_num, slots, key=(1, 2)):
  with tf.device('cpu'):
    (noise,), (slots,) = stream.next_noise(
      recurrence,
      stddev,
      tf.constant(key, tf.int64),
      tf.constant(round_num, tf.int64),
      [slots],
    )
  return noise.numpy(), slots


def _replay(monkeypatch, recurrence, stddev, noises, keep=lambda slots: slots):
  """Returns the means of rounds with these noises, [T, d], and the slots."""
  slots = tf.zeros([recurrence.num_slots, noises.shape[1]], tf.float64)
  means, draws = [], []
  with monkeypatch.context() as patch:
    # Nothing is rounded but the means.
    patch.setattr(grid, 'round_noise', lambda noise, step: noise)
    patch.setattr(gaussian, 'draw_gaussian', lambda *_: draws)
    for round_num, noise in enumerate(noises):
      draws[:] = [np.zeros_like(noise)]
      mean, _ = _next(recurrence, stddev, round_num, slots)
      draws[:] = [noise - mean]
      found, slots = _next(recurrence, stddev, round_num, slots)
      np.testing.assert_array_equal(found, noise)
      slots = keep(slots)
      means.append(mean)
  return np.array(means), slots


def _on_grid(recurrence, stddev, values):
  step = stream.num_steps(recurrence) * float(grid.grid_step(stddev))
  return np.round(values / step) * step


def _move_beyond_theory(monkeypatch, recurrence, stddev, **kwargs):
  """Returns by how much each round moves beyond what C says, of shape [T, d].

  In standard deviations of a draw.
  """
  rng = np.random.default_rng(0)
  shape = len(recurrence.phases), _SIZE
  noises = rng.normal(scale=3 * stddev, size=shape)
  noises = _on_grid(recurrence, stddev, noises)
  moves = rng.normal(scale=stddev / 8, size=shape)
  moves = _on_grid(recurrence, stddev, moves)
  means, _ = _replay(monkeypatch, recurrence, stddev, noises, **kwargs)
  moved, _ = _replay(monkeypatch, recurrence, stddev, noises + moves, **kwargs)
  found = moves - (moved - means)
  inverse = noise_strategies.inverse_matrix(recurrence)
  return (found - np.linalg.solve(inverse, moves)) / stddev


# The step of a draw is from 2^-30, exclusive, to 2^-29 of it.
@pytest.mark.parametrize('stddev', [1.0, 1.7])
def test_a_client_moves_the_rounds_as_c_says_but_for_the_rounding(
  monkeypatch, recurrence, stddev
):
  beyond = _move_beyond_theory(monkeypatch, recurrence, stddev)
  # Half a step for each of two means, and hardly more for `float64`.
  step = float(grid.grid_step(stddev))
  assert np.all(np.abs(beyond) <= step / stddev * 1.001)
  of_element = np.max(np.linalg.norm(beyond, axis=0))
  bound = stream.rounding_shift(recurrence)
  # By chance a fraction of it.
  assert bound / 10 < of_element <= bound
  # With slots of 24 bits that is not true.
  narrow = _move_beyond_theory(
    monkeypatch,
    recurrence,
    stddev,
    keep=lambda slots: tf.cast(tf.cast(slots, tf.float32), tf.float64),
  )
  assert np.max(np.linalg.norm(narrow, axis=0)) > bound


def test_what_is_kept_follows_from_the_noises_that_were_added(
  monkeypatch, recurrence
):
  slots = tf.zeros([recurrence.num_slots, _SIZE], tf.float64)
  noises = []
  for round_num in range(12):
    noise, slots = _next(recurrence, 1.7, round_num, slots, (3, round_num))
    noises.append(noise)
  noises = np.array(noises)
  np.testing.assert_array_equal(noises, _on_grid(recurrence, 1.7, noises))
  _, replayed = _replay(monkeypatch, recurrence, 1.7, noises)
  np.testing.assert_array_equal(slots, replayed)


def test_the_shift_is_a_step_an_element_and_round():
  strategy = correlated_noise.BandedStrategy
  bands = strategy(num_rounds=100, coefficients=(1.0, 0.5)).recurrence
  # The rounding of `float64` adds little.
  shift = stream.rounding_shift(bands)
  assert shift == pytest.approx(2.0**-29 * 10, rel=1e-2, abs=0)
  assert shift > 2.0**-29 * 10
  alone = privacy.identity_strategy(num_rounds=100).recurrence
  assert stream.rounding_shift(alone) == 0


def _shift_by_sums(recurrence):
  """Returns `rounding_shift` without its recursions, for few rounds.

  Sizes are those of the slots as linear functions of all draws; what a slot is
  off by is a sum over the roundings before it.
  """
  num_rounds, num_slots = len(recurrence.phases), recurrence.num_slots
  of_draws = np.zeros([num_slots, num_rounds])
  roundings, steps, total = [], [], 0.0
  unit = (num_slots + 3) * 2.0**-53
  for round_num, phase in enumerate(recurrence.phases):
    read, keep, write = (table[phase] for table in recurrence[1:])
    size = 40 * np.linalg.norm(of_draws, axis=1)
    off = np.zeros(num_slots)
    for start, rounding in enumerate(roundings):
      moved = rounding
      for step in steps[start + 1 :]:
        moved = step @ moved
      off += moved
    of_mean = np.abs(read) @ (off + unit * size)
    total += (2.0**-29 + 2 * of_mean) ** 2
    noise = np.eye(num_rounds)[round_num] + read @ of_draws
    noise_size = 40 * np.linalg.norm(noise)
    roundings.append(unit * (np.abs(keep) * size + np.abs(write) * noise_size))
    steps.append(np.diag(np.abs(keep)))
    of_draws = keep[:, np.newaxis] * of_draws + np.outer(write, noise)
  return math.sqrt(total)


def _with_large_slots():
  """Returns two phases of three slots, with weights of all kinds."""
  rng = np.random.default_rng(1)
  return correlated_noise.NoiseRecurrence(
    phases=np.array([0, 1, 1, 0, 1, 0, 0, 1]),
    read_weights=rng.normal(size=[2, 3]),
    keep_weights=rng.uniform(0.5, 1, [2, 3]),
    write_weights=rng.normal(size=[2, 3]) * 14,
  )


_SUM_OF_ROUNDED_SLOTS = correlated_noise.NoiseRecurrence(
  phases=np.zeros(12, np.int64),
  read_weights=np.array([[300.0, 0.5]]),
  keep_weights=np.array([[0.9, 0.0]]),
  write_weights=np.array([[1e-3, 1.0]]),
)


@pytest.mark.parametrize(
  ('recurrence', 'least', 'tolerance'),
  [
    # A good part of it is that of `float64`.
    (_with_large_slots(), 0.2, 1e-6),
    (_SUM_OF_ROUNDED_SLOTS, 0, 1e-6),
    *((each.recurrence, 0, 1e-3) for each in _STRATEGIES.values()),
  ],
)
def test_the_shift_is_that_of_sums_over_roundings(recurrence, least, tolerance):
  # But for the rounding to the grid, which is nearly all of it in most.
  to_grid = 2.0**-29 * math.sqrt(len(recurrence.phases))
  found = stream.rounding_shift(recurrence) - to_grid
  by_sums = _shift_by_sums(recurrence) - to_grid
  assert found > least * to_grid
  assert found == pytest.approx(by_sums, rel=tolerance, abs=0)


def test_the_largest_noise_is_2_to_the_22_deviations():
  # Round t has the noise -2 n_(t-1) and a draw: 4^k of each draw k rounds ago.
  deviations = np.sqrt(np.cumsum(4.0 ** np.arange(30)))
  sizes = 40 * (deviations + 2 * np.append(0, deviations[:-1]))
  most = int(np.argmax(sizes > 2**22))
  for num_rounds, is_held in ((most, True), (most + 1, False)):
    strategy = correlated_noise.BandedStrategy(
      num_rounds=num_rounds, coefficients=(1.0, 2.0)
    )
    shift = stream.rounding_shift(strategy.recurrence)
    assert math.isfinite(shift) == is_held


@pytest.mark.parametrize(
  ('coefficients', 'num_rounds'), [((1.0, 2.0), 36), ((1.0, 5.0), 400)]
)
def test_noises_that_float64_does_not_hold_are_refused(
  coefficients, num_rounds
):
  strategy = correlated_noise.BandedStrategy(
    num_rounds=num_rounds, coefficients=coefficients
  )
  assert stream.rounding_shift(strategy.recurrence) == math.inf
  factory = aggregators.correlated_noise_factory(strategy, 1.0)
  with pytest.raises(ValueError, match='with smaller coefficients'):
    factory.create(tff.TensorType(np.float32, [1]))


def test_noise_pays_for_the_shift_up_to_a_multiplier_of_32():
  shift = 1e-3
  factor = grid.noise_factor(16, shift, 0.0)
  # Four for the root of 16 elements.
  for multiplier in (1, 32):
    moved = 1 / (multiplier * factor) + 4 * shift
    assert moved <= 1 / multiplier * (1 + 1e-12)
  assert 1 / (32.1 * factor) + 4 * shift > 1 / 32.1
  # Of a larger multiplier that is known, up to that.
  factor = grid.noise_factor(16, shift, 100.0)
  assert 1 / (100 * factor) + 4 * shift == pytest.approx(1 / 100, rel=1e-12)
  assert factor > grid.noise_factor(16, shift, 2.0)
  with pytest.raises(ValueError, match='must be by at most 0.0156'):
    grid.noise_factor(16, 1 / 200, 0.0)
  with pytest.raises(ValueError, match='a strategy for fewer rounds'):
    grid.noise_factor(16, math.inf, 0.0)
