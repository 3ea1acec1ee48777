"""Tests of the exact Gaussian mechanism."""

import math

import pytest
from scipy import integrate, stats

from tff_clipping import privacy


@pytest.mark.parametrize(
  ('rho', 'epsilon'), [(0.0143426, 0.993550), (0.150684, 3.424007)]
)
def test_published_epsilons_of_production_models(rho, epsilon):
  # Published for squared sensitivities of 2 and 0.6, as zCDP and as the epsilon
  # of one Gaussian at delta 1e-10; rho has 6 digits.
  found = privacy.gaussian_epsilon(1 / math.sqrt(2 * rho), 1e-10)
  assert found == pytest.approx(epsilon, rel=2e-6)


@pytest.mark.parametrize('noise_multiplier', [0.3, 1.0, 8.0])
@pytest.mark.parametrize('epsilon', [0.0, 0.5, 3.0])
def test_delta_is_the_integral_that_defines_it(noise_multiplier, epsilon):
  shift = 1 / noise_multiplier

  def excess(x):
    gap = stats.norm.pdf(x, shift) - math.exp(epsilon) * stats.norm.pdf(x)
    return max(gap, 0.0)

  # Densities cross where the privacy loss is epsilon.
  start = epsilon / shift + shift / 2
  expected, _ = integrate.quad(excess, start, start + 40, epsabs=1e-14)
  found = privacy.gaussian_delta(noise_multiplier, epsilon)
  assert found == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize('noise_multiplier', [0.01, 0.4, 3.0, 1e3])
@pytest.mark.parametrize('delta', [1e-20, 1e-10, 1e-4])
def test_round_trips(noise_multiplier, delta):
  epsilon = privacy.gaussian_epsilon(noise_multiplier, delta)
  assert privacy.gaussian_delta(noise_multiplier, epsilon) == pytest.approx(
    delta, rel=1e-6
  )
  found = privacy.gaussian_noise_multiplier(epsilon, delta)
  assert found == pytest.approx(noise_multiplier, rel=1e-11)
  assert privacy.gaussian_epsilon(found, delta) <= epsilon * (1 + 1e-12)


def test_much_noise_needs_no_epsilon():
  # delta(0) is 2 F(m / 2) - 1, about 0.0399 for m = 0.1.
  assert privacy.gaussian_epsilon(10.0, 0.05) == 0.0
  assert privacy.gaussian_delta(10.0, 0.0) == pytest.approx(0.0398776, rel=1e-5)


@pytest.mark.parametrize(
  ('function', 'arguments', 'name'),
  [
    (privacy.gaussian_delta, (0.0, 1.0), 'noise_multiplier'),
    (privacy.gaussian_delta, (1.0, -1.0), 'epsilon'),
    (privacy.gaussian_epsilon, (1.0, 1.0), 'target_delta'),
    (privacy.gaussian_noise_multiplier, (0.0, 0.1), 'target_epsilon'),
  ],
)
def test_arguments_out_of_range_raise(function, arguments, name):
  with pytest.raises(ValueError, match=f'`{name}` must'):
    function(*arguments)
