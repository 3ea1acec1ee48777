"""Tests of tff_clipping.adaptive_noise."""

import dp_accounting
import pytest
from dp_accounting import rdp

from tff_clipping import adaptive_noise


def test_collapse_by_hand():
  # (3^-2 + (2 * 2)^-2)^(-1/2) = (1/9 + 1/16)^(-1/2) = 12/5.
  assert adaptive_noise.collapse_noise_multipliers(
    sum_noise_multiplier=3, below_count_stddev=2
  ) == pytest.approx(2.4)


def test_split_by_hand():
  assert adaptive_noise.split_noise_multiplier(
    noise_multiplier=2.4, below_count_stddev=2
  ) == pytest.approx(3)


def test_collapsed_mechanism_costs_what_both_cost():
  # Centred bits change a sum by 1/2: their multiplier is twice their noise.
  sampled = dp_accounting.PoissonSampledDpEvent(
    0.05,
    dp_accounting.ComposedDpEvent(
      [dp_accounting.GaussianDpEvent(1.7), dp_accounting.GaussianDpEvent(8.0)]
    ),
  )
  both = rdp.RdpAccountant().compose(sampled, 200).get_epsilon(1e-5)
  z = adaptive_noise.collapse_noise_multipliers(
    sum_noise_multiplier=1.7, below_count_stddev=4.0
  )
  one = dp_accounting.PoissonSampledDpEvent(
    0.05, dp_accounting.GaussianDpEvent(z)
  )
  assert rdp.RdpAccountant().compose(one, 200).get_epsilon(
    1e-5
  ) == pytest.approx(both, rel=1e-9)


@pytest.mark.parametrize('stddev', [0.5, 0.75])
def test_bits_that_spend_the_budget_raise(stddev):
  with pytest.raises(ValueError, match='must be above half of'):
    adaptive_noise.split_noise_multiplier(
      noise_multiplier=1.5, below_count_stddev=stddev
    )


@pytest.mark.parametrize('stddev', [0, -1.0, float('nan')])
def test_bits_without_noise_raise(stddev):
  with pytest.raises(ValueError, match='`below_count_stddev` must be'):
    adaptive_noise.collapse_noise_multipliers(
      sum_noise_multiplier=1, below_count_stddev=stddev
    )
