"""Tests of the means: realized, clipped, private, and the fixed mean."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import run, vectors
from tff_clipping import aggregators

_VECTOR = tff.TensorType(np.float32, [2])


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


def test_realized_mean_uses_its_sum():
  factory = aggregators.realized_mean_factory(
    aggregators.difference_clipping_factory(
      1.0, count_sum_factory=tff.aggregators.SumFactory()
    )
  )
  # (3, 4) becomes (0.6, 0.8).
  output = run(factory, vectors([3, 4], [0, 0]))
  np.testing.assert_allclose(output.result, [0.3, 0.4], rtol=3e-6)
  assert output.measurements['mean_value']['clipped_count'] == 1


def test_fixed_mean_divides_by_the_public_number():
  output = run(
    aggregators.fixed_denominator_mean_factory(4), vectors([4, 8], [4, 0])
  )
  np.testing.assert_array_equal(output.result, [2, 2])


def test_dp_mean_divides_by_the_public_number_and_clips():
  # (3, 4) becomes (0.6, 0.8), the NaN zero: (0.6, 1.8) / 5.
  output = run(
    aggregators.dp_mean_factory(
      clipping_norm=1.0, noise_multiplier=1e-7, clients_per_round=5
    ),
    vectors([3, 4], [0, 1], [np.nan, 1]),
  )
  np.testing.assert_allclose(output.result, [0.12, 0.36], rtol=1e-5)


@functools.cache
def _private_mean(size, **arguments):
  return aggregators.dp_mean_factory(**arguments).create(
    tff.TensorType(np.float32, [size])
  )


@pytest.mark.parametrize('num_clients', [0, 1, 12])
def test_dp_mean_adds_what_its_noise_multiplier_charges(num_clients):
  # The standard deviation of the mean is z c / P, whatever the cohort. That of
  # the estimate from 20,000 draws is 0.5 %: 3 % is six of them.
  size, clip, multiplier, per_round = 20_000, 0.5, 3.0, 10
  process = _private_mean(
    size,
    clipping_norm=clip,
    noise_multiplier=multiplier,
    clients_per_round=per_round,
  )
  zeros = [np.zeros(size, np.float32)] * num_clients
  output = process.next(process.initialize(), zeros)
  expected = multiplier * clip / per_round
  assert np.std(output.result) == pytest.approx(expected, rel=0.03)
  assert abs(np.mean(output.result)) < 6 * expected / math.sqrt(size)
  noise_stddev = output.measurements['noise_stddev']
  assert noise_stddev == np.float32(multiplier * clip)


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


def test_neighbouring_cohorts_differ_by_at_most_the_sensitivity():
  # Equal noise, by its key, cancels in the difference. In float64 the rounding
  # of the sums is 1e-16 of them.
  value_type = tff.TensorType(np.float64, [4])
  clip, per_round = 0.7, 3
  process = aggregators.dp_mean_factory(
    clipping_norm=clip,
    noise_multiplier=1.0,
    clients_per_round=per_round,
    noise_key=(3, 4),
  ).create(value_type)
  state = process.initialize()
  generator = np.random.default_rng(2)
  for added in (np.full(4, np.nan), np.full(4, 3e19), np.full(4, 1e15)):
    cohort = list(generator.normal(size=(generator.integers(1, 6), 4)))
    without = process.next(state, cohort).result
    difference = process.next(state, [*cohort, added]).result - without
    assert np.linalg.norm(difference) <= clip / per_round * (1 + 1e-14)
    difference = process.next(state, [*cohort[1:], added]).result - without
    assert np.linalg.norm(difference) <= 2 * clip / per_round * (1 + 1e-14)


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
  process = factory.create(tff.TensorType(dtype, [1]))
  output = process.next(
    process.initialize(), [np.array([0.01], dtype)] * num_clients
  )
  assert output.result.dtype == dtype
  # One rounding to 8 bits, of each value and of the mean.
  assert float(output.result[0]) == pytest.approx(mean, rel=2**-6)
