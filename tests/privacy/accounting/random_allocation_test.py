"""Tests of tff_clipping.privacy.accounting.random_allocation."""

import functools
import math

import numpy as np
import pytest
from scipy import special, stats

from tests.privacy.paper import build_round
from tff_clipping.privacy.accounting import (
  accountants,
  gaussian_mechanism,
  loss_composition,
  privacy_loss,
  random_allocation,
)

_EPSILONS = np.array([0.0, 0.1, 0.4, 1.0, 2.0])


def _compute_bounds(
  noise, num_rounds, num_epochs, direction, epsilons=_EPSILONS
):
  loss = random_allocation.build_losses(noise, num_rounds, 1e-3, direction)
  composed = loss_composition.ComposedLoss(((loss, num_epochs),))
  return np.array([composed.compute_delta(epsilon) for epsilon in epsilons])


def _compute_epsilon(num_rounds, delta, clients_per_round=80, noise=1.29):
  mechanism = build_round('random_allocation', 1920, clients_per_round, noise)
  cost = accountants.compose([(mechanism, num_rounds)], 'pld')
  return cost.compute_epsilon(delta)


def _normal_points(size):
  """Returns points and weights that integrate over a normal variable."""
  points, step = np.linspace(-9, 9, size, retstep=True)
  return points, stats.norm.pdf(points) * step


def _expect_call(noise, other, strike):
  """Returns E[(other + Y / 2 - strike)+], in closed form.

  Y is log-normal of mean 1, and log(Y) has the standard deviation 1 / noise.
  """
  left = strike - other
  strikes = np.maximum(left, 1e-300)
  cut = -noise * np.log(2 * strikes)
  half = 0.5 / noise
  call = 0.5 * special.ndtr(cut + half) - strikes * special.ndtr(cut - half)
  return np.where(left > 0, call, 0.5 - left)


def _integrate_two_rounds(noise, strikes, size=401):
  """Returns E[(R - strike)+] of R = (Y_1 + Y_2) / 2, exactly."""
  points, weights = _normal_points(size)
  ratios = np.exp((points - 0.5 / noise) / noise) / 2
  calls = _expect_call(noise, ratios, np.asarray(strikes)[..., np.newaxis])
  return calls @ weights


def _both_directions(integrate):
  """Returns H(P, Q) and H(Q, P) from E[(R - strike)+] and E[R] = 1."""
  bounds = np.exp(_EPSILONS)
  remove = integrate(bounds)
  add = bounds * (integrate(1 / bounds) - 1) + 1
  return {'remove': remove, 'add': add}


@pytest.mark.parametrize('noise', [0.4, 1.0, 3.0])
def test_an_epoch_of_two_rounds_has_its_exact_divergences(noise):
  exact = _both_directions(functools.partial(_integrate_two_rounds, noise))
  for direction, deltas in exact.items():
    found = _compute_bounds(noise, 2, 1, direction)
    assert np.all(found >= deltas * (1 - 1e-9) - 1e-14)
    assert found == pytest.approx(deltas, rel=2e-3, abs=1e-12)


@pytest.mark.parametrize(
  'noise', [0.7, pytest.param(2.0, marks=pytest.mark.slow)]
)
def test_two_epochs_of_two_rounds_have_their_exact_divergences(noise):
  points, weights = _normal_points(121)
  ratios = np.exp((points - 0.5 / noise) / noise)
  first = np.add.outer(ratios, ratios).ravel() / 2
  chances = np.outer(weights, weights).ravel()

  def integrate(strikes):
    calls = [_integrate_two_rounds(noise, k / first, 121) for k in strikes]
    return np.array(calls) @ (chances * first)

  for direction, deltas in _both_directions(integrate).items():
    found = _compute_bounds(noise, 2, 2, direction)
    assert np.all(found >= deltas * (1 - 1e-6) - 1e-14)
    assert found == pytest.approx(deltas, rel=3e-3, abs=1e-12)


def test_updates_that_depend_on_releases_cost_no_more():
  # What a client sends in round 2 is long or short, by what round 1 released.
  noise = 0.8
  grid, step = np.linspace(-8, 9, 1501, retstep=True)
  density = stats.norm(scale=noise).pdf
  first = density(grid)[:, np.newaxis]
  without = first * density(grid) * step**2
  for short in (0.3, -1.0):
    sent = np.where(grid > 0.4, 1.0, short)[:, np.newaxis]
    in_first = np.outer(density(grid - 1.0), density(grid))
    with_client = (in_first + first * density(grid - sent)) / 2 * step**2
    for direction, pair in {
      'remove': (with_client, without),
      'add': (without, with_client),
    }.items():
      deltas = [
        np.sum(np.maximum(pair[0] - math.exp(epsilon) * pair[1], 0))
        for epsilon in _EPSILONS
      ]
      bounds = _compute_bounds(noise, 2, 1, direction)
      assert np.all(deltas <= bounds + 1e-4 * bounds)
      # Of updates that are all as long as they may be, it is the pair itself.
      if short == -1.0:
        assert deltas == pytest.approx(bounds, rel=2e-3, abs=1e-6)
      else:
        assert np.all(deltas[:3] < 0.95 * bounds[:3])


@pytest.mark.parametrize('noise', [0.5, 2.0])
@pytest.mark.parametrize('direction', ['remove', 'add'])
def test_an_epoch_of_one_round_is_a_gaussian_mechanism(noise, direction):
  found = _compute_bounds(noise, 1, 1, direction)
  exact = privacy_loss.compute_gaussian_delta(noise, _EPSILONS)
  assert np.all(found >= exact * (1 - 1e-9))
  assert found == pytest.approx(exact, rel=2e-3)
  mechanism = build_round('random_allocation', 80, 80, noise)
  cost = accountants.compose([(mechanism, 4)], 'pld')
  delta = privacy_loss.compute_gaussian_delta(noise / 2, 1.0)
  assert cost.compute_delta(1.0) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(
  ('noise', 'num_rounds', 'num_epochs'),
  [pytest.param(1.29, 24, 4, marks=pytest.mark.slow), (0.6, 7, 2)],
)
def test_bounds_are_those_of_many_draws(noise, num_rounds, num_epochs):
  rng = np.random.default_rng(5)
  num_draws, epsilons = 200_000, np.array([0.2, 0.6, 1.0])
  losses = {'remove': 0.0, 'add': 0.0}
  for _ in range(num_epochs):
    draws = rng.standard_normal([num_draws, num_rounds]) / noise
    ratios = draws - 0.5 / noise**2
    losses['add'] -= special.logsumexp(ratios, axis=1) - math.log(num_rounds)
    # The client comes; in which round is the same.
    ratios[:, 0] += 1 / noise**2
    losses['remove'] += special.logsumexp(ratios, axis=1) - math.log(num_rounds)
  for direction, loss in losses.items():
    found = _compute_bounds(noise, num_rounds, num_epochs, direction, epsilons)
    lost = np.maximum(0, -np.expm1(epsilons - loss[:, np.newaxis]))
    # Five standard errors: one failure in a million draws of the seed.
    error = 5 * lost.std(axis=0) / math.sqrt(num_draws)
    assert np.all(np.abs(found - lost.mean(axis=0)) < error + 2e-3 * found)


def test_a_grid_never_lowers_the_mean_of_a_decreasing_convex_function(
  monkeypatch,
):
  # Second moments are exact; E[(k - R)+] of a coarse grid is above a fine one.
  strikes = np.linspace(0.2, 4.0, 40)[:, np.newaxis]
  means = []
  for num_points in (125, 250, 500, 1000):
    monkeypatch.setattr(random_allocation, '_NUM_POINTS', num_points)
    ratio = random_allocation.compute_ratio.__wrapped__(1.1, 5)
    total = np.dot(ratio.values, ratio.masses) + ratio.missing
    assert total == pytest.approx(1, rel=1e-9)
    assert total >= 1 - 1e-13
    square = np.dot(ratio.values**2, ratio.masses)
    assert square - 1 > math.expm1(1 / 1.1**2) / 5
    means.append(np.maximum(strikes - ratio.values, 0) @ ratio.masses)
  assert np.all(np.diff(means, axis=0) <= 1e-12)


@pytest.mark.slow
def test_published_figure_of_a_simulation():
  # 96 rounds in epochs of 24: 3e6 draws of the pair put the epsilon of noise
  # 1.29 at delta = 1e-5 to 1.5, and that of 0.737 to 5.
  for epsilon, noise in ((1.5, 1.29), (5.0, 0.737)):
    more, less = (
      _compute_epsilon(96, 1e-5, noise=noise * factor)
      for factor in (0.9975, 1.0025)
    )
    assert less < epsilon < more


@pytest.mark.parametrize(
  ('num_rounds', 'delta', 'changes'),
  [
    (96, 1e-5, {'noise': 1.2}),
    (120, 1e-5, {}),
    (96, 1e-6, {}),
    (80, 1e-5, {'clients_per_round': 96}),
  ],
  ids=['less noise', 'one epoch more', 'smaller delta', 'shorter epochs'],
)
def test_epsilon_is_monotone(num_rounds, delta, changes):
  larger = _compute_epsilon(num_rounds, delta, **changes)
  assert _compute_epsilon(96, 1e-5) < larger


def test_runs_are_composed_by_their_own_epochs():
  mechanism = build_round('random_allocation', 1920, 80, 1.29)
  apart = accountants.compose([(mechanism, 30), (mechanism, 30)], 'pld')
  assert apart.compute_epsilon(1e-5) == pytest.approx(
    _compute_epsilon(96, 1e-5), rel=1e-6
  )
  poisson = build_round('poisson', 1920, 80, 1.29)
  both = accountants.compose([(mechanism, 96), (poisson, 96)], 'pld')
  alone = [
    accountants.compose([(each, 96)], 'pld').compute_epsilon(1e-5)
    for each in (mechanism, poisson)
  ]
  assert max(alone) < both.compute_epsilon(2e-5) < sum(alone)


def test_an_epoch_of_much_noise_is_nearly_a_gaussian_mechanism():
  # The mean of b ratios, each 1 + a normal variable / noise, and a bit more.
  found = _compute_epsilon(24, 1e-12, noise=1e5)
  gaussian = gaussian_mechanism.gaussian_epsilon(1e5 * math.sqrt(24), 1e-12)
  assert gaussian <= found <= 1.001 * gaussian


def test_the_least_noise_has_no_epsilon():
  assert _compute_epsilon(96, 1e-5, noise=0.01) == math.inf


def test_epochs_that_are_not_accounted_for_are_refused():
  with pytest.raises(ValueError, match='so long an epoch is not accounted for'):
    build_round('random_allocation', 10**9, 1, 1.29)
