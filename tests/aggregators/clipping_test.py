"""Tests of the clips of updates, as a whole and for each tensor."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import first_round, l2_norm, run, vectors
from tff_clipping import aggregators

_VECTOR = tff.TensorType(np.float32, [2])
_COUNTED = dict(count_sum_factory=tff.aggregators.SumFactory())
_NESTED = tff.to_type(
  collections.OrderedDict(
    b=[(np.float32, [2]), (np.float16, [])],
    a=((np.float64, [1]), (tf.bfloat16.as_numpy_dtype, [1, 1])),
  )
)


def _nested(scale):
  return collections.OrderedDict(
    b=[np.full([2], scale, np.float32), np.float16(scale)],
    a=(
      np.full([1], scale, np.float64),
      np.full([1, 1], scale, tf.bfloat16.as_numpy_dtype),
    ),
  )


def test_type_signature():
  factory = aggregators.difference_clipping_factory(1.0, **_COUNTED)
  process = factory.create(_VECTOR)
  state = '<clipping_norm=<>,inner_agg=<>,count_agg=<>>@SERVER'
  assert process.next.type_signature.compact_representation() == (
    f'(<state={state},value={{float32[2]}}@CLIENTS> -> '
    f'<state={state},result=float32[2]@SERVER,'
    'measurements=<clipping=<>,clipping_norm=float32,clipped_count=int32,'
    'zeroed_count=int32>@SERVER>)'
  )


def test_hand_computed_sum():
  # (3, 4) has norm 5 and becomes (1.5, 2); (0, 1) is short; the NaN is zeroed.
  output = run(
    aggregators.difference_clipping_factory(2.5, **_COUNTED),
    vectors([3, 4], [0, 1], [np.nan, 1]),
  )
  np.testing.assert_allclose(output.result, [1.5, 3.0], rtol=1e-6)
  assert output.measurements['clipping_norm'] == 2.5
  assert output.measurements['clipped_count'] == 1
  assert output.measurements['zeroed_count'] == 1


def test_huge_norm_gives_the_plain_mean_and_its_measurements():
  values = vectors([3, 4], [-1, 0.5], [7, 8])
  mean = tff.aggregators.UnweightedMeanFactory()
  clipped = run(
    aggregators.difference_clipping_factory(1e19, mean, **_COUNTED), values
  )
  np.testing.assert_array_equal(clipped.result, run(mean, values).result)
  assert clipped.measurements['clipped_count'] == 0
  assert 'mean_value' in clipped.measurements['clipping']


def test_nested_structure_of_all_dtypes_is_clipped_as_a_whole():
  output = run(
    aggregators.difference_clipping_factory(1.0), [_nested(2.0)], _NESTED
  )
  assert isinstance(output.result['b'], list)
  assert isinstance(output.result['a'], tuple)
  assert output.result['b'][0].dtype == np.float32
  assert output.result['b'][1].dtype == np.float16
  assert output.result['a'][0].dtype == np.float64
  assert output.result['a'][1].dtype == tf.bfloat16.as_numpy_dtype
  # Five elements of 2 have norm 2 sqrt(5); 16-bit elements may be shorter.
  np.testing.assert_allclose(output.result['b'][0], 1 / math.sqrt(5), rtol=1e-6)
  np.testing.assert_allclose(
    np.asarray(output.result['a'][1], np.float32), 1 / math.sqrt(5), rtol=1e-2
  )
  assert 0.99 < l2_norm(output.result) <= 1.0


def test_weighted_inner_factory_makes_it_weighted():
  factory = aggregators.difference_clipping_factory(
    1.0, tff.aggregators.MeanFactory()
  )
  assert isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  output = run(factory, vectors([3, 4], [0, 0]), weights=[1.0, 3.0])
  np.testing.assert_allclose(output.result, [0.15, 0.2], rtol=1e-6)


def test_estimated_norm_clips_and_adapts_also_to_what_is_not_finite():
  estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=1.0, target_quantile=0.5, learning_rate=0.2
  )
  process = aggregators.difference_clipping_factory(estimate).create(_VECTOR)
  # Half of the norms are to be below; both are above 1, so it rises by e^0.1.
  values = vectors([3, 4], [0, 2])
  first = first_round(process, values)
  np.testing.assert_allclose(first.result, [0.6, 1.8], rtol=1e-6)
  assert first.measurements['clipping_norm'] == 1.0
  second = process.next(first.state, vectors([np.nan, 4]))
  assert second.measurements['clipping_norm'] == pytest.approx(math.exp(0.1))
  # Such an update counts as one of norm 0.
  third = process.next(second.state, [])
  assert third.measurements['clipping_norm'] == pytest.approx(1.0)
  # Of an empty cohort TFF's process makes NaN, by 0 / 0.
  fourth = process.next(third.state, values)
  assert fourth.measurements['clipping_norm'] == pytest.approx(1.0)
  np.testing.assert_allclose(fourth.result, [0.6, 1.8], rtol=1e-6)


@pytest.mark.parametrize(
  'factory',
  [
    aggregators.difference_clipping_factory(0.3),
    # Equal noise, by its seed, cancels in the difference.
    aggregators.dp_mean_factory(
      clipping_norm=0.3,
      noise_multiplier=1.0,
      clients_per_round=1,
      noise_key=(3, 4),
    ),
  ],
)
def test_neighbouring_cohorts_differ_by_at_most_the_norm(factory):
  # In float64, where the sum itself is exact enough not to count.
  process = factory.create(tff.TensorType(np.float64, [5]))
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
    others = [([*cohort, added], 0.3)]
    if cohort:
      others.append(([*cohort[1:], added], 0.6))
    for other, most in others:
      change = process.next(state, other).result - without
      assert l2_norm(change) <= most * (1 + 1e-15)


@pytest.mark.parametrize(
  ('factory', 'norm'),
  [
    (aggregators.difference_clipping_factory(1.0), 'clipping_norm'),
    (aggregators.per_layer_clipping_factory([1.0]), 'clipping_norms'),
  ],
)
def test_nothing_exact_is_measured_unless_it_is_asked_for(factory, norm):
  # Inside there may be noise, and nothing tells.
  output = run(factory, [])
  assert list(output.measurements) == ['clipping', norm]
  np.testing.assert_array_equal(output.result, [0, 0])


# Names in the order of the model, not of the alphabet.
_LAYERS = tff.to_type(
  collections.OrderedDict(kernel=(np.float32, [2]), bias=(np.float32, [1]))
)


def _layer_value(kernel, bias):
  return collections.OrderedDict(
    kernel=np.array(kernel, np.float32), bias=np.array(bias, np.float32)
  )


_LAYERS_CLIP = aggregators.per_layer_clipping_factory([1.0, 10.0], **_COUNTED)


def test_each_tensor_has_its_norm_and_count_in_the_order_of_the_type():
  values = [
    _layer_value([3, 4], [100]),
    _layer_value([0, 0.5], [5]),
    _layer_value([6, 8], [-10]),
  ]
  output = run(_LAYERS_CLIP, values, _LAYERS)
  np.testing.assert_allclose(output.result['kernel'], [1.2, 2.1], rtol=1e-6)
  np.testing.assert_allclose(output.result['bias'], [5], rtol=1e-6)
  np.testing.assert_array_equal(output.measurements['clipping_norms'], [1, 10])
  np.testing.assert_array_equal(output.measurements['clipped_counts'], [2, 1])
  assert output.measurements['zeroed_count'] == 0


def test_nonfinite_tensor_zeroes_the_update_and_is_counted():
  values = [_layer_value([3, 4], [np.nan]), _layer_value([3e19, 3e19], [1])]
  output = run(_LAYERS_CLIP, values, _LAYERS)
  np.testing.assert_array_equal(output.result['kernel'], [0, 0])
  np.testing.assert_array_equal(output.result['bias'], [0])
  assert output.measurements['zeroed_count'] == 2
  np.testing.assert_array_equal(output.measurements['clipped_counts'], [0, 0])


def test_combined_norm_is_the_sensitivity():
  norms = [0.3, 0.4, 1.2]
  combined = aggregators.combined_clipping_norm(norms)
  assert combined == pytest.approx(1.3, rel=1e-15)
  assert combined >= math.sqrt(0.3**2 + 0.4**2 + 1.2**2)
  # An update that is at its norm in every tensor has just that norm.
  value_type = tff.to_type([(np.float64, [3])] * 3)
  factory = aggregators.per_layer_clipping_factory(norms)
  result = run(factory, [[np.full(3, 1e3)] * 3], value_type).result
  assert combined * (1 - 1e-6) < l2_norm(result) <= combined
