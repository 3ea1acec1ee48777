"""Tests of what goes into an aggregator, and of what comes out of it."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import run
from tff_clipping import aggregators

_TYPE = tff.to_type([(np.float32, [2]), np.float32])
_VALUES = [
  [np.float32([3, -4]), np.float32(1)],
  [np.float32([1, 0]), np.float32(-2)],
]


def _sign(value):
  return tf.nest.map_structure(tf.sign, value)


def _double(value):
  return tf.nest.map_structure(lambda x: 2 * x, value)


def test_clients_values_and_the_result_are_changed():
  factory = aggregators.transformed_factory(
    tff.aggregators.SumFactory(), before=_sign, after=_double
  )
  output = run(factory, _VALUES, _TYPE)
  first, second = output.result
  # Signs add up to [2, -1] and 0.
  np.testing.assert_array_equal(first, [4, -2])
  assert second == 0


def test_measurements_and_state_are_those_of_the_inner_one():
  inner = aggregators.clipped_mean_factory(clipping_norm=1.0)
  factory = aggregators.transformed_factory(inner, before=_sign)
  state_type = inner.create(_TYPE).state_type
  assert factory.create(_TYPE).state_type.is_equivalent_to(state_type)
  output = run(factory, _VALUES, _TYPE)
  # Three signs that are not 0 have a norm of 1.7, two have one of 1.4.
  assert output.measurements['clipped_count'] == 2
