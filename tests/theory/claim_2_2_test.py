import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_clipping.theory import claim_2_2, claims, quadratics


def _problem(
  seed: int, *, rows: int, dimension: int, agree: bool
) -> quadratics.LinearRegression:
  """Clients of very different curvatures, with or without a common minimiser.

  With fewer rows than dimensions in all, the minimisers are a subspace.
  """
  rng = np.random.default_rng(seed)
  num_clients = int(rng.integers(1, 6))
  scales = 10.0 ** rng.uniform(-0.5, 0.5, size=num_clients)
  matrices = [s * rng.normal(size=(rows, dimension)) for s in scales]
  common = rng.normal(size=dimension)
  targets = [
    matrix @ common if agree else 3.0 * rng.normal(size=rows)
    for matrix in matrices
  ]
  return quadratics.LinearRegression(matrices, targets)


def _round(problem, x, clipping_norm, rate):
  """The model after a round, the clients' factors, and the server's step s."""
  gradients = problem.gradients(x)
  norms = np.linalg.norm(gradients, axis=1)
  factors = np.minimum(1.0, clipping_norm / np.maximum(rate * norms, 1e-300))
  moved = quadratics.difference_clipping_step(
    problem,
    x,
    clipping_norm=clipping_norm,
    local_steps=1,
    client_learning_rate=rate,
  )
  return moved, factors, x - moved


@given(
  seed=st.integers(0, 100_000),
  rows=st.integers(1, 4),
  dimension=st.integers(1, 4),
  agree=st.booleans(),
  clipping_norm=st.floats(0.01, 10.0),
  share=st.floats(0.05, 1.0),
  distance=st.floats(0.01, 1000.0),
)
@settings(max_examples=100, deadline=None)
def test_every_round_comes_nearer_as_the_proof_says(
  seed, rows, dimension, agree, clipping_norm, share, distance
):
  problem = _problem(seed, rows=rows, dimension=dimension, agree=agree)
  rate = share * claim_2_2.converging_learning_rate(problem, clipping_norm)
  smoothness, convexity, _ = claim_2_2.measure_constants(problem)
  decrease = claim_2_2.least_decrease(problem, clipping_norm, rate)
  x = distance * np.random.default_rng(seed).normal(size=dimension)
  minimiser = claim_2_2.nearest_minimiser(problem, x)
  first = np.linalg.norm(x - minimiser)
  for _ in range(20):
    moved, factors, step = _round(problem, x, clipping_norm, rate)
    away, before = x - minimiser, float(np.linalg.norm(x - minimiser))
    after = float(np.linalg.norm(moved - minimiser))
    if before <= 1e-9 * (1.0 + first):
      break
    if np.min(factors) < 1.0:
      reach = clipping_norm / (rate * smoothness * before)
      assert np.min(factors) >= 0.75 * reach
      assert away @ step >= 0.5 * clipping_norm * convexity / smoothness * (
        before * (1 - 1e-9)
      )
      assert after**2 <= before**2 - decrease
    else:
      contraction = claim_2_2.contraction(problem, rate)
      assert after**2 <= contraction * before**2 + 1e-12 * before**2
    x = moved


@pytest.mark.parametrize(
  'seed',
  [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))],
)
def test_clipped_rounds_end_and_the_minimiser_is_reached(seed):
  problem = _problem(seed, rows=3, dimension=2, agree=False)
  clipping_norm = 2.0
  rate = claim_2_2.converging_learning_rate(problem, clipping_norm)
  x = 20.0 * np.random.default_rng(seed).normal(size=2)
  limit = claim_2_2.most_clipped_rounds(problem, x, clipping_norm, rate)
  clipped = 0

  def step(x):
    nonlocal clipped
    moved, factors, _ = _round(problem, x, clipping_norm, rate)
    clipped += bool(np.min(factors) < 1.0)
    return moved

  reached = quadratics.iterate(step, x, tolerance=1e-13)
  np.testing.assert_allclose(reached, problem.minimiser(), atol=1e-7)
  assert clipped <= limit


def test_of_many_minimisers_the_nearest_is_reached():
  # f = (x_1 + x_2 − 2)²/2: from (3, 0) the nearest point of the line is (2.5,
  # −0.5), and no client's gradient leads anywhere else.
  problem = quadratics.LinearRegression([np.array([[1.0, 1.0]])], [[2.0]])
  constants = claim_2_2.measure_constants(problem)
  assert constants == pytest.approx((2.0, 2.0, 0.0), abs=1e-12)
  rate = claim_2_2.converging_learning_rate(problem, 0.1)
  assert rate == pytest.approx(2.0 / (2 * 2.0**2))
  reached = quadratics.iterate(
    lambda x: _round(problem, x, 0.1, rate)[0], [3.0, 0.0]
  )
  np.testing.assert_allclose(reached, [2.5, -0.5], atol=1e-9)
  np.testing.assert_allclose(
    claim_2_2.nearest_minimiser(problem, [3.0, 0.0]), [2.5, -0.5]
  )


def test_constants_of_table_1_by_hand():
  # h = 1, 4, 36 and gradients −4, −2, 6 at x* = 0.
  problem = claims.TABLE_1_CLIENTS.to_linear_regression()
  smoothness, convexity, gradient = claim_2_2.measure_constants(problem)
  assert smoothness == pytest.approx(36.0)
  assert convexity == pytest.approx(41 / 3)
  assert gradient == pytest.approx(6.0)
  # c λ / (4 L G*) = 41/2592 for c = 1, above λ / (2 L²) = 41/7776.
  assert claim_2_2.converging_learning_rate(problem, 1.0) == pytest.approx(
    41 / 7776
  )
  assert claim_2_2.converging_learning_rate(problem, 0.1) == pytest.approx(
    4.1 / 2592
  )
  # 5 c² at λ / (8 L²), and c² / 2 at the largest rate.
  assert claim_2_2.least_decrease(problem, 1.0, 41 / 31104) == pytest.approx(5)
  assert claim_2_2.least_decrease(problem, 1.0, 41 / 7777) == pytest.approx(
    0.5, rel=1e-3
  )
  assert claim_2_2.contraction(problem, 3 / 41000) == pytest.approx(0.999)


def test_the_rate_that_is_enough_near_the_minimiser_can_go_away_from_it():
  # At x* = (0, 0) the gradients are (0, 25) and (0, −25). Far along the steep
  # first coordinate the clip takes most of the first client's 25, and the
  # second client's −25 is left alone with a curvature of 0.01.
  problem = quadratics.LinearRegression(
    [np.diag([10.0, 0.1]), np.array([[0.0, 0.1]])], [[0.0, -250.0], [250.0]]
  )
  rate = claims.preserving_learning_rate(problem, 1.0)
  assert rate == pytest.approx(0.02, rel=1e-3)
  x = np.array([5.0, 100.0])
  moved, factors, _ = _round(problem, x, 1.0, rate)
  assert factors[0] == pytest.approx(0.1, rel=0.01)
  assert factors[1] == 1.0
  # x_2 rises by about (0.48 − 0.05)/2, while x_1 falls by 1/2.
  np.testing.assert_allclose(moved, [4.5, 100.21], atol=0.01)
  assert np.linalg.norm(moved) > np.linalg.norm(x)
  with pytest.raises(
    ValueError, match='`client_learning_rate` must be at most'
  ):
    claim_2_2.least_decrease(problem, 1.0, rate)


def test_a_constant_problem_is_refused():
  problem = quadratics.LinearRegression([np.zeros((1, 2))], [[1.0]])
  with pytest.raises(ValueError, match='must not be constant'):
    claim_2_2.converging_learning_rate(problem, math.inf)
