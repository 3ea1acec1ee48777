"""Tests of the integer arithmetic of distributed privacy."""

import decimal
import math

import numpy as np
import pytest
import tensorflow as tf

from tff_clipping.aggregators.parts import discrete_gaussian

_KEY = tf.constant([11, 12], tf.int64)


def _table(stddev):
  """The entries of a table, as integers of 126 bits."""
  high, low = discrete_gaussian.magnitude_table(stddev)
  return np.array(
    [int(h) * 2**63 + int(x) for h, x in zip(high, low, strict=True)], object
  )


def test_table_is_the_distribution_of_magnitudes():
  stddev = 8.5
  weights = [math.exp(-(k**2) / (2 * stddev**2)) for k in range(200)]
  total = weights[0] + 2 * math.fsum(weights[1:])
  table = _table(stddev)
  for k in (0, 1, 10, 40):
    expected = (weights[0] + 2 * math.fsum(weights[1 : k + 1])) / total
    # Half of the weight of 0 counts as -0.
    assert table[k] / 2**126 == pytest.approx(expected, rel=1e-14)


def test_table_is_as_long_as_promised():
  table = _table(10.0)
  assert len(table) == 120
  assert np.all(np.diff(table) >= 0)
  assert table[-1] < 2**126


@pytest.mark.parametrize('stddev', [8.0, 301.5])
def test_table_is_exact_to_its_last_digits(stddev):
  # Apart from the draws, nothing is between it and the distribution.
  num_weights = math.ceil(12 * stddev) + 1
  with decimal.localcontext() as context:
    context.prec = 120
    variance = decimal.Decimal(stddev) ** 2
    weights = [
      (-decimal.Decimal(k * k) / (2 * variance)).exp()
      for k in range(num_weights)
    ]
    weights[0] /= 2
    total = sum(weights)
    error = 0
    entries = np.diff([0, *_table(stddev)])
    for entry, weight in zip(entries, weights[:-1], strict=True):
      error += abs(decimal.Decimal(entry) / 2**126 - weight / total)
  assert error < 12 * stddev * 2.0**-126


def test_draws_count_the_entries_that_they_pass(monkeypatch):
  tables = np.array([5, 5, 5, 9]), np.array([1, 3, 7, 0])
  monkeypatch.setattr(discrete_gaussian, 'magnitude_table', lambda _: tables)
  drawn = {
    (4, 9): 0,
    (5, 0): 0,
    (5, 1): 1,
    (5, 6): 2,
    (5, 8): 3,
    (8, 0): 3,
    (9, 0): 4,
    (2**63 - 1, 5): 4,
    # The sign bit.
    (5 - 2**63, 1): -1,
  }
  words = tf.constant(list(zip(*drawn, strict=True)), tf.int64)
  monkeypatch.setattr(tf.random, 'stateless_uniform', lambda *a, **k: words)
  found = discrete_gaussian.draw_discrete_gaussian(len(drawn), 8.0, _KEY)
  assert found.numpy().tolist() == list(drawn.values())


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
  draws = discrete_gaussian.draw_discrete_gaussian(
    100_000, stddev, _KEY
  ).numpy()
  assert _excess(draws, stddev) < 6
  assert _excess(draws, 0.9 * stddev) > 6
  assert _excess(draws, 1.1 * stddev) > 6


def test_shares_come_from_all_bits_of_their_key():
  # A seed of 32 bits can be searched by who sees some of the draws.
  seeds = []
  draw = discrete_gaussian.draw_discrete_gaussian

  def record(size, stddev, key):
    seeds.append(key)
    return draw(size, stddev, key)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(discrete_gaussian, 'draw_discrete_gaussian', record)
    discrete_gaussian.draw_shares(10, 9.0, tf.constant(23), _KEY, max_shares=80)
  seeds = np.array(seeds)
  # 23 = 16 + 4 + 3 * 1 shares.
  assert seeds.shape == (5, 2)
  assert len(set(seeds.flat)) == 10
  assert np.all(np.abs(seeds) > 2**32)


@pytest.mark.parametrize('num_shares', [0, 1, 3, 4, 23, 80])
def test_shares_have_the_variance_of_their_number(num_shares):
  draws = discrete_gaussian.draw_shares(
    50_000, 9.0, tf.constant(num_shares), _KEY, max_shares=80
  ).numpy()
  # Six standard deviations of the estimate.
  assert np.std(draws) == pytest.approx(9 * math.sqrt(num_shares), rel=0.02)


def test_rounding_keeps_the_mean():
  vector = tf.fill([40_000], 2.25)
  rounded = discrete_gaussian.round_to_norm(vector, 1e4, _KEY).numpy()
  assert set(rounded) == {2, 3}
  # The standard deviation of the mean is 0.002.
  assert np.mean(rounded) == pytest.approx(2.25, abs=0.013)


@pytest.mark.parametrize('seed', range(20))
def test_rounded_norm_never_exceeds_its_bound(seed):
  dim, norm = 256, 64.0
  vector = np.random.default_rng(seed).normal(size=dim)
  vector = (vector / np.linalg.norm(vector) * norm).astype(np.float32)
  bound = discrete_gaussian.rounded_norm_bound(norm, dim)
  rounded = discrete_gaussian.round_to_norm(
    tf.constant(vector), bound, tf.constant([seed, 0], tf.int64)
  ).numpy()
  assert np.sum(rounded**2) <= bound**2
  # It was rounded, not given up.
  assert np.max(np.abs(rounded - vector)) < 1


@pytest.mark.parametrize('value', [100.0, 1e30, math.inf, math.nan])
def test_vector_that_is_too_long_becomes_zero(value):
  vector = tf.constant([value, 0.5])
  rounded = discrete_gaussian.round_to_norm(vector, 10.0, _KEY)
  np.testing.assert_array_equal(rounded, [0, 0])


def test_bound_of_rounded_norms():
  # min(10 + 2, sqrt(100 + 1 + 1 * (10 + 1))) for 4 elements.
  bound = discrete_gaussian.rounded_norm_bound(10.0, 4)
  assert bound == pytest.approx(math.sqrt(112))


def test_grid_has_room_for_the_largest_cohort():
  grid = discrete_gaussian.choose_grid(
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
  grid = discrete_gaussian.choose_grid(
    dim=4,
    clipping_norm=1.0,
    noise_multiplier=1e-3,
    min_clients=100,
    max_clients=100,
  )
  assert grid.share_stddev >= 8


def test_too_much_noise_for_one_client_raises():
  with pytest.raises(ValueError, match='too large for its tables'):
    discrete_gaussian.choose_grid(
      dim=2**24,
      clipping_norm=1.0,
      noise_multiplier=50.0,
      min_clients=1,
      max_clients=2,
    )
