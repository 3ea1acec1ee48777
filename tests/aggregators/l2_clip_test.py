"""Tests of the arithmetic of the clip, without TFF."""

import math

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tff_clipping.aggregators import l2_clip

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def _norm(*tensors):
  """Returns the norm in exact enough arithmetic, whatever the magnitude."""
  values = np.concatenate(
    [np.asarray(t).astype(np.float64).ravel() for t in tensors]
  )
  return math.sqrt(math.fsum(float(v) ** 2 for v in values))


@pytest.mark.parametrize(
  ('value', 'clipping_norm', 'expected', 'counts'),
  [
    # Longer than the norm: clipped, and counted.
    ([3.0, 4.0], 1.0, [0.6, 0.8], (1, 0)),
    ([1e19, 0.0], 2.0, [2.0, 0.0], (1, 0)),
    # Of exactly the norm.
    ([3.0, 4.0], 5.0, [3.0, 4.0], (0, 0)),
    # Squares beyond the largest float32: zeroed, and counted.
    ([3e19, 3e19], 1.0, [0.0, 0.0], (0, 1)),
    ([3e19] * 50_000, 1.0, [0.0] * 50_000, (0, 1)),
    (np.array([1e30]), 1.0, [0.0], (0, 1)),
  ],
)
def test_clip_of_a_vector(value, clipping_norm, expected, counts):
  clipped = l2_clip.clip_by_l2_norm(tf.constant(value), clipping_norm)
  np.testing.assert_allclose(clipped.value, expected, rtol=1e-6)
  assert (clipped.was_clipped, clipped.was_zeroed) == counts


def test_norm_is_that_of_all_tensors_before_the_clip():
  clipped = l2_clip.clip_by_l2_norm([tf.constant([3.0]), tf.constant(4.0)], 1.0)
  np.testing.assert_allclose(clipped.value[1], 0.8, rtol=1e-6)
  assert clipped.norm == 5.0


@pytest.mark.parametrize(
  ('value', 'clipping_norm'),
  [
    ([0.25, -0.5], 1.0),
    *((np.zeros(size), 1e-12) for size in (1, 4096, 4097, 100_000)),
  ],
)
@pytest.mark.parametrize('dtype', _DTYPES)
def test_short_update_is_unchanged(dtype, value, clipping_norm):
  value = tf.constant(value, dtype)
  clipped = l2_clip.clip_by_l2_norm(value, clipping_norm)
  np.testing.assert_array_equal(clipped.value, value)
  assert clipped.value.dtype == dtype
  assert (clipped.was_clipped, clipped.was_zeroed) == (0, 0)


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize('size', [2, 5000])
@pytest.mark.parametrize('dtype', _DTYPES)
def test_nonfinite_update_is_zeroed_and_counted(dtype, size, bad):
  value = np.ones(size)
  value[size // 2] = bad
  clipped = l2_clip.clip_by_l2_norm(
    {'a': tf.constant(value, dtype), 'b': tf.ones([3])}, 1.0
  )
  assert not np.any(clipped.value['a'])
  assert not np.any(clipped.value['b'])
  assert (clipped.was_clipped, clipped.was_zeroed) == (0, 1)
  assert clipped.norm == 0.0


@pytest.mark.parametrize('norm', [math.nan, -1.0, 0.0, 1e-13])
def test_unusable_estimate_of_the_norm_gives_zero(norm):
  clipped = l2_clip.clip_by_l2_norm(tf.constant([1.0]), tf.constant(norm))
  assert clipped.value[0] == 0.0
  assert clipped.was_clipped == 1


def test_the_least_norm_clips_also_as_float32():
  # Which is below 1e-12.
  least = tf.constant(l2_clip.MIN_CLIPPING_NORM, tf.float32)
  clipped = l2_clip.clip_by_l2_norm(tf.constant([1.0]), least)
  assert float(clipped.value[0]) == pytest.approx(1e-12, rel=1e-5, abs=0)
  assert clipped.value[0] <= least


@pytest.mark.parametrize('dtype', _DTYPES)
@pytest.mark.parametrize('size', [10, 40_000])
def test_clipped_norm_is_not_much_shorter(dtype, size):
  value = tf.cast(tf.random.stateless_normal([size], [1, 2]), dtype)
  norm = _norm(l2_clip.clip_by_l2_norm(value, 1.0).value)
  # The last binary place of the dtype is what rounding towards zero may take.
  precision = {tf.float16: 2**-10, tf.bfloat16: 2**-7}.get(dtype, 3e-6)
  if dtype == tf.float16 and size == 40_000:
    precision = 1e-2  # Denormal elements lose more of themselves.
  assert 1 - precision < norm <= 1.0


def test_sizes_around_the_row_length_count_every_element():
  for size in (4097, 4128, 4129, 4159):
    value = np.zeros(size, np.float32)
    value[[0, -1]] = [3.0, 4.0]
    norm = float(l2_clip.l2_norm(tf.constant(value)))
    assert norm == pytest.approx(5.0, rel=1e-6)


def test_empty_tensor_and_empty_structure_have_norm_zero():
  assert l2_clip.l2_norm(tf.zeros([0, 3])) == 0.0
  clipped = l2_clip.clip_by_l2_norm({'a': tf.zeros([0])}, 1.0)
  assert clipped.value['a'].shape == [0]


def test_clip_is_idempotent():
  value = tf.random.stateless_normal([10_000], [3, 4])
  once = l2_clip.clip_by_l2_norm(value, 1.0).value
  twice = l2_clip.clip_by_l2_norm(once, 1.0)
  np.testing.assert_allclose(twice.value, once, rtol=2e-6)
  assert twice.was_clipped == 0


@st.composite
def _updates(draw):
  """Structures of tensors of any magnitude, dtype and shape."""
  leaves = []
  for _ in range(draw(st.integers(1, 3))):
    dtype = draw(st.sampled_from(_DTYPES))
    size = draw(st.sampled_from([1, 3, 17, 5000]))
    seed = draw(st.integers(0, 2**32 - 1))
    exponent = draw(st.integers(-45, 19))
    generator = np.random.default_rng(seed)
    kind = draw(st.sampled_from(['normal', 'constant', 'spread']))
    if kind == 'normal':
      values = generator.normal(size=size)
    elif kind == 'constant':
      values = np.full(size, generator.uniform(1, 2))
    else:
      values = 10.0 ** generator.uniform(-20, 0, size)
    with np.errstate(over='ignore', under='ignore'):
      leaves.append(tf.cast(tf.constant(values * 10.0**exponent), dtype))
  return leaves


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
  value=_updates(),
  clipping_norm=st.one_of(
    st.floats(1e-12, 1e6), st.sampled_from([0.1, 0.3, 1.0, 1e15, 1e30])
  ),
)
def test_norm_never_exceeds_the_clipping_norm(value, clipping_norm):
  clipped = l2_clip.clip_by_l2_norm(value, clipping_norm)
  assert _norm(*clipped.value) <= clipping_norm
  for before, after in zip(value, clipped.value, strict=True):
    assert before.dtype == after.dtype
    # Nothing changes sign or grows.
    before, after = (np.asarray(t).astype(np.float64) for t in (before, after))
    if not clipped.was_zeroed:
      assert np.all(np.abs(after) <= np.abs(before))
      assert np.all(after * before >= 0)


@pytest.mark.parametrize('is_rounded', [False, True])
def test_norm_that_float32_rounds_up_is_not_exceeded(is_rounded):
  clipping_norm = 1 + 2.0**-24 * 1.01
  rounded = float(np.float32(clipping_norm))
  between = tf.constant([rounded * (1 - 2.0**-40)], tf.float64)
  assert clipping_norm < _norm(between) < rounded
  given = tf.constant(rounded) if is_rounded else clipping_norm
  clipped = l2_clip.clip_by_l2_norm(between, given)
  assert _norm(clipped.value) <= clipping_norm


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
  seed=st.integers(0, 2**32 - 1),
  size=st.integers(1, 20),
  clipping_norm=st.floats(1e-3, 1e3),
)
def test_clip_keeps_the_direction(seed, size, clipping_norm):
  value = np.random.default_rng(seed).normal(size=size).astype(np.float32)
  clipped = l2_clip.clip_by_l2_norm(tf.constant(value), clipping_norm).value
  expected = value * min(1.0, clipping_norm / _norm(value))
  np.testing.assert_allclose(clipped, expected, rtol=3e-6)
