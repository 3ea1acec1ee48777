import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_clipping.theory import claims, kept_states, quadratics

_STEPS = {
  'error feedback': kept_states.error_feedback_step,
  'FedPD': kept_states.fed_pd_step,
  'SCAFFOLD': kept_states.scaffold_step,
}
_PENALTY = 0.1


def _round(name, problem, state, **setting):
  if name == 'FedPD':
    setting['penalty'] = _PENALTY
  return _STEPS[name](problem, state, **setting)


def _problem(seed: int, num_clients: int = 3, dimension: int = 2):
  rng = np.random.default_rng(seed)
  return quadratics.LinearRegression(
    matrices=list(rng.normal(size=(num_clients, dimension + 1, dimension))),
    targets=list(rng.normal(size=(num_clients, dimension + 1))),
  )


@pytest.mark.parametrize(
  ('name', 'steps', 'clipping_norm'),
  [
    pytest.param(*key, marks=pytest.mark.slow)
    if key[:2] == ('SCAFFOLD', 200)
    else key
    for key in claims.extended_table_1()
    if key[0] != 'CE-FedAvg'
  ],
)
def test_rounds_come_to_rest_at_the_points_of_the_table(
  name, steps, clipping_norm
):
  problem = claims.TABLE_1_CLIENTS.to_linear_regression()
  expected = float(claims.extended_table_1()[name, steps, clipping_norm])
  for start in (-3.0, 5.0):
    reached = quadratics.iterate(
      lambda state: _round(
        name,
        problem,
        state,
        clipping_norm=clipping_norm,
        local_steps=steps,
        client_learning_rate=1 / 36 if steps == 1 else 1 / 72,
      ),
      kept_states.first_state(problem, [start]),
      max_rounds=1000,
    )
    assert float(reached[0, 0]) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize('name', ['error feedback', 'SCAFFOLD'])
@pytest.mark.parametrize('clipping_norm', [0.05, math.inf])
def test_a_first_round_is_that_of_difference_clipping(name, clipping_norm):
  # Nothing is kept yet, so nothing changes the direction or what is sent.
  problem = _problem(0)
  setting = dict(
    clipping_norm=clipping_norm,
    local_steps=3,
    client_learning_rate=0.05,
    server_learning_rate=0.7,
  )
  x = np.array([0.4, -1.0])
  state = _round(name, problem, kept_states.first_state(problem, x), **setting)
  expected = quadratics.difference_clipping_step(problem, x, **setting)
  np.testing.assert_allclose(state[0], expected, rtol=1e-12)


def test_error_feedback_without_a_clip_is_fed_avg_in_every_round():
  problem = _problem(1)
  setting = dict(local_steps=4, client_learning_rate=0.05)
  x = np.array([2.0, 1.0])
  state = kept_states.first_state(problem, x)
  for _ in range(5):
    x = quadratics.difference_clipping_step(problem, x, **setting)
    state = kept_states.error_feedback_step(problem, state, **setting)
    np.testing.assert_allclose(state[0], x, rtol=1e-12)


@given(
  seed=st.integers(0, 10_000),
  clipping_norm=st.floats(0.01, 5.0),
  steps=st.integers(1, 5),
)
@settings(max_examples=30, deadline=None)
def test_mean_of_the_controls_follows_from_the_release(
  seed, clipping_norm, steps
):
  problem = _problem(seed)
  rate, server_rate = 0.03, 0.6
  state = kept_states.first_state(problem, [1.0, -2.0])
  for _ in range(4):
    before = state[0]
    state = kept_states.scaffold_step(
      problem,
      state,
      clipping_norm=clipping_norm,
      local_steps=steps,
      client_learning_rate=rate,
      server_learning_rate=server_rate,
    )
    released = (state[0] - before) / server_rate
    np.testing.assert_allclose(
      state[1:].mean(axis=0), -released / (steps * rate), atol=1e-9
    )


def test_a_round_of_fed_pd_by_hand():
  # f = (x − 1)²/2 from x = 0 with λ = 0.5, η = 0.1, η_l = 0.05, two steps of
  # y − 1 + 0.5 + 10 y: y = 0.025, then 0.025 − 0.05 (−0.225) = 0.03625.
  problem = quadratics.LinearRegression([np.array([[1.0]])], [[1.0]])
  setting = dict(local_steps=2, client_learning_rate=0.05, penalty=0.1)
  state = np.array([[0.0], [0.5]])
  moved = kept_states.fed_pd_step(problem, state, **setting)
  # λ⁺ = 0.5 + 0.3625 and x⁺ = 0.03625 + 0.08625.
  np.testing.assert_allclose(moved, [[0.1225], [0.8625]])
  clipped = kept_states.fed_pd_step(
    problem, state, clipping_norm=0.1, **setting
  )
  np.testing.assert_allclose(clipped, [[0.1], [0.8625]])


@pytest.mark.parametrize('name', list(_STEPS))
@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'clipping_norm': 0.0}, '`clipping_norm` must be positive'),
    ({'local_steps': 0}, '`local_steps` must be at least 1'),
  ],
)
def test_bad_settings_are_refused(name, change, message):
  problem = _problem(0)
  setting = {'local_steps': 1, 'client_learning_rate': 0.1} | change
  with pytest.raises(ValueError, match=message):
    _round(name, problem, kept_states.first_state(problem, [0, 0]), **setting)


@pytest.mark.parametrize('name', list(_STEPS))
def test_a_model_in_place_of_a_state_is_refused(name):
  with pytest.raises(ValueError, match=r'`state` must have the shape \(4, 2\)'):
    _round(
      name,
      _problem(0),
      np.zeros(2),
      local_steps=1,
      client_learning_rate=0.1,
    )
