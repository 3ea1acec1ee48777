"""Tests of the grid of releases, and of what rounding costs."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tff_clipping.aggregators.noise import grid


def test_rounded_noise_does_not_tell_whether_a_point_is_even():
  # For all x on the grid, x + rounded noise = rounded (x + noise).
  noise = tf.constant(np.arange(-40, 40) / 8.0)
  one = tf.constant(1.0, tf.float64)
  found = grid.round_noise(noise, one).numpy()
  for x in (1.0, 2.0):
    np.testing.assert_array_equal(x + found, grid.round_noise(noise + x, one))
  assert set(np.unique(found, return_counts=True)[1][1:-1]) == {8}


@pytest.mark.parametrize('power', [-149, -120, -30, 0, 30, 120])
@pytest.mark.parametrize('largest', [1.0, 2.0**30, 2.0**31, 1e30, 3e38])
def test_narrow_values_are_rounded_as_wide_ones(power, largest):
  step = tf.constant(2.0**power, tf.float64)
  rng = np.random.default_rng(0)
  scales = np.exp(rng.uniform(-5, np.log(1e9), 500))
  wide = rng.choice([-1, 1], 500) * scales * 2.0**power
  wide = np.append(wide, [0.0, largest, -(2.0**power), 0.75 * 2.0**power])
  with np.errstate(over='ignore', under='ignore'):
    narrow = wide.astype(np.float32)
  narrow = narrow[np.isfinite(narrow)]
  # Below, a processor may take a number for zero.
  narrow = narrow[np.abs(narrow) >= 2.0**-126]
  steps = narrow.astype(np.float64) / 2.0**power
  expected = np.trunc(steps) * 2.0**power
  found = grid.round_towards_zero(tf.constant(narrow), step).numpy()
  is_normal = np.abs(expected) >= 2.0**-126
  np.testing.assert_array_equal(found[is_normal], expected[is_normal])
  assert np.all(np.abs(found) <= np.abs(narrow))


def test_a_value_that_is_no_number_stays_one_beside_others():
  value = [tf.constant([1.5, np.nan]), tf.constant([np.inf, -2.75])]
  found = grid.round_towards_zero(value, tf.constant(1.0, tf.float64))
  np.testing.assert_array_equal(found[0], [1.0, np.nan])
  np.testing.assert_array_equal(found[1], [np.inf, -2.0])


@pytest.mark.parametrize('power', [30, 31, 32, 33, 40])
def test_values_near_their_bound_are_rounded(power):
  step = tf.constant(1.0, tf.float64)
  # The bound of which 32 bits hold the multiples, and those above.
  bound = 2.0**power - 1
  value = tf.constant([bound, -bound / 2, 2.0 ** (power - 1) + 512, 0.75])
  found = grid.round_towards_zero(value, step, 2.0**power)
  np.testing.assert_array_equal(found, np.trunc(value.numpy().astype(float)))


@pytest.mark.parametrize('bound', [1.0, 2.0**31, 2.0**40, math.inf])
def test_a_bound_changes_nothing(bound):
  step = tf.constant(0.25, tf.float64)
  value = [tf.constant([0.9, -0.3, 0.25]), tf.constant([], tf.float32)]
  for given in (value, value + [tf.constant([-0.9], tf.float64)]):
    found = grid.round_towards_zero(given, step, bound)
    expected = [np.trunc(leaf / 0.25) * 0.25 for leaf in given]
    for leaf, other in zip(found, expected, strict=True):
      assert leaf.dtype == tf.float64
      np.testing.assert_array_equal(leaf, other)


def test_values_are_rounded_to_the_grid():
  value = tf.constant([-1.75, -1.0, 0.0, 0.3, 1.0, 2.0**60], tf.float64)
  step = tf.constant(0.5, tf.float64)
  np.testing.assert_array_equal(
    grid.round_towards_zero(value, step),
    [-1.5, -1.0, 0.0, 0.0, 1.0, 2.0**60],
  )
  np.testing.assert_array_equal(
    grid.round_to_nearest(value, step),
    [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0**60],
  )


@pytest.mark.parametrize('stddev', [1.0, 2.0, 3.0])
@pytest.mark.parametrize('num_shares', [2, 4, 9])
def test_a_sum_of_rounded_shares_is_rounded_gaussian_noise(num_shares, stddev):
  def rounded(stddev, largest):
    k = np.abs(np.arange(-largest, largest + 1))
    return stats.norm.sf((k - 0.5) / stddev) - stats.norm.sf((k + 0.5) / stddev)

  share = rounded(stddev, math.ceil(14 * stddev))
  found = share
  for _ in range(num_shares - 1):
    found = np.convolve(found, share)
  variance = num_shares * stddev**2 + (num_shares - 1) / 12
  expected = rounded(math.sqrt(variance), len(found) // 2)
  is_there = expected > 1e-200
  chi_squared = np.sum((found - expected)[is_there] ** 2 / expected[is_there])
  # From the fourth cumulant, which leaves out a term of stddev^-6.
  bound = (num_shares - 1) / num_shares**2 * stddev**-4 / 588
  assert 0.8 * bound < math.sqrt(chi_squared) <= bound
  # Of the coarsest grid, for one element.
  coarsest = bound * stddev**4 * grid.RELATIVE_STEP_OF_SHARES**4
  assert coarsest / 2 < 1e-22
