"""Tests of the draws of Gaussian noise, on their grid."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from tff_clipping.aggregators.noise import gaussian, grid, keys, table

_KEYS = [[1, 2], [3, 4]]


def _give_words(monkeypatch, answers):
  """Gives these for the keys in their order; returns what is left of them."""
  left = list(zip(_KEYS, answers, strict=True))

  def draw_words(key, shape, dtype=tf.int64):
    expected, answer = left.pop(0)
    np.testing.assert_array_equal(key, expected)
    np.testing.assert_array_equal(shape, answer.shape)
    assert dtype == answer.dtype
    return answer

  monkeypatch.setattr(keys, 'draw_words', draw_words)
  return left


def test_parts_are_those_of_the_table(monkeypatch):
  entries, low = table.alias_table(2048.0)
  others, high = entries >> 16, entries & (2**16 - 1)
  own = np.array([0, 100, -4000, 8000, 8000, -8000, -4000, 100])
  # Below the threshold, at it, and above; where they tie, more bits decide.
  first = np.clip(high[own] + [-1, 0, 1, 0, 0, 0, 0, 0], 0, 2**16 - 1)
  more = low[own] + [
    (0, 0),
    (0, 0),
    (0, 0),
    (-1, 1),
    (0, -1),
    (1, -1),
    (0, 0),
    (0, 1),
  ]
  is_tie = first == high[own]
  words = tf.constant([(own << 16) + first], tf.int32)
  left = _give_words(monkeypatch, [words, tf.constant(more[is_tie])])
  found = table.draw_combined(
    len(own), tf.constant(_KEYS, tf.int64), 2048.0, 1, lambda drawn: drawn
  )
  is_own = (first < high[own]) | (
    is_tie
    & (
      (more[:, 0] < low[own, 0])
      | ((more[:, 0] == low[own, 0]) & (more[:, 1] < low[own, 1]))
    )
  )
  assert list(is_own[3:]) == [True, True, False, False, False]
  np.testing.assert_array_equal(found, np.where(is_own, own, others[own]))
  assert not left


def test_ties_of_any_part_of_a_draw_are_decided(monkeypatch):
  entries, low = table.alias_table(2048.0)
  others, high = entries >> 16, entries & (2**16 - 1)
  own = np.random.default_rng(0).integers(-6000, 6000, [3, 60])
  # Of each draw none, one or more of the parts tie, and the next bits are just
  # below, or not.
  is_tie = np.array([[(i >> part) & 1 for i in range(60)] for part in range(3)])
  is_below = np.array([[(i // 8) % 2] * 3 for i in range(60)]).T
  first = np.where(is_tie, high[own], (high[own] + 2**15) % 2**16)
  more = low[own] - is_below[..., np.newaxis] * np.array([0, 1])
  in_ties = is_tie.any(axis=0)
  words = tf.constant((own << 16) + first, tf.int32)
  bits = tf.constant(more[:, in_ties].reshape([-1, 2]))
  left = _give_words(monkeypatch, [words, bits])
  stddev, step = 1.3 * 2**29, 1.0
  found = gaussian._draw_block(
    60,
    tf.constant(stddev, tf.float64),
    tf.constant(step, tf.float64),
    tf.constant(_KEYS, tf.int64),
  )
  is_own = np.where(is_tie, is_below, first < high[own])
  largest = math.ceil(math.sqrt((stddev / 2048) ** 2 - 2**20 - 1))
  scales = np.array([largest, 1024, 1])
  np.testing.assert_array_equal(
    found, scales @ np.where(is_own, own, others[own])
  )
  assert not left


@pytest.mark.parametrize('stddev', [1.0, 1.3, 1.999999, 3e-5, 7e20])
def test_parts_have_the_variance_together(monkeypatch, stddev):
  # With ones for the parts: the scales, whose squares are the variance.
  ones = tf.unstack(tf.eye(3, dtype=tf.int32))
  monkeypatch.setattr(
    table, 'draw_combined', lambda *arguments: arguments[-1](*ones)
  )
  (drawn,) = gaussian.draw_gaussian(
    [[3]], stddev, tf.constant([1, 2], tf.int64)
  )
  step = float(grid.grid_step(stddev))
  assert math.frexp(step)[0] == 0.5
  assert 2.0**-30 < step / stddev <= 2.0**-29
  parts = drawn.numpy() / step
  variance = 2048.0**2 * np.sum(parts**2)
  assert 1 <= variance * (step / stddev) ** 2 <= 1 + 2.0**-16
  # What is added to multiples of a part is at least twice as wide.
  assert 2048.0 * math.hypot(1, parts[1]) >= 2 * parts[0]
  assert 2048.0 >= 2 * parts[1]
  assert parts[2] == 1


@pytest.mark.parametrize(
  'sizes', [[0], [1], [5, 0, 3], [40_000, 7, 20_000], [150_000, 7, 250_000]]
)
def test_blocks_make_up_all_tensors(sizes):
  key = tf.constant([1, 2], tf.int64)
  found = gaussian.draw_gaussian([[size] for size in sizes], 2.0, key)
  assert [len(noise) for noise in found] == sizes
  # One stream, whatever the tensors are; no part of it comes twice.
  (whole,) = gaussian.draw_gaussian([[sum(sizes)]], 2.0, key)
  np.testing.assert_array_equal(np.concatenate(found), whole)
  assert len(np.unique(whole)) >= 0.9999 * len(whole)


@pytest.mark.parametrize(
  ('stddev', 'size'), [(1.0, 2**13 + 1), (1.999, 131_071), (3e-5, 400_001)]
)
def test_compiled_draws_have_the_bits_of_operations(stddev, size):
  draw = functools.partial(gaussian.draw_gaussian, [[size]], stddev)
  key = tf.constant([5, 6], tf.int64)
  graph = tf.function(draw).get_concrete_function(key)
  assert b'_XlaMustCompile' in graph.graph.as_graph_def().SerializeToString()
  # Outside of a graph nothing is compiled.
  np.testing.assert_array_equal(graph(key), draw(key))


def test_other_keys_give_other_noise():
  draws = [
    gaussian.draw_gaussian([[20_000]], 0.3, tf.constant(key, tf.int64))[0]
    for key in ([1, 2], [2, 1], [1, 3])
  ]
  # The correlation of independent draws has a standard deviation of 0.007.
  assert np.max(np.abs(np.corrcoef(draws) - np.eye(3))) < 0.05


def test_a_value_off_the_grid_is_rounded_to_it():
  stddev, key = 1.0, tf.constant([5, 6], tf.int64)
  step = grid.grid_step(stddev)
  value = [tf.constant([0.3, -1.7e-9, 2.5], tf.float64)]
  found = gaussian.add_gaussian_noise(value, stddev, key)[0].numpy()
  steps = found / step.numpy()
  np.testing.assert_array_equal(steps, np.round(steps))
  # It is rounded before the noise is added, by half a step at most.
  noise = gaussian.draw_gaussian([[3]], stddev, key)[0].numpy()
  assert np.all(np.abs(found - noise - value[0]) <= step.numpy() / 2)
