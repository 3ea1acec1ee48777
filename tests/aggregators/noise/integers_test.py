"""Tests of the integer arithmetic of distributed privacy."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tff_clipping.aggregators.noise import integers

_KEY = tf.constant([11, 12], tf.int64)
_GRID = integers.Grid(
  scale=4.0, sensitivity=100.0, share_stddev=9.0, modulus=2**20
)


@pytest.mark.parametrize('stddev', [8.0, 2730.0, 2731.0, 2.0**17])
def test_wide_noise_is_a_sum_of_two_from_a_table(stddev):
  largest, part = integers.split_stddev(stddev)
  assert part**2 * (largest**2 + 1) == pytest.approx(stddev**2)
  # The columns of a table have room for 12 of it.
  assert 12 * part + 1 < 2**15
  if largest:
    # The exponent of the factor by which probabilities are off.
    assert 2 * math.pi**2 * part**2 / (largest**2 + 1) > 700
  else:
    assert stddev <= 2730


def test_shares_are_as_private_as_one_draw():
  # Kairouz et al. 2021, Theorem 1: tau sqrt(d), for the least noise, the
  # clients that 32 bits count, and more elements than a grid takes.
  log_tau = math.log(10 * 2**31) - (math.pi * integers._MIN_STDDEV) ** 2
  num_elements = 2**33
  for bits in (None, 10):
    with pytest.raises(ValueError, match='larger, or the value smaller'):
      integers.choose_grid(
        dim=num_elements,
        clipping_norm=1.0,
        noise_multiplier=1e-3,
        min_clients=1,
        max_clients=1,
        bits=bits,
      )
  assert log_tau + math.log(num_elements) / 2 < -590


def _excess(draws, stddev):
  """Returns how far chi-squared is above its mean, in standard deviations."""
  values = np.arange(-60, 61)
  weights = np.exp(-0.5 * (np.arange(-1000, 1001) / stddev) ** 2)
  expected = np.exp(-0.5 * (values / stddev) ** 2) / weights.sum() * len(draws)
  observed = np.array([np.sum(draws == v) for v in values])
  used = expected > 20
  statistic = np.sum((observed - expected)[used] ** 2 / expected[used])
  return (statistic - used.sum()) / math.sqrt(2 * used.sum())


@pytest.mark.parametrize('stddev', [8.0, 30.0])
def test_draws_have_the_stated_distribution_and_no_other(stddev):
  draws = integers.draw_discrete_gaussian(100_000, stddev, _KEY).numpy()
  assert _excess(draws, stddev) < 6
  assert _excess(draws, 0.9 * stddev) > 6
  assert _excess(draws, 1.1 * stddev) > 6


def test_wide_draws_have_the_stated_distribution():
  draws = integers.draw_discrete_gaussian(40_000, 1e4, _KEY).numpy()
  # P(sqrt(n) D > 2.9) is 1e-7; for a standard deviation that is off by a tenth,
  # it is 5 and more.
  for factor, fits in ((1.0, True), (0.9, False), (1.1, False)):
    found = stats.kstest(draws, 'norm', args=(0, factor * 1e4)).statistic
    assert (math.sqrt(len(draws)) * found < 2.9) == fits
  # Each integer is possible, not those of the wide part alone.
  largest, _ = integers.split_stddev(1e4)
  assert len(set(draws % largest)) == largest


def test_missing_shares_come_from_all_bits_of_a_key(monkeypatch):
  # A seed of 32 bits can be searched by who sees some of the draws.
  seeds = []

  def record(size, stddev, key):
    assert (size, stddev) == (10, _GRID.share_stddev)
    seeds.append(key)
    return tf.ones([size], tf.int64)

  monkeypatch.setattr(integers, 'draw_discrete_gaussian', record)
  found = integers.decode(
    tf.zeros([10], tf.int64), _GRID, tf.constant(23), _KEY
  )
  np.testing.assert_array_equal(found, np.full(10, 23 / _GRID.scale))
  assert len(set(np.ravel(seeds))) == 46
  assert np.all(np.abs(seeds) > 2**32)


@pytest.mark.parametrize('num_shares', [0, 1, 3, 23])
def test_missing_shares_have_the_variance_of_their_number(num_shares):
  total = tf.zeros([50_000], tf.int64)
  found = integers.decode(total, _GRID, tf.constant(num_shares), _KEY)
  # Six standard deviations of the estimate.
  expected = 9 / 4 * math.sqrt(num_shares)
  assert np.std(found) == pytest.approx(expected, rel=0.02)


def test_rounding_keeps_the_mean():
  vector = tf.fill([40_000], 2.25)
  rounded = integers.round_to_norm(vector, 1e4, _KEY).numpy()
  assert set(rounded) == {2, 3}
  # The standard deviation of the mean is 0.002.
  assert np.mean(rounded) == pytest.approx(2.25, abs=0.013)


@pytest.mark.parametrize('seed', range(20))
def test_rounded_norm_never_exceeds_its_bound(seed):
  dim, norm = 256, 64.0
  vector = np.random.default_rng(seed).normal(size=dim)
  vector = (vector / np.linalg.norm(vector) * norm).astype(np.float32)
  bound = integers.rounded_norm_bound(norm, dim)
  rounded = integers.round_to_norm(
    tf.constant(vector), bound, tf.constant([seed, 0], tf.int64)
  ).numpy()
  assert np.sum(rounded**2) <= bound**2
  # It was rounded, not given up.
  assert np.max(np.abs(rounded - vector)) < 1


@pytest.mark.parametrize('value', [100.0, 1e30, math.inf, math.nan])
def test_vector_that_is_too_long_becomes_zero(value):
  vector = tf.constant([value, 0.5])
  rounded = integers.round_to_norm(vector, 10.0, _KEY)
  np.testing.assert_array_equal(rounded, [0, 0])


def test_no_sum_of_squares_overflows():
  settings = dict(clipping_norm=1.0, min_clients=1, max_clients=1)
  # Sixteen elements as long as the bound: their sum of squares is above 2^63.
  with pytest.raises(ValueError, match='`noise_multiplier` must be larger'):
    integers.choose_grid(dim=16, noise_multiplier=8e-9, **settings)
  grid = integers.choose_grid(dim=16, noise_multiplier=2e-8, **settings)
  vector = tf.fill([16], float(math.floor(grid.sensitivity)))
  rounded = integers.round_to_norm(vector, grid.sensitivity, _KEY)
  np.testing.assert_array_equal(rounded, np.zeros(16))


def test_bound_of_rounded_norms():
  # min(10 + 2, sqrt(100 + 1 + 1 * (10 + 1))) for 4 elements.
  bound = integers.rounded_norm_bound(10.0, 4)
  assert bound == pytest.approx(math.sqrt(112))


def test_grid_has_room_for_the_largest_cohort():
  grid = integers.choose_grid(
    dim=1024,
    clipping_norm=0.5,
    noise_multiplier=2.0,
    min_clients=16,
    max_clients=100,
  )
  # Sixteen shares are z Delta: 4 sigma = 2 Delta.
  assert 4 * grid.share_stddev == pytest.approx(2 * grid.sensitivity)
  assert 0.5 * grid.scale < grid.sensitivity < 0.5 * grid.scale * 1.01
  assert grid.modulus / 2 > 100 * (grid.sensitivity + 12 * grid.share_stddev)
  assert grid.share_stddev >= 8


def test_small_noise_makes_the_grid_finer():
  grid = integers.choose_grid(
    dim=4,
    clipping_norm=1.0,
    noise_multiplier=1e-3,
    min_clients=100,
    max_clients=100,
  )
  assert grid.share_stddev >= 8


def test_too_much_noise_for_one_client_raises():
  with pytest.raises(ValueError, match='too large for its tables'):
    integers.choose_grid(
      dim=2**24,
      clipping_norm=1.0,
      noise_multiplier=50.0,
      min_clients=1,
      max_clients=2,
    )


def _grid_with_bits(bits, **changes):
  arguments = dict(
    dim=1024,
    clipping_norm=1.0,
    noise_multiplier=1.0,
    min_clients=100,
    max_clients=100,
  )
  return integers.choose_grid(**arguments | changes, bits=bits)


def test_bits_have_the_scale_that_tff_tunes():
  # TFF 0.87's distributed DP for 14 bits, 4 standard deviations and the same
  # clients, noise and elements has a scale of 624.19. It has noise for c in
  # place of Delta, which is larger: 624.19² + 1024/4 + 624.19 + 16.
  grid = _grid_with_bits(14)
  assert grid.modulus == 2**14
  assert grid.scale == pytest.approx(624.19, rel=1e-3)
  assert grid.sensitivity == pytest.approx(
    math.sqrt(grid.scale**2 + 256 + grid.scale + 16)
  )


@pytest.mark.parametrize('bits', [12, 13, 14])
def test_four_standard_deviations_fit_into_the_bits(bits):
  grid = _grid_with_bits(bits)
  # Kairouz et al. 2021, Sec. 4.4, with the noise of the grid.
  variance = (100 * grid.scale) ** 2 / 1024 + 100 * (
    0.25 + grid.share_stddev**2
  )
  assert 8 * math.sqrt(variance) == pytest.approx(2**bits)
  # The noise is that of the sensitivity, whatever the grid.
  assert 10 * grid.share_stddev == pytest.approx(grid.sensitivity)


def test_more_bits_than_are_needed_change_no_grid():
  plain, roomy = _grid_with_bits(None), _grid_with_bits(40)
  assert (roomy.scale, roomy.share_stddev) == (plain.scale, plain.share_stddev)
  assert plain.modulus < 2**40 == roomy.modulus


def test_too_few_bits_raise():
  with pytest.raises(
    ValueError, match=r'`bits` must be at least 12 .* found 8'
  ):
    _grid_with_bits(8)
  assert _grid_with_bits(12).share_stddev >= 8
