import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_clipping.theory import clipping_bias

# Two rounds of two clients; c = 1: α = 1/2, 1 and 1/4, 1; α̃ = 1, 1 and 1/2, 1.
FACTORS = clipping_bias.clipping_factors(
  [[2, 1], [4, 1]], [[1, 0.5], [2, 1]], 1.0
)


def test_theorem_1_terms_of_the_statement_by_hand():
  terms = bounds.theorem_1_terms(
    PROBLEM, SCHEDULE, noise_stddev=0.1, factors=FACTORS
  )
  # 4 * 1.5 / (2 * 0.01 * 4 * 50)
  assert terms.initial_gap == pytest.approx(1.5)
  # 12.5 * 1e-4 * 2 * 4 * (0.25 + 24 * 0.0625) * γ_1, γ_1 = 0.875
  assert terms.client_drift == pytest.approx(0.0153125)
  # 6 * 0.02 * 2 * 0.25 / 10 * γ_2, γ_2 = (1 + 0.5625) / 2
  assert terms.sampling_noise == pytest.approx(0.0046875)
  # 2 * 2 * 2 * 100 * 0.01 / (0.01 * 10 * 4)
  assert terms.privacy_noise == pytest.approx(20.0)
  # 4 * 9 * ((0.25 + 0) + (0.125 + 0.25)) / 2
  assert terms.clipping_bias == pytest.approx(11.25)
  # 6 * 0.02 * 2 * 4 * 9 * 40/10 * ((0.125 + 0) + (0.03125 + 0.0625)) / 2
  assert terms.clipping_variance == pytest.approx(3.78)
  assert terms.total == pytest.approx(
    1.5 + 0.0153125 + 0.0046875 + 20.0 + 11.25 + 3.78
  )
  assert terms.standard == pytest.approx(1.52)
  assert terms.clipping == pytest.approx(15.03)


def test_theorem_1_terms_of_the_proof_by_hand():
  terms = bounds.theorem_1_terms(
    PROBLEM, SCHEDULE, noise_stddev=0.1, factors=FACTORS, constants='proof'
  )
  # 10 * 1e-4 * 4 * 4 * (1 + 12 * 0.02 / 10) * 1.75 * 0.875
  assert terms.client_drift == pytest.approx(0.025088)
  assert terms.sampling_noise == pytest.approx(2 * 0.0046875)
  assert terms.clipping_variance == pytest.approx(3.78 / 4)
  assert terms.privacy_noise == pytest.approx(20.0)
  assert terms.clipping_bias == pytest.approx(11.25)


def test_without_clipping_and_noise_fed_avgs_bound_is_left():
  terms = bounds.theorem_1_terms(PROBLEM, SCHEDULE)
  assert terms.privacy_noise == 0.0
  assert terms.clipping == 0.0
  assert terms.total == terms.standard


@given(
  clipping_norm=st.floats(0.1, 10.0),
  norms=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
)
def test_clip_factor_is_one_up_to_the_threshold():
  np.testing.assert_array_equal(
    clipping_bias.clip_factor([0.0, 1.0, 2.0, 4.0], 2.0), [1.0, 1.0, 1.0, 0.5]
  )


def test_clipping_factors_by_hand():
  np.testing.assert_array_equal(FACTORS.actual, [[0.5, 1.0], [0.25, 1.0]])
  np.testing.assert_array_equal(FACTORS.expected, [[1.0, 1.0], [0.5, 1.0]])
  np.testing.assert_array_equal(FACTORS.mean, [1.0, 0.75])
  np.testing.assert_array_equal(
    clipping_bias.local_deviation(FACTORS), [0.25, 0.125]
  )
  np.testing.assert_array_equal(
    clipping_bias.client_deviation(FACTORS), [0.0, 0.25]
  )
  np.testing.assert_array_equal(
    clipping_bias.client_deviation(FACTORS, power=2), [0.0, 0.0625]
  )


@given(
  norms=st.lists(st.floats(0.0, 100.0), min_size=2, max_size=2),
  clipping_norm=st.floats(0.01, 10.0),
)
def test_alpha_moves_by_at_most_the_norm_over_the_threshold(
  norms, clipping_norm
):
  first, second = clipping_bias.clip_factor(norms, clipping_norm)
  limit = abs(norms[0] - norms[1]) / clipping_norm
  assert abs(first - second) <= limit * (1 + 1e-9) + 1e-12


def test_alpha_moves_by_more_than_the_paper_says_below_1():
  # c = 0.1, norms 0.1 and 0.2: 1 − 0.5 against the paper's limit 0.1.
  first, second = clipping_bias.clip_factor([0.1, 0.2], 0.1)
  assert first - second == pytest.approx(0.5)


@given(
  norms=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6),
  clipping_norm=st.floats(0.01, 10.0),
)
def test_deterministic_clients_have_no_local_deviation(norms, clipping_norm):
  factors = clipping_bias.clipping_factors(norms, norms, clipping_norm)
  assert not clipping_bias.local_deviation(factors).any()


@given(norm=st.floats(0.0, 10.0), clipping_norm=st.floats(0.01, 10.0))
def test_equal_norms_have_no_deviation_between_clients(norm, clipping_norm):
  factors = clipping_bias.clipping_factors(
    [norm] * 4, [norm] * 4, clipping_norm
  )
  np.testing.assert_allclose(
    clipping_bias.client_deviation(factors), 0.0, atol=1e-15
  )


def test_norms_of_other_shapes_are_refused():
  with pytest.raises(ValueError, match='must have the shape'):
    clipping_bias.clipping_factors([1.0, 2.0], [1.0], 1.0)
