import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_clipping.theory import bounds, clipping_bias, estimates

NO_NOISE = estimates.Mechanism(0.0, 2, 100)
NOISE = estimates.Mechanism(
  noise_multiplier=1.0, clients_per_round=2, dimension=4
)


def test_noise_norm_by_hand():
  # z c √d / P
  assert NOISE.noise_norm(3.0) == 3.0
  assert estimates.Mechanism(1.5, 80, 159_010).noise_norm(0.5) == pytest.approx(
    0.75 * math.sqrt(159_010) / 80
  )


def test_update_error_by_hand():
  # α = 1, 1/3; ᾱ = 2/3; n = 2; rest (1/3 * 1 + 1/3 * 3) / 2 = 2/3.
  error = estimates.update_error([[1.0, 3.0]], 1.0, NOISE)
  assert error.shrinkage == pytest.approx(2 / 3)
  assert error.bias == pytest.approx((2 / 3) / (4 / 3))
  assert error.noise == pytest.approx(1.0 / (4 / 3))
  assert error.total == pytest.approx(math.hypot(0.5, 0.75))


def test_noise_averages_out_over_rounds_and_bias_does_not():
  mechanism = estimates.Mechanism(1.0, 2, 4, num_rounds=9)
  error = estimates.update_error([[1.0, 3.0]], 1.0, mechanism)
  assert error.noise == pytest.approx(0.75)
  assert error.averaged_noise == pytest.approx(0.25)
  assert error.total == pytest.approx(math.hypot(0.5, 0.25))


@given(
  norms=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=6),
  clipping_norm=st.floats(0.01, 20.0),
  seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_bias_bounds_what_clipping_changes_beyond_a_common_factor(
  norms, clipping_norm, seed
):
  rng = np.random.default_rng(seed)
  directions = rng.normal(size=(len(norms), 3))
  directions /= np.linalg.norm(directions, axis=1, keepdims=True)
  updates = directions * np.array(norms)[:, None]
  alpha = clipping_bias.clip_factor(norms, clipping_norm)
  error = estimates.update_error([norms], clipping_norm, NO_NOISE)
  rest = (alpha[:, None] * updates).mean(0) - alpha.mean() * updates.mean(0)
  limit = error.bias * alpha.mean() * np.mean(norms)
  assert np.linalg.norm(rest) <= limit * (1 + 1e-9) + 1e-12


@given(norms=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6))
def test_no_bias_from_the_largest_norm_on(norms):
  assert estimates.update_error([norms], max(norms), NO_NOISE).bias == 0.0


def test_equal_norms_have_no_bias_at_any_threshold():
  error = estimates.update_error([[2.0, 2.0, 2.0]], 0.5, NO_NOISE)
  assert error.bias == pytest.approx(0.0)
  assert error.shrinkage == pytest.approx(0.25)


def test_without_noise_the_best_threshold_clips_nothing():
  norm, error = estimates.best_clipping_norm([[1.0, 3.0]], NO_NOISE)
  assert norm == 3.0
  assert error.total == 0.0


def test_more_noise_asks_for_a_lower_threshold():
  norms = [np.linspace(1.0, 5.0, 50)]
  best = [
    estimates.best_clipping_norm(
      norms, estimates.Mechanism(multiplier, 50, 1000)
    )
    for multiplier in (0.01, 0.1, 1.0)
  ]
  thresholds = [norm for norm, _ in best]
  assert thresholds[0] > thresholds[1] > thresholds[2]
  errors = [error.total for _, error in best]
  assert errors[0] < errors[1] < errors[2]


def test_mean_of_the_round_terms_is_the_term_of_theorem_1():
  problem = bounds.Problem(2.0, 3.0, 0.5, 0.25, 1.5, 100)
  schedule = bounds.Schedule(40, 10, 4, 2, 0.01, 2.0)
  factors = clipping_bias.clipping_factors(
    [[2, 1], [4, 1]], [[1, 0.5], [2, 1]], 1.0
  )
  whole = bounds.theorem_1_terms(
    problem, schedule, noise_stddev=0.1, factors=factors
  )
  by_round = estimates.round_terms(problem, schedule, factors, noise_stddev=0.1)
  for field, values in by_round._asdict().items():
    assert values.shape == (2,)
    assert values.mean() == pytest.approx(getattr(whole, field))


@pytest.mark.parametrize('norms', [[], [[0.0, 0.0]], [[]]])
def test_rounds_without_a_norm_are_refused(norms):
  with pytest.raises(ValueError, match='`update_norms` must hold'):
    estimates.update_error(norms, 1.0, NO_NOISE)
