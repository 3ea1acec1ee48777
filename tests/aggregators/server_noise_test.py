"""Tests of noise that the server adds to a sum, independent in each round."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import noise_strategies
from tests.aggregators.one_round import (
  check_is_gaussian,
  first_round,
  run,
  vectors,
)
from tff_clipping import aggregators
from tff_clipping.aggregators.noise import gaussian, keys


def test_type_signature():
  process = aggregators.gaussian_noise_factory(1.0).create(
    tff.TensorType(np.float32, [2])
  )
  assert process.next.type_signature.compact_representation() == (
    '(<state=<privacy_noise=<>,inner_agg=<>>@SERVER,'
    'value={float32[2]}@CLIENTS> -> '
    '<state=<privacy_noise=<>,inner_agg=<>>@SERVER,'
    'result=float32[2]@SERVER,'
    'measurements=<noise_stddev=float32>@SERVER>)'
  )


@pytest.mark.parametrize('noise_key', [None, (1, 2)])
def test_noise_is_gaussian_with_the_stated_stddev(noise_key):
  process = aggregators.gaussian_noise_factory(0.3, noise_key=noise_key).create(
    tff.TensorType(np.float32, [20_000])
  )
  zeros = [np.zeros(20_000, np.float32)] * 3
  check_is_gaussian(first_round(process, zeros).result, 0.3)


def test_noise_is_added_to_the_result_of_the_inner_factory():
  factory = aggregators.gaussian_noise_factory(
    1e-4, aggregators.difference_clipping_factory(5.0)
  )
  output = run(factory, vectors([1, 2], [3, 6]))
  # The second is clipped to norm 5. Six standard deviations: exceeded once in
  # 10^9 runs.
  expected = [1 + 5 / 5**0.5, 2 + 10 / 5**0.5]
  np.testing.assert_allclose(output.result, expected, atol=6e-4)
  assert output.measurements['noise_stddev'] == np.float32(1e-4)


@pytest.mark.parametrize(
  ('dtype', 'large'),
  [
    pytest.param(tf.bfloat16.as_numpy_dtype, 2**8, marks=pytest.mark.slow),
    pytest.param(np.float16, 2**11, marks=pytest.mark.slow),
    (np.float32, 2**24),
  ],
)
@pytest.mark.parametrize(
  'build',
  [
    aggregators.gaussian_noise_factory,
    lambda stddev: aggregators.local_gaussian_noise_factory(
      stddev, clients_per_round=3
    ),
    lambda stddev: aggregators.correlated_noise_factory(
      noise_strategies.blt(2), stddev
    ),
  ],
)
def test_what_is_noised_is_summed_in_64_bits(dtype, large, build):
  # In their own type, large + 1 is large: the other clients would not be in the
  # sum.
  values = [np.array([v], dtype) for v in (large, 1, 1)]
  result = run(build(1e-6), values, tff.TensorType(dtype, [1])).result
  assert result.dtype == dtype
  assert float(result[0]) == large + 2


def test_one_client_moves_a_large_sum_by_its_norm():
  # In float32, one more client at 4,096 turns the rounding of each of the small
  # updates that follow.
  process = aggregators.gaussian_noise_factory(1e-9).create(
    tff.TensorType(np.float32)
  )
  state = process.initialize()
  small = [np.float32(-0.6 * 2**-12)] * 300
  before = [np.float32(4095.0), np.float32(0.5)]
  with_it, without = (
    process.next(state, before + one + small).result
    for one in ([np.float32(1.0)], [])
  )
  assert abs(with_it - without) <= 1.0 + 1e-3


def test_exact_measurements_inside_are_dropped():
  inner = aggregators.difference_clipping_factory(
    1.0, count_sum_factory=tff.aggregators.SumFactory()
  )
  output = run(aggregators.gaussian_noise_factory(0.1, inner), [])
  assert list(output.measurements) == ['noise_stddev']


@pytest.mark.parametrize('stddev', [0.01, 0.4])
def test_a_private_mean_has_the_bits_of_its_parts(stddev):
  # It knows that no element is larger than c; the factory of noise does not.
  values = vectors([0.6, -0.8, 0.0], [1.0, 0.0, 0.0], [1e-3, 1e-9, -1e-20])
  results = [
    run(factory, values, tff.TensorType(np.float32, [3])).result
    for factory in (
      aggregators.dp_mean_factory(
        clipping_norm=1.0,
        noise_multiplier=stddev,
        clients_per_round=1,
        noise_key=(3, 4),
      ),
      aggregators.difference_clipping_factory(
        1.0, aggregators.gaussian_noise_factory(stddev, noise_key=(3, 4))
      ),
    )
  ]
  np.testing.assert_array_equal(*results)


def _seeded_noise(stddev, *sizes):
  """Returns the noise of the first round of the seed (3, 4)."""
  key = keys.derive_key(tf.constant([3, 4], tf.int64), 0)
  return gaussian.draw_gaussian([[size] for size in sizes], stddev, key)


def test_noise_of_a_factory_is_that_of_its_key():
  factory = aggregators.gaussian_noise_factory(2.0, noise_key=(3, 4))
  (noise,) = _seeded_noise(2.0, 200)
  # Clients' values are rounded towards zero to the grid of 2^-28.
  value = -(0.25 + 2.0**-40) * np.ones(200)
  found = run(factory, [value], tff.TensorType(np.float64, [200])).result
  np.testing.assert_array_equal(found, noise - 0.25)


def _sum_of_noise(inner):
  return aggregators.gaussian_noise_factory(2.0, inner, noise_key=(3, 4))


def _mean_by_a_secure_sum(bound):
  return aggregators.dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=2.0,
    clients_per_round=1,
    sum_factory=aggregators.secure_sum_factory(bound),
    noise_key=(3, 4),
  )


@pytest.mark.parametrize(
  ('factory', 'is_rounded'),
  [
    (_sum_of_noise(tff.aggregators.SumFactory()), False),
    # What is not clipped may be clamped, to a number off the grid.
    (_sum_of_noise(aggregators.secure_sum_factory(1.0)), True),
    (_sum_of_noise(aggregators.difference_clipping_factory(1.0)), True),
    (_mean_by_a_secure_sum(1.0), False),
    (_mean_by_a_secure_sum(0.7), True),
  ],
)
def test_there_is_more_noise_where_sums_are_rounded(factory, is_rounded):
  value_type = tff.to_type([(np.float64, [3]), (np.float64, [13])])
  factor = 1 / (1 - 2.0**-22) if is_rounded else 1.0
  found = run(factory, [], value_type).result
  expected = _seeded_noise(2.0 * factor, 3, 13)
  for noise, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(noise, other)


_TFF_CLIP = tff.aggregators.clipping_factory(5.0, tff.aggregators.SumFactory())
_QUIET = aggregators.gaussian_noise_factory(1e-4)


@pytest.mark.parametrize(
  ('factory', 'bad'),
  [
    # Whose squares overflow.
    (_QUIET, 3e19),
    # TFF's clip makes NaN of both.
    (tff.aggregators.clipping_factory(5.0, _QUIET), np.nan),
    (tff.aggregators.clipping_factory(5.0, _QUIET), np.inf),
    (aggregators.gaussian_noise_factory(1e-4, _TFF_CLIP), np.nan),
    (aggregators.gaussian_noise_factory(1e-4, _TFF_CLIP), np.inf),
  ],
)
def test_an_update_that_no_clip_makes_finite_is_zero(factory, bad):
  result = run(factory, vectors([bad, 1], [3, 1])).result
  np.testing.assert_allclose(result, [3, 1], atol=6e-4)
