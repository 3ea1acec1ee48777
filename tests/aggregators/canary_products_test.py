"""Tests of the canaries' directions in TensorFlow, and of their products."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import run
from tff_clipping import aggregators
from tff_clipping.aggregators import canary_products
from tff_clipping.privacy.audit import Canaries

_CANARIES = Canaries(num_canaries=50, num_parameters=268, seed=0)
_TYPE = tff.to_type(
  collections.OrderedDict(
    w=tff.TensorType(np.float32, [66, 4]), b=tff.TensorType(np.float32, [4])
  )
)


def _value(seed):
  rng = np.random.default_rng(seed)
  return collections.OrderedDict(
    w=rng.normal(size=[66, 4]).astype(np.float32),
    b=rng.normal(size=4).astype(np.float32),
  )


@pytest.mark.parametrize('mark', [1, 7, -9, 50])
def test_direction_is_that_of_numpy(mark):
  leaves = canary_products.draw_direction(
    _CANARIES, tf.constant(mark), [tf.zeros([66, 4]), tf.zeros([4])]
  )
  assert [leaf.shape.as_list() for leaf in leaves] == [[66, 4], [4]]
  np.testing.assert_allclose(
    np.concatenate([np.ravel(leaf) for leaf in leaves]),
    _CANARIES.direction(mark),
    rtol=1e-6,
  )


def test_products_are_those_of_numpy():
  update = np.random.default_rng(1).normal(size=268)
  np.testing.assert_allclose(
    canary_products.project(_CANARIES, [update[:200], update[200:]]),
    _CANARIES.project(update),
    rtol=1e-9,
  )


def test_measures_the_result_and_changes_nothing_else():
  inner = aggregators.clipped_mean_factory(clipping_norm=2.0)
  values = [_value(seed) for seed in range(3)]
  plain, measured = (
    run(factory, values, _TYPE)
    for factory in (inner, aggregators.add_canary_products(inner, _CANARIES))
  )
  for name in ('w', 'b'):
    np.testing.assert_array_equal(plain.result[name], measured.result[name])
  assert measured.state == plain.state
  found = dict(measured.measurements)
  products = found.pop('canary_products')
  np.testing.assert_allclose(
    products,
    _CANARIES.project(tf.nest.flatten(plain.result)),
    rtol=1e-6,
    atol=1e-9,
  )
  assert found == dict(plain.measurements)
