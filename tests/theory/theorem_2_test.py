"""The noise of Theorem 2, by hand and against the accountant."""

import math

import pytest

from tests.privacy import paper
from tff_clipping import privacy
from tff_clipping.theory import theorem_2

PAPER = {**paper.PAPER, 'num_rounds': 100, 'target_epsilon': 1.5}


def test_stddev_by_hand():
  # 0.5^2 * 4 * 80 * 100 * ln(1e5) / (1920 * 1.5)^2 = 0.011104...; its root.
  variance = 0.25 * 4 * 8000 * 11.512925464970229 / 8294400
  assert theorem_2.theorem_2_stddev(
    clipping_norm=0.5, v=4, **PAPER
  ) == pytest.approx(math.sqrt(variance))


def test_implied_constant_gives_the_noise_of_each_client():
  multiplier = privacy.calibrate_noise_multiplier(**PAPER)
  v = theorem_2.theorem_2_constant(noise_multiplier=multiplier, **PAPER)
  # z^2 epsilon^2 / (q^2 T ln(1/delta)), with z = 1.52999.
  assert v == pytest.approx(2.6351, rel=1e-4)
  stddev = theorem_2.theorem_2_stddev(clipping_norm=0.3, v=v, **PAPER)
  assert stddev == pytest.approx(multiplier * 0.3 / math.sqrt(80))


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'v': 0}, '`v` must be positive'),
    ({'num_rounds': 1.5}, '`num_rounds` must be an integer'),
    ({'target_delta': 1}, '`target_delta` must be between 0'),
    ({'clients_per_round': 2000}, '`clients_per_round` must be at'),
  ],
)
def test_bad_argument_raises(change, message):
  given = {'clipping_norm': 1, 'v': 1, **PAPER, **change}
  with pytest.raises((TypeError, ValueError), match=message):
    theorem_2.theorem_2_stddev(**given)
