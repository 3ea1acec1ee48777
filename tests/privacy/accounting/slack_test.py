"""Tests of when two figures are the same."""

import math

import pytest

from tff_clipping.privacy.accounting import slack


@pytest.mark.parametrize('value', [1.960378522312504, 1e-20, 3e38])
def test_the_last_digits_of_a_number_do_not_count(value):
  for other in (math.nextafter(value, 0), value * (1 + 1e-10)):
    assert slack.agree(value, other)
    assert slack.is_within(other, value)
  for other in (value * (1 + 1e-8), value * (1 - 1e-8), -value, 0.0):
    assert not slack.agree(value, other)
  assert not slack.is_within(value * (1 + 1e-8), value)


def test_what_is_counted_or_named_has_no_slack():
  assert slack.agree(5, 5.0)
  assert slack.agree(None, None)
  assert not slack.agree(10**12, 10**12 + 1)
  assert not slack.agree('1.0', 1.0)
  assert not slack.agree(None, 0.0)
