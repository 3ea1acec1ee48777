"""Rounds of FedAvg on quadratics are their closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_clipping.theory import quadratics


def _problem(seed: int, num_clients: int = 3, dimension: int = 2):
  rng = np.random.default_rng(seed)
  return quadratics.LinearRegression(
    matrices=list(rng.normal(size=(num_clients, dimension + 1, dimension))),
    targets=list(rng.normal(size=(num_clients, dimension + 1))),
  )


def _stable_rate(problem, share: float) -> float:
  """A local learning rate below 1 / max h."""
  return share / float(np.linalg.eigvalsh(problem.hessians).max())


def test_loss_is_the_sum_over_clients():
  problem = quadratics.LinearRegression(
    matrices=[np.array([[2.0]]), np.array([[1.0]])],
    targets=[np.array([1.0]), np.array([4.0])],
  )
  # (2 * 1 - 1)^2 / 2 + (1 - 4)^2 / 2, and 2 (2 - 1), 1 - 4.
  assert problem.loss([1.0]) == 5.0
  np.testing.assert_array_equal(problem.gradients([1.0]), [[2.0], [-3.0]])


def test_clip_shortens_to_the_threshold_and_keeps_zero():
  vectors = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
  np.testing.assert_allclose(
    quadratics.clip(vectors, 1.0), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
  )
  np.testing.assert_array_equal(quadratics.clip(vectors, math.inf), vectors)


@given(
  seed=st.integers(0, 10_000),
  dimension=st.integers(1, 4),
  local_steps=st.integers(1, 8),
  share=st.floats(0.05, 1.9),
)
@settings(max_examples=60, deadline=None)
def test_local_operators_give_the_effect_of_the_local_steps(
  seed, dimension, local_steps, share
):
  problem = _problem(seed, dimension=dimension)
  rate = _stable_rate(problem, share)
  x = np.random.default_rng(seed + 1).normal(size=dimension)
  operators = quadratics.local_operators(
    problem, local_steps=local_steps, client_learning_rate=rate
  )
  expected = x - np.einsum('nij,nj->ni', operators, problem.gradients(x))
  models = quadratics.local_models(
    problem, x, local_steps=local_steps, client_learning_rate=rate
  )
  np.testing.assert_allclose(models, expected, rtol=1e-8, atol=1e-10)


def test_local_operators_of_singular_hessians():
  # The gradient has no second coordinate, and the operator is η_l Q there.
  problem = quadratics.LinearRegression([np.array([[2.0, 0.0]])], [[2.0]])
  operators = quadratics.local_operators(
    problem, local_steps=2, client_learning_rate=0.1
  )
  # (1 - (1 - 0.4)^2) / 4 = 0.16.
  np.testing.assert_allclose(operators[0], [[0.16, 0.0], [0.0, 0.2]])


def test_infinitely_many_local_steps_reach_the_clients_minimisers():
  problem = _problem(0)
  operators = quadratics.local_operators(
    problem,
    local_steps=math.inf,
    client_learning_rate=_stable_rate(problem, 1.0),
  )
  x = np.array([0.3, -0.7])
  reached = x - np.einsum('nij,nj->ni', operators, problem.gradients(x))
  minimisers = [
    np.linalg.lstsq(a, b, rcond=None)[0]
    for a, b in zip(problem.matrices, problem.targets, strict=True)
  ]
  np.testing.assert_allclose(reached, minimisers, atol=1e-9)


@given(
  seed=st.integers(0, 10_000),
  clipping_norm=st.floats(0.05, 2.0),
  local_steps=st.integers(1, 6),
)
@settings(max_examples=40, deadline=None)
def test_one_round_is_the_clipped_sum(seed, clipping_norm, local_steps):
  problem = _problem(seed)
  rate = _stable_rate(problem, 0.7)
  x = np.random.default_rng(seed + 1).normal(size=2)
  setting = {
    'clipping_norm': clipping_norm,
    'local_steps': local_steps,
    'client_learning_rate': rate,
  }
  moved = quadratics.difference_clipping_step(
    problem, x, server_learning_rate=0.5, **setting
  )
  clipped = quadratics.clipped_sum(problem, x, **setting)
  np.testing.assert_allclose(moved, x - 0.5 * clipped / 3, atol=1e-9)


def _step(clipping_norm=1.0, local_steps=1):
  return quadratics.difference_clipping_step(
    _problem(0),
    [0.0, 0.0],
    clipping_norm=clipping_norm,
    local_steps=local_steps,
    client_learning_rate=0.1,
  )


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda: quadratics.LinearRegression([], []), 'at least one'),
    (lambda: quadratics.LinearRegression([np.eye(2)], [[1.0]]), 'as many rows'),
    (lambda: quadratics.LinearRegression([[[np.nan]]], [[1.0]]), 'finite'),
    (lambda: _step(local_steps=0), '`local_steps` must be at least 1'),
    (lambda: _step(local_steps=1.5), '`local_steps` must be an integer'),
    (lambda: _step(math.nan), '`clipping_norm` must be positive, found nan'),
    # Infinitely many steps that diverge, and rounds that do not come to rest.
    (
      lambda: quadratics.local_operators(
        quadratics.LinearRegression([[[2.0]]], [[1.0]]),
        local_steps=math.inf,
        client_learning_rate=0.5,
      ),
      'must be below 0.5 for infinitely',
    ),
    (
      lambda: quadratics.iterate(lambda x: x + 1.0, [0.0], max_rounds=50),
      'must come to rest',
    ),
  ],
)
def test_what_is_no_problem_setting_or_rest_is_refused(call, message):
  with pytest.raises((TypeError, ValueError), match=message):
    call()
