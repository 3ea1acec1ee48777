"""Tests of means over seeds and of what their margins say."""

import math

import pytest

from analysis.runs import margins


def test_margin_is_half_of_students_interval():
  found = margins.estimate([1.0, 2.0, 3.0])
  # 4.303 / √3.
  assert str(found) == '2.00 ± 2.48'
  assert margins.sign(found) == 0
  assert margins.sign(margins.estimate([3.0, 4.0, 5.0])) == 1
  assert margins.sign(margins.estimate([-3.0, -4.0, -5.0])) == -1


@pytest.mark.parametrize('epsilon', [1.0001, 15.7035])
def test_costs_are_rounded_up_and_lower_bounds_down(epsilon):
  assert float(margins.at_least(epsilon)) < epsilon
  assert float(margins.at_most(epsilon)) > epsilon
  assert margins.at_most(math.inf) == 'inf'
  assert margins.at_most(math.nan) == margins.at_least(None) == '–'


@pytest.mark.parametrize('values', [[2.0], [1.0, 3.0]])
def test_fewer_than_three_seeds_have_no_margin(values):
  found = margins.estimate(values)
  assert str(found) == '2.00'
  assert margins.sign(found) is None


def test_values_that_are_missing_are_no_seeds():
  assert margins.estimate([math.nan, 1.0]).num_seeds == 1
  assert margins.estimate([math.nan]) is None


def test_difference_of_two_rows_has_welchs_interval():
  one = margins.estimate([1.0, 2.0, 3.0])
  other = margins.estimate([10.0, 20.0, 30.0])
  found = margins.difference(other, one)
  # (1/3 + 100/3)² / ((1/3)² / 2 + (100/3)² / 2) = 2.04 degrees: 4.224 · 5.802.
  assert found.mean == 18.0
  assert found.margin == pytest.approx(24.5, abs=0.1)
  # By `scipy.stats.ttest_ind` with `equal_var=False`.
  assert found.p_value == pytest.approx(0.0879, abs=1e-4)
  assert margins.sign(found) == 0


def test_difference_with_two_seeds_of_one_side_is_open():
  found = margins.difference(
    margins.estimate([1.0, 2.0, 3.0]), margins.estimate([90.0, 91.0])
  )
  assert str(found) == '-88.50'
  assert margins.sign(found) is None


def test_no_number_is_a_negative_zero():
  assert margins.number(-0.001, '.2f') == '0.00'
  assert margins.number(math.nan, '.2f') == '–'


def test_rank_correlation_of_a_textbook_example():
  # d = (0, 1, -1, 0, 0): 1 - 6 * 2 / (5 * 24) = 0.9.
  found = margins.rank_correlation([1, 2, 3, 4, 5], [10, 30, 20, 40, 50])
  assert found.value == pytest.approx(0.9)
  # Of the 120 orders, 5 give 0.9 or more, and as many -0.9 or less.
  assert found.p_value == pytest.approx(10 / 120)
  assert found.num_pairs == 5


def test_rank_correlation_shares_the_ranks_of_ties():
  # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, norms sqrt(1.5 * 2).
  found = margins.rank_correlation([1, 1, 2], [1, 2, 3])
  assert found.value == pytest.approx(1.5 / 3.0**0.5)


def test_rank_correlation_repeats():
  data = ([1, 2, 3, 4], [2, 1, 4, 3])
  first = margins.rank_correlation(*data)
  assert first == margins.rank_correlation(*data)


@pytest.mark.parametrize(
  ('first', 'second', 'message'),
  [
    ([1, 2], [1, 2], 'at least 3'),
    ([1, 2, 3], [1, 2], 'shape'),
    ([1, 2, 3], [1, 2, float('nan')], 'finite'),
    ([1, 1, 1], [1, 2, 3], 'vary'),
  ],
)
def test_rank_correlation_refuses_what_has_none(first, second, message):
  with pytest.raises(ValueError, match=message):
    margins.rank_correlation(first, second)


def test_an_interval_that_ends_at_zero_has_it():
  assert margins.sign(margins.Difference(1.0, 1.0, 0.05)) == 0
