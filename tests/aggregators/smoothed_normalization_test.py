"""Tests of `smoothed_normalization_factory` and `realized_mean_factory`."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import l2_norm, run, vectors
from tff_clipping import aggregators

_VECTOR = tff.TensorType(np.float32, [2])
_DTYPES = (np.float16, tf.bfloat16.as_numpy_dtype, np.float32, np.float64)


def test_type_signature():
  process = aggregators.smoothed_normalization_factory(1.0).create(_VECTOR)
  state_type = tff.to_type(
    collections.OrderedDict(smoothing=(), inner_agg=(), count_agg=())
  )
  expected = tff.FunctionType(
    collections.OrderedDict(
      state=tff.FederatedType(state_type, tff.SERVER),
      value=tff.FederatedType(_VECTOR, tff.CLIENTS),
    ),
    tff.templates.MeasuredProcessOutput(
      state=tff.FederatedType(state_type, tff.SERVER),
      result=tff.FederatedType(_VECTOR, tff.SERVER),
      measurements=tff.FederatedType(
        collections.OrderedDict(
          clipping=(), smoothing=np.float32, zeroed_count=np.int32
        ),
        tff.SERVER,
      ),
    ),
  )
  assert process.next.type_signature.is_equivalent_to(expected)


def test_hand_computed_sum():
  # (3, 4) has norm 5 and is divided by 8, (0, 1) by 4; the NaN is zeroed.
  output = run(
    aggregators.smoothed_normalization_factory(3.0),
    vectors([3, 4], [0, 1], [np.nan, 1], [0, 0]),
  )
  np.testing.assert_allclose(output.result, [3 / 8, 0.75], rtol=3e-6)
  assert output.measurements['smoothing'] == 3.0
  assert output.measurements['zeroed_count'] == 1


def test_weighted_inner_factory_makes_it_weighted():
  factory = aggregators.smoothed_normalization_factory(
    5.0, tff.aggregators.MeanFactory()
  )
  assert isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  output = run(factory, vectors([3, 4], [0, 0]), weights=[1.0, 3.0])
  np.testing.assert_allclose(output.result, [0.075, 0.1], rtol=3e-6)


_SMOOTHINGS = (1.0, 1e-6, 1e-30, 1e6)


@pytest.mark.parametrize(
  ('dtype', 'smoothing'),
  [
    *zip(_DTYPES, _SMOOTHINGS, strict=True),
    *(
      pytest.param(dtype, smoothing, marks=pytest.mark.slow)
      for i, dtype in enumerate(_DTYPES)
      for j, smoothing in enumerate(_SMOOTHINGS)
      if i != j
    ),
  ],
)
def test_norm_is_at_most_that_of_the_formula_and_below_1(dtype, smoothing):
  value_type = tff.TensorType(dtype, [5000])
  process = aggregators.smoothed_normalization_factory(smoothing).create(
    value_type
  )
  state = process.initialize()
  generator = np.random.default_rng(1)
  for scale in (1e-30, 1e-6, 1e-3, 1.0, 100.0):
    value = (scale * generator.normal(size=5000)).astype(dtype)
    before = l2_norm(value)
    after = l2_norm(process.next(state, [value]).result)
    assert after < 1
    assert after <= before / (smoothing + before)


def test_neighbouring_cohorts_differ_by_less_than_1():
  # In float64, where the sum itself is exact enough not to count.
  value_type = tff.TensorType(np.float64, [5])
  process = aggregators.smoothed_normalization_factory(0.01).create(value_type)
  state = process.initialize()
  generator = np.random.default_rng(1)
  extra = [
    np.full(5, np.nan),
    np.array([np.inf, 0, 0, 0, 0]),
    np.full(5, 3e19),
    np.full(5, 1e18),
    np.zeros(5),
    *generator.normal(size=(10, 5))
    * 10.0 ** generator.integers(-5, 5, (10, 1)),
  ]
  for added in extra:
    cohort = list(generator.normal(size=(generator.integers(0, 6), 5)))
    without = process.next(state, cohort).result
    assert l2_norm(process.next(state, [*cohort, added]).result - without) < 1
    if cohort:
      replaced = process.next(state, [*cohort[1:], added]).result
      assert l2_norm(replaced - without) < 2


def test_private_pipeline_reports_no_counts():
  process = aggregators.smoothed_normalization_factory(
    1.0,
    aggregators.fixed_denominator_mean_factory(
      2, aggregators.gaussian_noise_factory(0.1)
    ),
  ).create(_VECTOR)
  measurements = process.next.type_signature.result.measurements.member
  assert tff.structure.name_list(measurements) == ['clipping', 'smoothing']


@pytest.mark.slow
def test_the_constant_is_reported_through_noise():
  factory = aggregators.gaussian_noise_factory(
    0.1, aggregators.smoothed_normalization_factory(2.0)
  )
  measurements = run(factory, vectors([3, 4])).measurements
  assert measurements['smoothing'] == 2.0
  assert 'zeroed_count' not in measurements


def test_it_is_refused_inside_noise_at_the_clients():
  factory = aggregators.local_gaussian_noise_factory(
    0.1,
    aggregators.smoothed_normalization_factory(1.0),
    min_clients_per_round=1,
    max_clients_per_round=9,
  )
  with pytest.raises(ValueError, match='must not clip'):
    factory.create(_VECTOR)


def test_counts_are_refused_where_noise_is_added():
  factory = aggregators.smoothed_normalization_factory(
    1.0,
    aggregators.gaussian_noise_factory(0.1),
    count_sum_factory=tff.aggregators.SecureSumFactory(1, 0),
  )
  with pytest.raises(ValueError, match='`count_sum_factory` must be `None`'):
    factory.create(_VECTOR)


@pytest.mark.parametrize('smoothing', [0.0, -1.0, math.nan, math.inf])
def test_smoothing_out_of_range_raises(smoothing):
  with pytest.raises(ValueError, match='`smoothing` must be positive'):
    aggregators.smoothed_normalization_factory(smoothing)


@pytest.mark.parametrize('smoothing', [True, '1', None, 1j, [1.0]])
def test_smoothing_of_the_wrong_kind_raises(smoothing):
  with pytest.raises(TypeError, match='`smoothing` must be a number'):
    aggregators.smoothed_normalization_factory(smoothing)


def test_wrong_factories_raise():
  with pytest.raises(TypeError, match='`inner_agg_factory` must be'):
    aggregators.smoothed_normalization_factory(1.0, 2.0)
  with pytest.raises(TypeError, match='`count_sum_factory` must be'):
    aggregators.smoothed_normalization_factory(
      1.0, count_sum_factory=tff.aggregators.MeanFactory()
    )


def test_realized_mean_is_over_those_who_took_part():
  factory = aggregators.realized_mean_factory()
  np.testing.assert_allclose(
    run(factory, vectors([3, 4], [1, 0])).result, [2, 2]
  )
  np.testing.assert_array_equal(run(factory, []).result, [0, 0])


def test_realized_mean_uses_its_sum():
  factory = aggregators.realized_mean_factory(
    aggregators.smoothed_normalization_factory(5.0)
  )
  output = run(factory, vectors([3, 4], [0, 0]))
  np.testing.assert_allclose(output.result, [0.15, 0.2], rtol=3e-6)
  assert output.measurements['smoothing'] == 5.0


def test_realized_mean_refuses_noise():
  with pytest.raises(ValueError, match='`sum_factory` must not add noise'):
    run(
      aggregators.realized_mean_factory(
        aggregators.gaussian_noise_factory(1.0)
      ),
      [],
    )
  with pytest.raises(TypeError, match='`sum_factory` must be unweighted'):
    aggregators.realized_mean_factory(tff.aggregators.MeanFactory())
