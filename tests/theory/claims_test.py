"""Claims 2.1 and 2.2 and Table 1, exactly and by iteration."""

import math
import pathlib
import textwrap
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tff_clipping.theory import claims, quadratics


def _rest(step, problem, start, tolerance=1e-12, **settings):
  """Where rounds on a line come to rest."""
  return float(
    quadratics.iterate(
      lambda x: step(problem, x, **settings), [start], tolerance=tolerance
    )[0]
  )


def _model_clipping_point(clipping_norm, k, rate, steps):
  return _rest(
    quadratics.model_clipping_step,
    claims.claim_2_1_clients(clipping_norm, k).to_linear_regression(),
    0.0,
    tolerance=1e-13,
    clipping_norm=clipping_norm,
    local_steps=steps,
    client_learning_rate=rate,
  )


@given(
  clipping_norm=st.floats(0.01, 100.0),
  # The corners of the fixed point are from -4 to 4.
  k=st.floats(-6.0, 6.0),
  rate=st.floats(0.05, 1.95),
  steps=st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_claim_2_1_fixed_point_is_where_the_iteration_ends(
  clipping_norm, k, rate, steps
):
  shrinkage = (1.0 - rate) ** steps
  expected = claims.claim_2_1_fixed_point(clipping_norm, k, shrinkage)
  reached = _model_clipping_point(clipping_norm, k, rate, steps)
  assert reached == pytest.approx(expected, rel=1e-6, abs=1e-8 * clipping_norm)


def test_claim_2_1_needs_more_than_every_k():
  # At λ = 1/2 the third client is clipped from k = 3.5 / 2 = 7/4 on.
  assert claims.claim_2_1_least_k(Fraction(1, 2)) == Fraction(7, 4)
  # Below, the proof's λc/(3 − 2λ) = 1/4 is not the fixed point; x* = 1/6 is.
  below = claims.claim_2_1_fixed_point(Fraction(1), Fraction(3, 2), 0.5)
  assert below == Fraction(1, 6)
  assert _model_clipping_point(1.0, 1.5, 0.5, 1) == pytest.approx(1.0 / 6.0)
  at = claims.claim_2_1_fixed_point(Fraction(1), Fraction(7, 4), Fraction(1, 2))
  assert at == Fraction(1, 4)


def test_table_1_exactly():
  assert claims.table_1() == {
    (math.inf, 1): 0,
    (math.inf, math.inf): Fraction(13, 9),
    (1, 1): Fraction(1, 2),
    (1, math.inf): Fraction(2, 3),
  }


@pytest.mark.parametrize(
  ('clipping_norm', 'steps', 'rate', 'expected'),
  [
    (math.inf, 1, 1 / 36, 0.0),
    # 2000 steps of 1/36 leave (35/36)^2000 < 1e-24 of the way.
    (math.inf, 2000, 1 / 36, 13 / 9),
    (1 / 36, 1, 1 / 36, 1 / 2),
    (1.0, 1, 1.0, 1 / 2),
    (1.0, 2000, 1 / 36, 2 / 3),
  ],
)
def test_table_1_by_iteration(clipping_norm, steps, rate, expected):
  for start in (-3.0, 5.0):
    reached = _rest(
      quadratics.difference_clipping_step,
      claims.TABLE_1_CLIENTS.to_linear_regression(),
      start,
      clipping_norm=clipping_norm,
      local_steps=steps,
      client_learning_rate=rate,
    )
    assert reached == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
  ('rate', 'expected'),
  [
    (Fraction(1, 6), 0),  # The largest update at 0 is just 1.
    (Fraction(1, 4), Fraction(2, 5)),
    (Fraction(2, 7), Fraction(1, 2)),
    (Fraction(5), Fraction(1, 2)),
  ],
)
def test_table_1_depends_on_the_learning_rate_at_one_step(rate, expected):
  point = claims.stationary_point(
    claims.TABLE_1_CLIENTS,
    clipping_norm=Fraction(1),
    local_steps=1,
    client_learning_rate=rate,
  )
  assert point == expected


@given(
  clipping_norm=st.floats(0.01, 10.0),
  steps=st.integers(1, 30),
  share=st.floats(0.05, 0.99),
  curvatures=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5),
  data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_clipped_sum_is_zero_at_the_stationary_point(
  clipping_norm, steps, share, curvatures, data
):
  minimisers = [data.draw(st.floats(-5.0, 5.0)) for _ in curvatures]
  clients = claims.ScalarClients(tuple(curvatures), tuple(minimisers))
  setting = dict(
    clipping_norm=clipping_norm,
    local_steps=steps,
    client_learning_rate=share / max(curvatures),
  )
  low, high = claims.stationary_interval(clients, **setting)
  assert low <= high
  for x in (low, high):
    (value,) = quadratics.clipped_sum(
      clients.to_linear_regression(), [x], **setting
    )
    assert abs(value) <= 1e-7 * max(1.0, clipping_norm)


def test_clients_that_balance_in_floats_leave_an_interval():
  # 0.1 + 0.1 + 0.1 - 0.1 - 0.1 - 0.1 is -2.8e-17 in floats.
  clients = claims.ScalarClients((1.0,) * 6, (-10, -11, -12, 10, 11, 12))
  setting = dict(
    clipping_norm=0.1, local_steps=math.inf, client_learning_rate=0.5
  )
  ends = claims.stationary_interval(clients, **setting)
  assert ends == pytest.approx((-9.9, 9.9))
  assert all(type(end) is float for end in ends)
  assert claims.stationary_point(clients, **setting) == pytest.approx(0.0)


def test_two_clients_that_balance_leave_an_interval():
  clients = claims.ScalarClients((1.0, 1.0), (-5.0, 5.0))
  assert claims.stationary_interval(
    clients, clipping_norm=1.0, local_steps=1, client_learning_rate=1.0
  ) == (-4.0, 4.0)


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (
      lambda: claims.stationary_point(
        claims.TABLE_1_CLIENTS, local_steps=2, client_learning_rate=1.0
      ),
      'must be below 2 / 36 for 2 local',
    ),
    (
      lambda: claims.preserving_learning_rate(
        quadratics.LinearRegression([np.zeros((1, 2))], [[1.0]]), 1.0
      ),
      'must not be constant',
    ),
    (
      lambda: claims.balancing_learning_rates(
        claims.TABLE_1_CLIENTS, local_steps=2, common_rate=1.0
      ),
      '`common_rate` must be at most 1/36',
    ),
  ],
)
def test_what_has_no_answer_is_refused(call, message):
  with pytest.raises(ValueError, match=message):
    call()


@given(
  x=st.floats(-10.0, 10.0),
  curvature=st.floats(0.2, 5.0),
  minimiser=st.floats(-3.0, 3.0),
  clipping_norm=st.floats(0.05, 5.0),
  steps=st.integers(1, 10),
)
@settings(max_examples=100, deadline=None)
def test_huberised_loss_has_the_clipped_update_as_its_gradient(
  x, curvature, minimiser, clipping_norm, steps
):
  rate = 0.5 / curvature
  weight = 1.0 - 0.5**steps
  width = 1e-5
  corner = abs(weight * abs(x - minimiser) - clipping_norm)
  assume(corner > 2 * width)
  low, high = claims.huberised_loss(
    np.array([x - width, x + width]),
    curvature=curvature,
    minimiser=minimiser,
    clipping_norm=clipping_norm,
    local_steps=steps,
    client_learning_rate=rate,
  )
  update = np.clip(weight * (x - minimiser), -clipping_norm, clipping_norm)
  assert (high - low) / (2 * width) == pytest.approx(update, abs=1e-5)


def test_huberised_loss_of_the_paper_does_not_meet_its_first_case():
  # A = 2, b = 0, Q = 1, η_l = 1/8: Λ = 1/8, w = 1/2; c = 1 meets at x = 2,
  # where f = 8. Paper: 1/8 * 8 = 1 against |1/8 / 2 * 8| − 1/2 = 0. Here both
  # are 1.
  loss = claims.huberised_loss(
    np.array([2.0, 3.0]),
    curvature=4.0,
    minimiser=0.0,
    clipping_norm=1.0,
    local_steps=1,
    client_learning_rate=0.125,
  )
  np.testing.assert_allclose(loss, [1.0, 2.0])


def _one_step_round(problem, x, clipping_norm, rate):
  return quadratics.difference_clipping_step(
    problem,
    x,
    clipping_norm=clipping_norm,
    local_steps=1,
    client_learning_rate=rate,
  )


@given(
  seed=st.integers(0, 10_000),
  clipping_norm=st.floats(0.01, 5.0),
  dimension=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_claim_2_2_keeps_the_minimiser(seed, clipping_norm, dimension):
  rng = np.random.default_rng(seed)
  problem = quadratics.LinearRegression(
    list(rng.normal(size=(4, dimension + 1, dimension))),
    list(rng.normal(size=(4, dimension + 1))),
  )
  minimiser = problem.minimiser()
  rate = claims.preserving_learning_rate(problem, clipping_norm)

  def distance_after_a_round(x):
    moved = _one_step_round(problem, x, clipping_norm, rate)
    return np.linalg.norm(moved - minimiser)

  scale = 1.0 + np.linalg.norm(minimiser)
  assert distance_after_a_round(minimiser) <= 1e-9 * scale
  # It attracts its neighbourhood, in which nothing is clipped.
  direction = rng.normal(size=dimension)
  direction /= np.linalg.norm(direction)
  step = (
    1e-3 * clipping_norm / np.linalg.norm(problem.hessians, 2, (1, 2)).max()
  )
  near = min(step / rate, 1.0)
  assert distance_after_a_round(minimiser + near * direction) < near


@given(
  clipping_norm=st.floats(0.05, 5.0),
  start=st.floats(-10.0, 10.0),
)
@settings(max_examples=25, deadline=None)
def test_claim_2_2_reaches_the_minimiser_on_a_line(clipping_norm, start):
  problem = claims.TABLE_1_CLIENTS.to_linear_regression()
  rate = claims.preserving_learning_rate(problem, clipping_norm)
  (reached,) = quadratics.iterate(
    lambda x: _one_step_round(problem, x, clipping_norm, rate), [start]
  )
  assert abs(reached) < 1e-6


def test_in_two_dimensions_the_preserving_rate_can_lead_away():
  # At x* = (0, 0) the gradients are (0, 25) and (0, −25). Far along the steep
  # first coordinate the clip takes most of the first client's 25, and the
  # second client's −25 is left alone with a curvature of 0.01.
  problem = quadratics.LinearRegression(
    [np.diag([10.0, 0.1]), np.array([[0.0, 0.1]])], [[0.0, -250.0], [250.0]]
  )
  rate = claims.preserving_learning_rate(problem, 1.0)
  assert rate == pytest.approx(0.02, rel=1e-3)
  x = np.array([5.0, 100.0])
  moved = _one_step_round(problem, x, 1.0, rate)
  # x_2 rises by about (0.48 − 0.05)/2, while x_1 falls by 1/2.
  np.testing.assert_allclose(moved, [4.5, 100.21], atol=0.01)
  assert np.linalg.norm(moved) > np.linalg.norm(x)


def test_learning_rate_of_the_proof_of_claim_2_2_can_miss_the_minimiser():
  # c = 0.1 and the proof's η_l = 1 / 6: updates of 4/6, 2/6 and 1 are clipped.
  problem = claims.TABLE_1_CLIENTS.to_linear_regression()
  value = quadratics.clipped_sum(
    problem,
    problem.minimiser(),
    clipping_norm=0.1,
    local_steps=1,
    client_learning_rate=1 / 6,
  )
  # −0.1 − 0.1 + 0.1 in place of 0.
  assert float(value[0]) == pytest.approx(-0.1)


@pytest.mark.parametrize('local_steps', [1, 2, 32])
def test_balanced_learning_rates_make_the_operators_equal_and_keep_x_star(
  local_steps,
):
  clients = claims.TABLE_1_CLIENTS
  rates = claims.balancing_learning_rates(
    clients, local_steps=local_steps, common_rate=1 / 40
  )
  problem = clients.to_linear_regression()
  operators = [
    quadratics.local_operators(
      problem, local_steps=local_steps, client_learning_rate=rate
    )[client, 0, 0]
    for client, rate in enumerate(rates)
  ]
  np.testing.assert_allclose(operators, 1 / 40)
  # x* = 0, which one η_l for all clients misses for Q > 1.
  assert operators @ problem.gradients(0.0) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize('curvature', [Fraction(5), 5.0])
def test_the_largest_common_rate_may_be_a_float(curvature):
  clients = claims.ScalarClients((curvature, curvature / 5), (1, 2))
  rates = claims.balancing_learning_rates(
    clients, local_steps=2, common_rate=0.2
  )
  # 1 − (1 − η_i h_i)² is η h_i = 1 and 0.2.
  assert rates == pytest.approx((0.2, 1 - math.sqrt(0.8)))


def test_the_page_shows_what_the_command_prints(capsys):
  claims.main()
  printed = textwrap.indent(capsys.readouterr().out, ' ' * 4)
  page = pathlib.Path(__file__).parents[2] / 'docs' / 'theory.md'
  assert printed in page.read_text()
