"""The factors α of Theorem 1 and their deviations, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_clipping.theory import clipping_bias

# Two rounds of two clients; c = 1: α = 1/2, 1 and 1/4, 1; α̃ = 1, 1 and 1/2, 1.
FACTORS = clipping_bias.clipping_factors(
  [[2, 1], [4, 1]], [[1, 0.5], [2, 1]], 1.0
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
  norms=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6),
  clipping_norm=st.floats(0.01, 10.0),
)
def test_deterministic_clients_have_no_local_deviation(norms, clipping_norm):
  factors = clipping_bias.clipping_factors(norms, norms, clipping_norm)
  assert not clipping_bias.local_deviation(factors).any()


def test_norms_of_other_shapes_are_refused():
  with pytest.raises(ValueError, match='must have the shape'):
    clipping_bias.clipping_factors([1.0, 2.0], [1.0], 1.0)
