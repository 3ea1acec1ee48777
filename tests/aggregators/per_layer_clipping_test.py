"""Tests of `per_layer_clipping_factory`."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.aggregators.one_round import run, vectors
from tff_clipping import aggregators

# Names in the order of the model, not of the alphabet.
_LAYERS = tff.to_type(
  collections.OrderedDict(kernel=(np.float32, [2]), bias=(np.float32, [1]))
)


def _value(kernel, bias):
  return collections.OrderedDict(
    kernel=np.array(kernel, np.float32), bias=np.array(bias, np.float32)
  )


@functools.cache
def _process():
  return aggregators.per_layer_clipping_factory(
    [1.0, 10.0], count_sum_factory=tff.aggregators.SumFactory()
  ).create(_LAYERS)


def _clip_of_layers(values):
  process = _process()
  return process.next(process.initialize(), values)


def test_each_tensor_has_its_norm_in_the_order_of_the_type():
  output = _clip_of_layers([_value([3, 4], [100]), _value([0, 0.5], [5])])
  np.testing.assert_allclose(output.result['kernel'], [0.6, 1.3], rtol=1e-6)
  np.testing.assert_allclose(output.result['bias'], [15], rtol=1e-6)
  np.testing.assert_array_equal(output.measurements['clipping_norms'], [1, 10])
  np.testing.assert_array_equal(output.measurements['clipped_counts'], [1, 1])


def test_counts_are_those_of_each_tensor():
  output = _clip_of_layers(
    [_value([3, 4], [1]), _value([3, 4], [2]), _value([0, 0], [11])]
  )
  np.testing.assert_array_equal(output.measurements['clipped_counts'], [2, 1])
  assert output.measurements['zeroed_count'] == 0


def test_nonfinite_tensor_zeroes_the_update_and_is_counted():
  output = _clip_of_layers(
    [_value([3, 4], [np.nan]), _value([3e19, 3e19], [1])]
  )
  np.testing.assert_array_equal(output.result['kernel'], [0, 0])
  np.testing.assert_array_equal(output.result['bias'], [0])
  assert output.measurements['zeroed_count'] == 2
  np.testing.assert_array_equal(output.measurements['clipped_counts'], [0, 0])


@pytest.mark.slow
def test_a_single_tensor_is_clipped_as_by_difference_clipping():
  values = vectors([3, 4])
  one = run(aggregators.per_layer_clipping_factory([1.0]), values)
  other = run(aggregators.difference_clipping_factory(1.0), values)
  np.testing.assert_array_equal(one.result, other.result)


def test_weighted_inner_factory_makes_it_weighted():
  factory = aggregators.per_layer_clipping_factory(
    [1.0, 1.0], tff.aggregators.MeanFactory()
  )
  process = factory.create(_LAYERS, tff.TensorType(np.float32))
  output = process.next(
    process.initialize(), [_value([3, 4], [0]), _value([0, 0], [4])], [1.0, 3.0]
  )
  np.testing.assert_allclose(output.result['kernel'], [0.15, 0.2], rtol=1e-6)
  np.testing.assert_allclose(output.result['bias'], [0.75], rtol=1e-6)


def test_combined_norm_is_the_sensitivity():
  norms = [0.3, 0.4, 1.2]
  combined = aggregators.combined_clipping_norm(norms)
  assert combined == pytest.approx(1.3, rel=1e-15)
  assert combined >= math.sqrt(0.3**2 + 0.4**2 + 1.2**2)
  # An update that is at its norm in every tensor has just that norm.
  value_type = tff.to_type([(np.float64, [3])] * 3)
  process = aggregators.per_layer_clipping_factory(norms).create(value_type)
  result = process.next(process.initialize(), [[np.full(3, 1e3)] * 3]).result
  norm = math.sqrt(sum(np.sum(np.square(r)) for r in result))
  assert combined * (1 - 1e-6) < norm <= combined


def test_nothing_exact_is_measured_unless_it_is_asked_for():
  process = aggregators.per_layer_clipping_factory(
    [1.0, 1.0], aggregators.gaussian_noise_factory(1.0)
  ).create(_LAYERS)
  measurements = process.next.type_signature.result.measurements.member
  assert tff.structure.name_list(measurements) == ['clipping', 'clipping_norms']


def test_wrong_number_of_norms_raises():
  factory = aggregators.per_layer_clipping_factory([1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match='each of the 2 tensors'):
    factory.create(_LAYERS)


@pytest.mark.parametrize('norms', [[], [1.0, 0.0], [math.nan]])
def test_norms_out_of_range_raise(norms):
  with pytest.raises(ValueError, match='clipping_norms'):
    aggregators.per_layer_clipping_factory(norms)


@pytest.mark.parametrize(
  'norms', [1.0, np.array(1.0), 'ab', ['a'], [True], {1.0}]
)
def test_norms_of_the_wrong_kind_raise(norms):
  with pytest.raises(TypeError, match='clipping_norms'):
    aggregators.per_layer_clipping_factory(norms)
