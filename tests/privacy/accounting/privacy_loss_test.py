"""Tests of tff_clipping.privacy.accounting.privacy_loss."""

import math

import numpy as np
import pytest
from dp_accounting import pld
from scipy import signal, stats

from tests.privacy.paper import build_round
from tff_clipping.privacy.accounting import loss_composition, privacy_loss


def compose_one_sided(mechanism, num_rounds):
  """Returns the loss of rounds by one direction of the worst pair of one."""
  return privacy_loss._compose([(mechanism, num_rounds)], 4e-4, 'remove')


@pytest.mark.parametrize(
  ('delta', 'parts'),
  [
    (1e-5, [(('poisson', 1920, 80, 1.2067), 50)]),
    (1e-5, [(('poisson', 1920, 80, 3.5241), 1000)]),
    (1e-3, [(('poisson', 100, 50, 3.0), 10)]),
    (1e-5, [(('poisson', 1920, 80, 1.5), 100), (('none', 9, 9, 20), 9)]),
    pytest.param(
      *(1e-4, [(('poisson', 1000, 1, 1.0), 1000)]), marks=pytest.mark.slow
    ),
  ],
)
def test_poisson_agrees_with_dp_accounting(delta, parts):
  parts = [(build_round(*each), count) for each, count in parts]
  theirs = pld.PLDAccountant()
  for mechanism, count in parts:
    theirs.compose(mechanism.dp_event, count)
  ours = privacy_loss.PldCost(parts)
  # dp_accounting's grid is coarser than ours where rounds cost little.
  assert ours.compute_epsilon(delta) == pytest.approx(
    theirs.get_epsilon(delta), rel=5e-4
  )
  assert ours.compute_delta(1.0) == pytest.approx(
    theirs.get_delta(1.0), rel=5e-3, abs=1e-10
  )


def integrate_hockey_stick(upper, lower, epsilon):
  """Integrates (upper - e^epsilon lower)_+ for densities on a line."""
  x = np.linspace(-15, 16, 310_001)
  difference = upper(x) - math.exp(epsilon) * lower(x)
  return np.sum(np.maximum(difference, 0)) * (x[1] - x[0])


@pytest.mark.parametrize('epsilon', [-1.5, -0.2, 0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(('noise', 'prob'), [(0.7, 0.1), (1.3, 0.6), (1, 1)])
def test_curve_of_a_removal_is_the_integral(noise, prob, epsilon):
  def gaussian(x):
    return stats.norm.pdf(x, scale=noise)

  def mixture(x):
    return (1 - prob) * gaussian(x) + prob * gaussian(x - 1)

  expected = integrate_hockey_stick(mixture, gaussian, epsilon)
  assert privacy_loss.compute_sampled_delta(
    noise, prob, epsilon
  ) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('epsilon', [0.0, 0.25, 1.0])
def test_one_round_of_fixed_cohorts_is_the_worst_pair(epsilon):
  # 2 of 5 clients; the client sends +1 or -1, all others -1: with noise 1.1 the
  # pair is (3/5) N(0) + (2/5) N(2) against N(0), up to a shift.
  mechanism = build_round('fixed_size', 5, 2, 1.1)
  density = stats.norm(scale=1.1).pdf
  expected = integrate_hockey_stick(
    lambda x: 0.6 * density(x) + 0.4 * density(x - 2), density, epsilon
  )
  proved = privacy_loss.PldCost([(mechanism, 1)]).compute_delta(epsilon)
  one_sided = compose_one_sided(mechanism, 1).compute_delta(epsilon)
  assert [proved, one_sided] == pytest.approx([expected] * 2, rel=1e-4)


def compute_two_rounds_among_zeros(noise, prob):
  """Returns the total variation of two rounds whose other clients send 0.

  Noise is over the sensitivity 1 = 2c: the client sends +1/2 or -1/2, and is in
  a round with probability `prob`. By a sum over a grid of both outputs.
  """
  x = np.linspace(-0.5 - 9 * noise, 0.5 + 9 * noise, 1501)
  rest = (1 - prob) * stats.norm.pdf(x, scale=noise)
  plus = rest + prob * stats.norm.pdf(x, loc=0.5, scale=noise)
  minus = rest + prob * stats.norm.pdf(x, loc=-0.5, scale=noise)
  difference = np.outer(plus, plus) - np.outer(minus, minus)
  return np.sum(np.maximum(difference, 0)) * (x[1] - x[0]) ** 2


def test_worst_pair_of_one_round_is_not_the_worst_of_two():
  # 19 of 20 clients, noise 0.5 over the sensitivity, delta at epsilon = 0: why
  # one direction is no guarantee, and 'pld' composes something else.
  mechanism = build_round('fixed_size', 20, 19, 1.0)
  among_zeros = compute_two_rounds_among_zeros(0.5, 0.95)
  assert among_zeros == pytest.approx(0.8100, abs=5e-5)
  epsilon = 1e-9  # Positive, and 0 but for rounding.
  one_sided = compose_one_sided(mechanism, 2)
  assert one_sided.compute_delta(epsilon) == pytest.approx(0.8047, abs=5e-5)
  once, twice = (privacy_loss.PldCost([(mechanism, n)]) for n in (1, 2))
  assert twice.compute_delta(epsilon) > among_zeros
  # For one round, it is the worst.
  worst = compose_one_sided(mechanism, 1).compute_delta(epsilon)
  assert worst == pytest.approx(once.compute_delta(epsilon), rel=1e-4)


@pytest.mark.parametrize(
  ('rounds', 'multiplier', 'epsilon'),
  # What a multiplier that was calibrated for epsilon = 1.5 by 'pld' for Poisson
  # sampling gives for fixed-size cohorts, by one direction of the worst pair.
  [(50, 1.2067, 7.73), (1000, 3.5241, 3.57)],
)
def test_poisson_multiplier_on_fixed_cohorts(rounds, multiplier, epsilon):
  mechanism = build_round('fixed_size', 1920, 80, multiplier)
  one_sided = compose_one_sided(mechanism, rounds).compute_epsilon(1e-5)
  assert one_sided == pytest.approx(epsilon, abs=0.006)
  proved = privacy_loss.PldCost([(mechanism, rounds)])
  assert proved.compute_epsilon(1e-5) > one_sided


def test_proved_figure_bounds_alternating_neighbours():
  # Neighbours whose other clients send -c in one round and +c in the next: each
  # direction of the worst pair, in turn.
  mechanism = build_round('fixed_size', 100, 60, 2.0)
  noise, prob = mechanism.noise_over_sensitivity, mechanism.sampling_prob
  turns = np.ones(1)
  lowest = 0
  for direction in 3 * ('remove', 'add'):
    loss = privacy_loss._build_loss(noise, prob, 1e-3, direction)
    turns = signal.fftconvolve(turns, loss.masses)
    lowest += loss.lowest
  losses = np.arange(lowest, lowest + len(turns)) * 1e-3
  for epsilon in (0.5, 2.0, 5.0):
    bound = privacy_loss.PldCost([(mechanism, 6)]).compute_delta(epsilon)
    beyond = np.maximum(-np.expm1(epsilon - losses), 0)
    assert 0 < np.dot(turns, beyond) < bound


@pytest.mark.parametrize('delta', [1e-3, 1e-10, 1e-20])
@pytest.mark.parametrize('rounds', [1, 30, 10**4])
def test_composition_has_the_closed_form_of_gaussian_rounds(rounds, delta):
  # 0.7 over the rounds together; also at deltas below the rounding of doubles.
  check_closed_form([(0.7 * math.sqrt(rounds), rounds)], delta)


@pytest.mark.parametrize('delta', [1e-3, 1e-10])
def test_gaussian_rounds_of_two_kinds_have_the_closed_form(delta):
  check_closed_form([(4.0, 20), (12.0, 90)], delta)


def check_closed_form(rounds, delta):
  """Compares the discrete losses of Gaussian rounds with one Gaussian."""
  parts = [(build_round('none', 1, 1, noise), count) for noise, count in rounds]
  noise = sum(count / noise**2 for noise, count in rounds) ** -0.5
  composed = privacy_loss._compose(
    parts, privacy_loss._choose_interval(parts), 'both'
  )
  epsilon = composed.compute_epsilon(delta)
  exact = float(privacy_loss.compute_gaussian_delta(noise, epsilon))
  assert 0.995 * delta < exact <= delta
  assert composed.compute_delta(epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize('sampling', ['poisson', 'fixed_size', 'none'])
def test_parts_of_one_kind_are_its_rounds(sampling):
  cohort, noise = (1920, 30) if sampling == 'none' else (80, 3)
  mechanism = build_round(sampling, 1920, cohort, noise)
  parts = privacy_loss.PldCost([(mechanism, 30), (mechanism, 70)])
  whole = privacy_loss.PldCost([(mechanism, 100)])
  epsilon = whole.compute_epsilon(1e-5)
  assert parts.compute_epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
  delta = whole.compute_delta(2.0)
  assert parts.compute_delta(2.0) == pytest.approx(delta, rel=1e-6)


def test_outcomes_that_tell_everything_cost_delta_in_each_round():
  # One in ten, in each of two rounds; the others tell nothing.
  loss = loss_composition.DiscreteLoss(0.1, 0, np.array([0.9]), 0.1)
  composed = loss_composition.ComposedLoss(((loss, 2),))
  assert composed.compute_delta(5.0) == pytest.approx(0.19)
  assert composed.compute_epsilon(0.18) == math.inf
  assert composed.compute_epsilon(0.2) < 0.1


def test_curve_of_an_addition_is_that_of_a_removal_exchanged():
  epsilons = np.array([0.0, 1e-6, 0.01, 0.05, 0.2, 3.0])
  removal = privacy_loss.compute_sampled_delta(0.8, 0.1, -epsilons)
  # The difference of numbers of up to e^3, each off by one or two last bits.
  np.testing.assert_allclose(
    privacy_loss._compute_exchanged_delta(0.8, 0.1, epsilons),
    1 - np.exp(epsilons) + np.exp(epsilons) * removal,
    atol=4 * np.spacing(np.exp(3)),
  )
