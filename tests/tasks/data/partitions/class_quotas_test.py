"""Tests for tasks.data.partitions.class_quotas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.partitions import class_quotas


@pytest.mark.parametrize(
  ('total', 'weights', 'expected'),
  [
    (10, [1, 1], [5, 5]),
    # 10 / 3 = 3.33 each; the first of the equal remainders gets the last one.
    (10, [1, 1, 1], [4, 3, 3]),
    # Exactly 0.7, 1.4 and 4.9: the largest remainders are 0.9 and 0.7.
    (7, [1, 2, 7], [1, 1, 5]),
    (0, [1, 2], [0, 0]),
    (5, [0, 1], [0, 5]),
  ],
)
def test_apportion_rounds_by_largest_remainder(total, weights, expected):
  np.testing.assert_array_equal(
    class_quotas.apportion(total, weights), expected
  )


def test_fit_leaves_shares_that_fit_already():
  shares = np.array([[3.0, 1.0], [1.0, 3.0]])
  np.testing.assert_allclose(
    class_quotas.fit_to_totals(shares, 4, np.array([4, 4])), shares
  )


def test_fit_reaches_both_sums():
  fitted = class_quotas.fit_to_totals(
    np.array([[3.0, 1.0], [1.0, 3.0]]), 4, np.array([5, 3])
  )
  np.testing.assert_allclose(fitted.sum(axis=1), [4, 4], atol=1e-6)
  np.testing.assert_allclose(fitted.sum(axis=0), [5, 3], atol=1e-6)
  # It scales rows and columns only, which keeps the odds ratio 3·3 / 1·1.
  odds = fitted[0, 0] * fitted[1, 1] / (fitted[0, 1] * fitted[1, 0])
  assert odds == pytest.approx(9)


def test_rounding_halves_alternates_them():
  counts = class_quotas.round_to_totals(
    np.full((4, 2), 1.5), 3, np.array([6, 6])
  )
  np.testing.assert_array_equal(counts.sum(axis=0), [6, 6])
  assert sorted(counts.ravel()) == [1, 1, 1, 1, 2, 2, 2, 2]


@settings(deadline=None, max_examples=50)
@given(
  num_clients=st.integers(1, 30),
  row_total=st.integers(1, 40),
  num_classes=st.integers(1, 6),
  seed=st.integers(0, 1000),
)
def test_rounding_reaches_both_sums(num_clients, row_total, num_classes, seed):
  rng = np.random.default_rng(seed)
  columns = class_quotas.apportion(
    num_clients * row_total, rng.random(num_classes) + 0.01
  )
  shares = class_quotas.fit_to_totals(
    rng.random((num_clients, num_classes)) + 0.01, row_total, columns
  )
  counts = class_quotas.round_to_totals(shares, row_total, columns)
  assert counts.min() >= 0
  np.testing.assert_array_equal(counts.sum(axis=1), row_total)
  np.testing.assert_array_equal(counts.sum(axis=0), columns)
