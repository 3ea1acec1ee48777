import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_clipping.theory import bounds, corollary

PROBLEM = bounds.Problem(
  smoothness=2.0,
  gradient_bound=1.0,
  local_stddev=0.5,
  global_stddev=0.3,
  initial_gap=2.0,
  dimension=1000,
)
BUDGET = corollary.Budget(
  target_epsilon=1.5, target_delta=1e-5, relative_clipping_norm=1.0, v=2.6
)
SCHEDULE = bounds.Schedule(
  num_clients=1920,
  clients_per_round=80,
  local_steps=32,
  num_rounds=100,
  client_learning_rate=0.001,
  server_learning_rate=1.0,
)


def _best(problem=PROBLEM, budget=BUDGET, num_clients=1920, **limits):
  return corollary.best_parameters(
    problem, budget, num_clients=num_clients, clients_per_round=80, **limits
  )


def test_privacy_term_is_the_corollarys():
  terms = corollary.corollary_1_terms(PROBLEM, SCHEDULE, BUDGET)
  # 2 v η_g η_l Q T L d c'^2 ln(1/δ) / (N² ε²)
  expected = (2 * 2.6 * 0.001 * 32 * 100 * 2.0 * 1000 * math.log(1e5)) / (
    1920 * 1.5
  ) ** 2
  assert terms.privacy_noise == pytest.approx(expected)
  assert terms.clipping == 0.0


@given(
  rate=st.floats(1e-6, 1e-3),
  server_rate=st.floats(0.01, 100.0),
  steps=st.integers(1, 100),
  rounds=st.integers(1, 10**6),
)
@settings(max_examples=100, deadline=None)
def test_bound_is_never_below_its_limit(rate, server_rate, steps, rounds):
  schedule = dataclasses.replace(
    SCHEDULE,
    client_learning_rate=rate,
    server_learning_rate=server_rate,
    local_steps=steps,
    num_rounds=rounds,
  )
  terms = corollary.corollary_1_terms(PROBLEM, schedule, BUDGET)
  limit = corollary.corollary_1_limit(PROBLEM, 1920, BUDGET)
  assert terms.total >= limit * (1 - 1e-9)


def test_best_parameters_keep_the_conditions_and_beat_others():
  best = _best(max_rounds=1000, max_local_steps=64)
  bounds.check_theorem_1(PROBLEM, best.schedule)
  assert best.schedule.num_rounds <= 1000
  assert best.schedule.local_steps <= 64
  for rate_factor, server_factor in ((0.5, 2), (0.5, 1), (1, 0.5), (1, 0.9)):
    other = dataclasses.replace(
      best.schedule,
      client_learning_rate=rate_factor * best.schedule.client_learning_rate,
      server_learning_rate=server_factor * best.schedule.server_learning_rate,
    )
    total = corollary.corollary_1_terms(PROBLEM, other, BUDGET).total
    assert total >= best.terms.total * (1 - 1e-6)


def test_best_bound_reaches_the_limit():
  limit = corollary.corollary_1_limit(PROBLEM, 1920, BUDGET)
  assert _best().terms.total == pytest.approx(limit, rel=1e-6)


def test_few_rounds_are_held_back_by_the_conditions():
  # η_g η_l <= 1 / (16 Q L), so one round gets at most a = 1/32, far less than
  # the best a asks for.
  few = dataclasses.replace(PROBLEM, dimension=100)
  best = _best(problem=few, max_rounds=1)
  limit = corollary.corollary_1_limit(few, 1920, BUDGET)
  assert best.terms.total > 2 * limit


def _exponent(values, results):
  """The p of the fit results ≈ factor · values^p."""
  return np.polyfit(np.log(values), np.log(results), 1)[0]


def test_rate_is_root_d_over_n_epsilon():
  dimensions = [10**2, 10**3, 10**4, 10**5, 10**6]
  totals = [
    _best(dataclasses.replace(PROBLEM, dimension=d)).terms.total
    for d in dimensions
  ]
  assert _exponent(dimensions, totals) == pytest.approx(0.5, abs=0.01)
  clients = [500, 1000, 4000, 16000]
  totals = [_best(num_clients=n).terms.total for n in clients]
  assert _exponent(clients, totals) == pytest.approx(-1.0, abs=0.01)
  epsilons = [0.5, 1.0, 2.0, 8.0]
  totals = [
    _best(budget=dataclasses.replace(BUDGET, target_epsilon=e)).terms.total
    for e in epsilons
  ]
  assert _exponent(epsilons, totals) == pytest.approx(-1.0, abs=0.01)


def test_threshold_below_the_gradients_bound_is_refused():
  budget = dataclasses.replace(BUDGET, relative_clipping_norm=0.5)
  with pytest.raises(ValueError, match='at least the bound on gradients, 1.0'):
    corollary.corollary_1_terms(PROBLEM, SCHEDULE, budget)
