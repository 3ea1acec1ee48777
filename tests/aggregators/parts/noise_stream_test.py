"""Tests of the stream of correlated noise, and of what its rounding costs."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import privacy
from tff_clipping.aggregators.parts import (
  gaussian_draws,
  grid_sums,
  noise_stream,
)
from tff_clipping.privacy import correlated_noise

_STDDEV = 1.7
_SIZE = 200
_STRATEGIES = {
  'banded': correlated_noise.BandedStrategy(
    num_rounds=12, coefficients=(1.0, 0.6, 0.4)
  ),
  'blt': correlated_noise.BufferedToeplitzStrategy(
    num_rounds=12, scales=(0.4, 0.2), decays=(0.99, 0.4)
  ),
  'tree': privacy.TreeStrategy(num_rounds=12),
  'restarted': privacy.RestartedStrategy(
    num_rounds=12, inner=privacy.TreeStrategy(num_rounds=6)
  ),
}


@pytest.fixture(name='recurrence', params=list(_STRATEGIES))
def _recurrence(request):
  return _STRATEGIES[request.param].recurrence


def _next(recurrence, round_num, slots, key=(1, 2)):
  with tf.device('cpu'):
    (noise,), (slots,) = noise_stream.next_noise(
      recurrence,
      _STDDEV,
      tf.constant(key, tf.int64),
      tf.constant(round_num, tf.int64),
      [slots],
    )
  return noise.numpy(), slots


def _replay(monkeypatch, recurrence, noises, keep=lambda slots: slots):
  """Returns the means of rounds, if these were their noises, and the slots.

  Args:
    monkeypatch: Takes the place of what draws.
    recurrence: The stream.
    noises: Of shape [num_rounds, size].
    keep: What becomes of slots between rounds.
  """
  slots = tf.zeros([recurrence.num_slots, noises.shape[1]], tf.float64)
  means, draws = [], []
  with monkeypatch.context() as patch:
    # Nothing is rounded but the means.
    patch.setattr(gaussian_draws, 'round_noise', lambda noise, step: noise)
    patch.setattr(gaussian_draws, 'draw_gaussian', lambda *_: draws)
    for round_num, noise in enumerate(noises):
      draws[:] = [np.zeros_like(noise)]
      mean, _ = _next(recurrence, round_num, slots)
      draws[:] = [noise - mean]
      found, slots = _next(recurrence, round_num, slots)
      np.testing.assert_array_equal(found, noise)
      slots = keep(slots)
      means.append(mean)
  return np.array(means), slots


def _on_grid(recurrence, values):
  step = float(noise_stream.release_step(recurrence, _STDDEV))
  return np.round(values / step) * step


def _shift_beyond_theory(monkeypatch, recurrence, **kwargs):
  """Returns by how much rounds move beyond C D, for the worst element.

  In standard deviations of their draws, over all rounds together.
  """
  rng = np.random.default_rng(0)
  shape = len(recurrence.phases), _SIZE
  noises = _on_grid(recurrence, rng.normal(scale=3 * _STDDEV, size=shape))
  moves = _on_grid(recurrence, rng.normal(scale=_STDDEV / 8, size=shape))
  means, _ = _replay(monkeypatch, recurrence, noises, **kwargs)
  moved, _ = _replay(monkeypatch, recurrence, noises + moves, **kwargs)
  weights = recurrence.draw_weights[recurrence.phases][:, np.newaxis]
  found = (moves - (moved - means)) / weights
  inverse = np.array(list(recurrence.stream(np.eye(shape[0]))))
  beyond = (found - np.linalg.solve(inverse, moves)) / _STDDEV
  return np.max(np.linalg.norm(beyond, axis=0))


def test_a_client_moves_the_rounds_as_c_says_but_for_the_rounding(
  monkeypatch, recurrence
):
  bound = noise_stream.rounding_shift(recurrence)
  beyond = _shift_beyond_theory(monkeypatch, recurrence)
  # A tenth, by chance; `solve` is right to 1e-15.
  assert bound / 10 < beyond <= bound
  # Slots of 24 bits, of which that is not true.
  narrow = _shift_beyond_theory(
    monkeypatch,
    recurrence,
    keep=lambda slots: tf.cast(tf.cast(slots, tf.float32), tf.float64),
  )
  assert narrow > bound


def test_what_is_kept_follows_from_the_noises_that_were_added(
  monkeypatch, recurrence
):
  slots = tf.zeros([recurrence.num_slots, _SIZE], tf.float64)
  noises = []
  for round_num in range(12):
    noise, slots = _next(recurrence, round_num, slots, (3, round_num))
    noises.append(noise)
  np.testing.assert_array_equal(noises, _on_grid(recurrence, np.array(noises)))
  _, replayed = _replay(monkeypatch, recurrence, np.array(noises))
  np.testing.assert_array_equal(slots, replayed)


def test_the_shift_is_a_step_an_element_and_round():
  strategy = correlated_noise.BandedStrategy
  bands = strategy(num_rounds=100, coefficients=(1.0, 0.5)).recurrence
  # The rounding of `float64` adds little.
  shift = noise_stream.rounding_shift(bands)
  assert shift == pytest.approx(2.0**-29 * 10, rel=1e-2)
  assert shift > 2.0**-29 * 10
  alone = privacy.identity_strategy(num_rounds=100).recurrence
  assert noise_stream.rounding_shift(alone) == 0


def test_the_rounding_of_long_sums_counts():
  # 50,000 rounds that are kept, of a large size, each rounded.
  slow = correlated_noise.BufferedToeplitzStrategy(
    num_rounds=50_000, scales=(1e-6,), decays=(1 - 1e-9,)
  )
  found = noise_stream.rounding_shift(slow.recurrence)
  # Of the slot: 13 standard deviations of its sum, sqrt(t), with 4 roundings a
  # round; what is read of it is 1e-6 of that.
  rounds = np.arange(50_000.0)
  size = 13 * np.sqrt(rounds)
  error = np.cumsum(4 * 2.0**-53 * (size + 13))
  by_hand = 2.0**-29 + 2e-6 * (error + 4 * 2.0**-53 * size)
  assert found == pytest.approx(np.linalg.norm(by_hand), rel=1e-3)


def test_noise_pays_for_the_shift_up_to_a_multiplier_of_32():
  value_type = tff.to_type([(np.float32, [3, 5]), (np.float64, [])])
  shift = 1e-3
  factor = grid_sums.shift_factor(value_type, shift)
  # Four for the root of 16 elements.
  for multiplier in (1, 32):
    moved = 1 / (multiplier * factor) + 4 * shift
    assert moved <= 1 / multiplier * (1 + 1e-12)
  assert 1 / (32.1 * factor) + 4 * shift > 1 / 32.1
  with pytest.raises(ValueError, match='`strategy` must be for fewer rounds'):
    grid_sums.shift_factor(value_type, 1 / 200)


def test_a_draw_that_counts_for_nothing_or_too_much_is_refused():
  recurrence = _STRATEGIES['tree'].recurrence
  for weight in (0.0, -1.0, 17.0, math.nan):
    weights = np.full_like(recurrence.draw_weights, weight)
    with pytest.raises(ValueError, match='must have draws of weights above 0'):
      noise_stream.check_weights(recurrence._replace(draw_weights=weights))
