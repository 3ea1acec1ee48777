"""Tests of rounding: no cost below what it is, no bound above."""

import math

import pytest

from tff_clipping.privacy.accounting import rounding


@pytest.mark.parametrize(
  ('value', 'up', 'down'),
  [
    (1.226845922, '1.227', '1.226'),
    (15.7035, '15.71', '15.7'),
    (0.8573, '0.8573', '0.8573'),
    (0.857301, '0.8574', '0.8573'),
    (1.5, '1.5', '1.5'),
    (0.0, '0', '0'),
    (1e-7 / 3, '3.334e-08', '3.333e-08'),
    (123456.0, '1.235e+05', '1.234e+05'),
    (math.inf, 'inf', 'inf'),
  ],
)
def test_costs_are_rounded_up_and_bounds_down(value, up, down):
  assert rounding.format_up(value) == up
  assert rounding.format_down(value) == down
  if math.isfinite(value):
    assert (
      float(down) <= value <= float(up) == rounding.round_up(value, digits=4)
    )


def test_digits_are_significant_ones():
  assert rounding.format_up(1.226845922, digits=5) == '1.2269'
