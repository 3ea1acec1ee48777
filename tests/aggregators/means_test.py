"""Tests of the means: realized, clipped, private, and the fixed mean."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import run, vectors
from tff_clipping import aggregators


def test_clipped_mean_is_over_the_clients_that_took_part():
  # (3, 4) becomes (0.6, 0.8): the mean with (0, 1) and (0, 0) is (0.2, 0.6).
  output = run(
    aggregators.clipped_mean_factory(clipping_norm=1),
    vectors([3, 4], [0, 1], [0, 0]),
  )
  np.testing.assert_allclose(output.result, [0.2, 0.6], rtol=1e-6)
  assert output.measurements['clipped_count'] == 1


def test_realized_mean_is_over_those_who_took_part():
  factory = aggregators.realized_mean_factory()
  np.testing.assert_allclose(
    run(factory, vectors([3, 4], [1, 0])).result, [2, 2]
  )
  np.testing.assert_array_equal(run(factory, []).result, [0, 0])


def test_realized_mean_measures_what_its_sum_does():
  factory = aggregators.realized_mean_factory(
    aggregators.difference_clipping_factory(
      1.0, count_sum_factory=tff.aggregators.SumFactory()
    )
  )
  output = run(factory, vectors([3, 4], [0, 0]))
  assert output.measurements['mean_value']['clipped_count'] == 1


def test_fixed_mean_divides_by_the_public_number():
  output = run(
    aggregators.fixed_denominator_mean_factory(4), vectors([4, 8], [4, 0])
  )
  np.testing.assert_array_equal(output.result, [2, 2])


def test_dp_mean_uses_its_sum_factory():
  output = run(
    aggregators.dp_mean_factory(
      clipping_norm=1.0,
      noise_multiplier=1e-6,
      clients_per_round=2,
      # Its bound is what an element is clamped to.
      sum_factory=aggregators.secure_sum_factory(0.7),
    ),
    vectors([3, 4], [0, 1]),
  )
  np.testing.assert_allclose(output.result, [0.3, 0.7], rtol=1e-4)


@pytest.mark.parametrize(
  ('factory', 'num_clients', 'mean'),
  [
    (aggregators.clipped_mean_factory(clipping_norm=1.0), 1000, 0.01),
    (aggregators.fixed_denominator_mean_factory(70_000), 10, 0.01 / 7000),
    (
      aggregators.dp_mean_factory(
        clipping_norm=1.0, noise_multiplier=1e-6, clients_per_round=70_000
      ),
      10,
      0.01 / 7000,
    ),
  ],
)
@pytest.mark.parametrize(
  'dtype',
  [
    pytest.param(np.float16, marks=pytest.mark.slow),
    tf.bfloat16.as_numpy_dtype,
  ],
)
def test_a_mean_in_16_bits_is_summed_and_divided_in_more(
  factory, num_clients, mean, dtype
):
  values = [np.array([0.01], dtype)] * num_clients
  result = run(factory, values, tff.TensorType(dtype, [1])).result
  assert result.dtype == dtype
  # One rounding to 8 bits, of each value and of the mean.
  assert float(result[0]) == pytest.approx(mean, rel=2**-6)
