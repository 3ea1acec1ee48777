"""Tests of tff_clipping.privacy.accounting.renyi."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import special

from tests.privacy.paper import build_round
from tff_clipping.privacy.accounting import renyi


@pytest.mark.parametrize('noise', [0.1, 0.5, 1.53, 30.0])
@pytest.mark.parametrize('prob', [1e-9, 0.01, 0.3, 0.999])
@pytest.mark.parametrize('order', [2, 3, 11, 63])
def test_integral_is_the_binomial_sum_at_integers(noise, prob, order):
  assert renyi._integrate_moment(noise, prob, order) == pytest.approx(
    renyi._sum_moment(noise, prob, order), rel=1e-12, abs=1e-13
  )


@pytest.mark.parametrize(
  ('noise', 'prob', 'order', 'moment'),
  [
    # By mpmath, with 40 digits.
    (1.53, 1 / 24, 9.3, 0.04452406174486018),
    (1.53, 1 / 24, 1.1, 4.978739617892219e-05),
    (0.5, 0.3, 1.5, 0.3911271503394823),
    (0.1, 0.01, 3.7, 482.4608703118441),
    (3.0, 0.9, 1.3, 0.017611854872718897),
    (1000.0, 0.5, 10.9, 1.3488785070835129e-05),
  ],
)
def test_moment_of_a_fractional_order(noise, prob, order, moment):
  # It is a difference of two logarithms near 2.3, each of which is off by a
  # few of its last bits, of 4.4e-16.
  assert renyi._integrate_moment(noise, prob, order) == pytest.approx(
    moment, rel=1e-13, abs=4e-15
  )


def test_divergences_are_those_of_dp_accounting():
  # At whole orders; at others it sums a series, and its versions differ by up
  # to a tenth. There, the moments above are the reference.
  event = dp_accounting.PoissonSampledDpEvent(
    1 / 24, dp_accounting.GaussianDpEvent(1.53)
  )
  orders = [2.0, 3.0, 11.0, 32.0, 1024.0]
  np.testing.assert_allclose(
    renyi.compute_poisson_divergences(1.53, 1 / 24, orders),
    rdp.RdpAccountant(orders).compose(event).rdp,
    rtol=1e-6,
  )


def test_frequent_sampling_warns_of_nothing(capfd):
  # From a probability of 0.1 on the series of dp_accounting may not converge.
  for cohort in (100, 300, 500, 900):
    mechanism = build_round('poisson', 1000, cohort, 1.0)
    assert np.isfinite(renyi.RenyiCost([(mechanism, 10)]).compute_epsilon(1e-5))
  assert capfd.readouterr().err == ''


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size'])
@pytest.mark.parametrize('noise', [0.6, 3.0, 40.0])
@pytest.mark.parametrize(('cohort', 'rounds'), [(2, 1), (80, 300), (900, 20)])
def test_the_best_of_all_orders_is_found(sampling, noise, cohort, rounds):
  cost = renyi.RenyiCost([(build_round(sampling, 1000, cohort, noise), rounds)])
  for delta in (1e-12, 1e-5):
    least, _ = cost._compute_epsilon(renyi.DEFAULT_ORDERS, delta)
    assert cost.compute_epsilon(delta) == pytest.approx(least, rel=1e-12)


def test_a_small_cost_is_not_lost_in_rounding():
  mechanism = build_round('poisson', 10**6, 1, 1e3)
  assert renyi.RenyiCost([(mechanism, 10**6)]).compute_epsilon(1e-12) > 0


@pytest.mark.parametrize(
  ('stddev', 'shift'), [(0.4, 1), (1.0, 1), (1.0, 3), (8.0, 5)]
)
@pytest.mark.parametrize('order', [2, 3, 11, 32])
def test_integers_have_the_moments_of_continuous_noise(stddev, shift, order):
  far = int(80 * (stddev + shift))
  x = np.arange(-far, far + 1)
  here, there = (-((x - v) ** 2) / (2 * stddev**2) for v in (0, shift))
  moment = special.logsumexp(here + order * (there - here))
  moment -= special.logsumexp(here)
  # That of all clients.
  (divergence,) = renyi.compute_poisson_divergences(stddev / shift, 1, [order])
  assert moment == pytest.approx((order - 1) * divergence, rel=1e-9)


def test_an_order_without_an_answer_is_no_bound(monkeypatch):
  monkeypatch.setattr(
    renyi,
    '_compute_accountant_divergences',
    lambda mechanism, orders: np.full(len(orders), np.nan),
  )
  # No other test may find what this one makes.
  mechanism = build_round('fixed_size', 97, 13, 3.217)
  found = renyi._bound_divergences(mechanism, (2.0, 3.0))
  # What is left is the bound without sampling.
  unsampled = np.array([2.0, 3.0]) / (2 * mechanism.noise_over_sensitivity**2)
  np.testing.assert_array_equal(found, unsampled)
