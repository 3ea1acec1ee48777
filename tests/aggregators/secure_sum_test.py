"""Tests of `secure_sum_factory`."""

import collections
import math

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.aggregators.one_round import run, vectors
from tff_clipping import aggregators
from tff_clipping.aggregators import secure_sum

_NOISE = dict(noise_multiplier=1.0, clients_per_round=100)


@pytest.mark.parametrize(
  ('factory', 'settings'),
  [
    (aggregators.dp_mean_factory, dict(clipping_norm=1.0)),
    (aggregators.adaptive_dp_mean_factory, dict(initial_clipping_norm=1.0)),
  ],
)
@pytest.mark.parametrize('is_secure', [True, False])
def test_the_server_sees_nothing_of_one_client(factory, settings, is_secure):
  inner = aggregators.secure_sum_factory(1.0) if is_secure else None
  process = factory(sum_factory=inner, **_NOISE, **settings).create(
    tff.TensorType(np.float32, [2])
  )

  @tff.federated_computation(*process.next.type_signature.parameter)
  def comp(state, value):
    output = process.next(state, value)
    return output.state, output.result

  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(comp)
  in_the_clear, *_ = form.work.type_signature.result
  assert (tff.structure.flatten(in_the_clear) == []) == is_secure


def test_values_out_of_bounds_are_clamped_and_counted():
  output = run(
    aggregators.secure_sum_factory(1.0),
    vectors([3, -4], [0.5, 1], [np.nan, 0.25], [0, -np.inf]),
  )
  np.testing.assert_allclose(output.result, [1.5, -0.75], rtol=1e-6)
  assert output.measurements['secure_sum_bound'] == 1.0
  assert output.measurements['secure_sum_out_of_bounds_count'] == 3


def test_noise_at_the_clients_widens_the_bound():
  output = run(
    aggregators.secure_sum_factory(1.0, local_noise_stddev=0.5),
    vectors([5.7, -5.7]),
  )
  assert output.measurements['secure_sum_bound'] == np.float32(7.05)
  assert output.measurements['secure_sum_out_of_bounds_count'] == 0
  np.testing.assert_allclose(output.result, [5.7, -5.7], rtol=1e-6)


@pytest.mark.parametrize(
  'clip',
  [
    1 / 3,
    *(pytest.param(c, marks=pytest.mark.slow) for c in (7e-9, 3e10)),
  ],
)
def test_clipped_values_are_never_out_of_bounds(clip):
  generator = np.random.default_rng(3)
  values = list((generator.normal(size=(20, 2)) * 10 * clip).astype('f4'))
  values += vectors([1e15, 0], [0, -1e15])
  output = run(
    aggregators.difference_clipping_factory(
      clip, aggregators.secure_sum_factory(clip)
    ),
    values,
  )
  measurements = output.measurements['clipping']
  assert measurements['secure_sum_out_of_bounds_count'] == 0


def test_all_dtypes_and_structures():
  value_type = tff.to_type(
    collections.OrderedDict(
      b=[(np.float64, []), (np.float16, [1])],
      a=(tf.bfloat16.as_numpy_dtype, [2]),
    )
  )
  value = collections.OrderedDict(
    b=[np.float64(0.3), np.array([0.5], np.float16)],
    a=np.array([1, -0.25], tf.bfloat16.as_numpy_dtype),
  )
  output = run(aggregators.secure_sum_factory(1.0), [value, value], value_type)
  assert output.result['b'][0] == pytest.approx(0.6, rel=1e-6)
  assert output.result['b'][1].dtype == np.float16
  np.testing.assert_allclose(
    np.asarray(output.result['a'], np.float32), [2, -0.5], rtol=1e-2
  )
  # A value counts if one of its tensors is out of bounds.
  clamped = run(aggregators.secure_sum_factory(0.9), [value], value_type)
  assert clamped.measurements['secure_sum_out_of_bounds_count'] == 1


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
  bound=st.one_of(st.floats(1e-12, 1e12), st.just(float(2**31 - 2**10 - 1))),
  shares=st.lists(st.floats(-1, 1), min_size=1, max_size=4),
  dtype=st.sampled_from([np.float32, np.float64]),
)
def test_rounding_never_lengthens(bound, shares, dtype):
  value = np.clip(np.array(shares) * bound, -bound, bound).astype(dtype)
  hypothesis.assume(np.all(np.abs(value.astype(np.float64)) <= bound))
  step = aggregators.secure_sum_factory(bound).step
  # The least power of 2 that is not below the quotient.
  assert math.frexp(step)[0] == 0.5
  assert step / 2 < bound / (2**31 - 2**10 - 1) <= step <= bound * 1e-9
  encoded = secure_sum._encode(tf.constant(value), bound, step)
  assert np.all((encoded >= 0) & (encoded < 2**32))
  decoded = secure_sum._decode(encoded, 1, step, tf.float64).numpy()
  assert np.all(np.abs(decoded) <= np.abs(value.astype(np.float64)))
  assert np.all(np.abs(decoded - value.astype(np.float64)) < step)
  # On the grid already, nothing is lost.
  again = secure_sum._encode(tf.constant(decoded), bound, step)
  np.testing.assert_array_equal(again, encoded)
