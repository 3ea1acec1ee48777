"""Tests of `gaussian_noise_factory` and the draws behind it."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import KS_LIMIT, ks_statistic
from tff_clipping import aggregators
from tff_clipping.aggregators.parts import (
  gaussian_draws,
  gaussian_table,
  grid_sums,
  table_draws,
)

_SIZE = 20_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])


def _zeros(num_clients):
  return [np.zeros(_SIZE, np.float32)] * num_clients


@functools.cache
def _process(noise_key=None):
  """Returns a process that adds noise of the standard deviation 0.3."""
  return aggregators.gaussian_noise_factory(0.3, noise_key=noise_key).create(
    _VECTOR
  )


def _noise(process, num_clients=0):
  return process.next(process.initialize(), _zeros(num_clients)).result


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
  noise = _noise(_process(noise_key), 3)
  assert ks_statistic(noise, 0.3) < KS_LIMIT
  assert ks_statistic(noise, 0.2) > KS_LIMIT
  assert ks_statistic(noise, 0.45) > KS_LIMIT


def test_noise_does_not_depend_on_the_cohort():
  for num_clients in (0, 5):
    noise = _noise(_process(), num_clients)
    assert ks_statistic(noise, 0.3) < KS_LIMIT


def test_noise_is_added_to_the_result_of_the_inner_factory():
  factory = aggregators.gaussian_noise_factory(
    1e-4, aggregators.difference_clipping_factory(5.0)
  )
  process = factory.create(tff.TensorType(np.float32, [2]))
  values = [np.array(v, np.float32) for v in ([1, 2], [3, 6])]
  output = process.next(process.initialize(), values)
  # The second is clipped to norm 5. Six standard deviations: exceeded once in
  # 10^9 runs.
  expected = [1 + 5 / 5**0.5, 2 + 10 / 5**0.5]
  np.testing.assert_allclose(output.result, expected, atol=6e-4)
  assert output.measurements['noise_stddev'] == np.float32(1e-4)


def test_fresh_noise_differs_between_runs_of_one_state():
  process = _process()
  state = process.initialize()
  first = process.next(state, _zeros(1)).result
  second = process.next(state, _zeros(1)).result
  # The correlation of independent draws has a standard deviation of 0.007.
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_fresh_noise_differs_between_factories():
  first = _noise(_process())
  second = _noise(aggregators.gaussian_noise_factory(0.3).create(_VECTOR))
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_key_repeats_a_run():
  runs = []
  anew = aggregators.gaussian_noise_factory(0.3, noise_key=(1, 2))
  for process in (_process((1, 2)), anew.create(_VECTOR)):
    first = process.next(process.initialize(), _zeros(1))
    second = process.next(first.state, _zeros(1))
    runs.append((first.result, second.result))
  np.testing.assert_array_equal(runs[0], runs[1])
  # Rounds do not repeat.
  assert abs(np.corrcoef(*runs[0])[0, 1]) < 0.05


@pytest.mark.slow
def test_other_key_gives_other_noise():
  draws = [_noise(_process(key)) for key in ((1, 2), (2, 1), (1, 3))]
  off_diagonal = np.corrcoef(draws) - np.eye(3)
  assert np.max(np.abs(off_diagonal)) < 0.05


@pytest.mark.parametrize(
  'noise_key', [pytest.param(None, marks=pytest.mark.slow), (1, 2)]
)
def test_tensors_have_noise_of_their_own(noise_key):
  value_type = tff.to_type(
    collections.OrderedDict(b=(np.float32, [5000]), a=(np.float64, [5000]))
  )
  factory = aggregators.gaussian_noise_factory(1.0, noise_key=noise_key)
  process = factory.create(value_type)
  noise = process.next(process.initialize(), []).result
  assert noise['a'].dtype == np.float64
  assert abs(np.corrcoef(noise['a'], noise['b'])[0, 1]) < 0.1
  for name in 'ab':
    assert ks_statistic(noise[name], 1.0) < KS_LIMIT


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
  ],
)
def test_what_is_noised_is_summed_in_64_bits(dtype, large, build):
  # In their own type, large + 1 is large: the other clients would not be in the
  # sum.
  process = build(1e-6).create(tff.TensorType(dtype, [1]))
  values = [np.array([v], dtype) for v in (large, 1, 1)]
  output = process.next(process.initialize(), values)
  assert output.result.dtype == dtype
  assert float(output.result[0]) == large + 2


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
  for inner in (
    aggregators.difference_clipping_factory(
      1.0, count_sum_factory=tff.aggregators.SumFactory()
    ),
    tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory()),
    tff.aggregators.zeroing_factory(
      1.0, aggregators.difference_clipping_factory(1.0)
    ),
  ):
    factory = aggregators.gaussian_noise_factory(0.1, inner)
    process = factory.create(tff.TensorType(np.float32, [2]))
    measurements = process.next.type_signature.result.measurements.member
    assert tff.structure.name_list(measurements) == ['noise_stddev']


@pytest.mark.parametrize('stddev', [0.0, -1.0, math.nan, math.inf])
def test_stddev_out_of_range_raises(stddev):
  with pytest.raises(ValueError, match='`noise_stddev` must be positive'):
    aggregators.gaussian_noise_factory(stddev)


def test_stddev_of_the_wrong_kind_raises():
  with pytest.raises(TypeError, match='`noise_stddev` must be a number'):
    aggregators.gaussian_noise_factory(True)


@pytest.mark.parametrize('key', [1, (1,), (1, 2, 3), (1.0, 2), (True, 1), 'ab'])
def test_key_of_the_wrong_kind_raises(key):
  with pytest.raises(TypeError, match='`noise_key` must be a pair'):
    aggregators.gaussian_noise_factory(1.0, noise_key=key)


def test_key_that_does_not_fit_raises():
  with pytest.raises(ValueError, match='64-bit'):
    aggregators.gaussian_noise_factory(1.0, noise_key=(2**63, 0))


def _draw_keys(count):
  """Returns keys of one graph."""

  @tf.function
  def draw():
    return tf.stack([gaussian_draws.fresh_key(), gaussian_draws.fresh_key()])

  return np.reshape([draw().numpy() for _ in range(count)], [-1, 2])


@pytest.fixture
def no_generator(monkeypatch):
  """TensorFlow's generator, whose seed can be searched, gives zeros."""
  monkeypatch.setattr(
    tf.raw_ops,
    'NonDeterministicInts',
    lambda shape, dtype: tf.zeros(shape, dtype),
  )


def test_fresh_keys_differ_whenever_a_graph_runs(no_generator):
  del no_generator
  keys = _draw_keys(100)
  assert all(len(set(half)) == 200 for half in np.transpose(keys))
  # Each of the 128 bits is random: it is the same in all with 1e-60.
  bits = np.unpackbits(keys.view(np.uint8), axis=1)
  assert np.all(bits.any(axis=0) & ~bits.all(axis=0))


def test_fresh_keys_have_all_bits_of_the_systems_entropy(
  no_generator, monkeypatch, tmp_path
):
  del no_generator
  path = tmp_path / 'uuid'
  path.write_text('01234567-89ab-cdef-8000-00000000000a\n')
  monkeypatch.setattr(gaussian_draws, '_ENTROPY', str(path))
  # The digits of each half, the lowest first; the halves of the other turned.
  word = int('0123456789abcdef'[::-1], 16) ^ int('800000000000000a'[::-1], 16)
  expected = np.array([word] * 2, np.uint64).astype(np.int64)
  np.testing.assert_array_equal(gaussian_draws.fresh_key(), expected)


def test_without_the_systems_entropy_a_round_fails(monkeypatch, tmp_path):
  monkeypatch.setattr(gaussian_draws, '_ENTROPY', str(tmp_path / 'none'))
  with pytest.raises(tf.errors.NotFoundError):
    gaussian_draws.fresh_key()


_KEYS = [[1, 2], [3, 4]]


def _give_words(monkeypatch, answers):
  """Gives these for the keys in their order; returns what is left of them."""
  left = list(zip(_KEYS, answers, strict=True))

  def draw_words(key, shape, dtype=tf.int64):
    expected, answer = left.pop(0)
    np.testing.assert_array_equal(key, expected)
    np.testing.assert_array_equal(shape, answer.shape)
    assert dtype == answer.dtype
    return answer

  monkeypatch.setattr(table_draws, 'draw_words', draw_words)
  return left


def test_parts_are_those_of_the_table(monkeypatch):
  table, low = gaussian_table.alias_table(2048.0)
  others, high = table >> 16, table & (2**16 - 1)
  own = np.array([0, 100, -4000, 8000, 8000, -8000, -4000, 100])
  # Below the threshold, at it, and above; where they tie, more bits decide.
  first = np.clip(high[own] + [-1, 0, 1, 0, 0, 0, 0, 0], 0, 2**16 - 1)
  more = low[own] + [
    (0, 0),
    (0, 0),
    (0, 0),
    (-1, 1),
    (0, -1),
    (1, -1),
    (0, 0),
    (0, 1),
  ]
  is_tie = first == high[own]
  words = tf.constant([(own << 16) + first], tf.int32)
  left = _give_words(monkeypatch, [words, tf.constant(more[is_tie])])
  found = table_draws.draw_from_table(
    len(own),
    tf.constant(_KEYS, tf.int64),
    (tf.constant(table), tf.constant(low)),
  )
  is_own = (first < high[own]) | (
    is_tie
    & (
      (more[:, 0] < low[own, 0])
      | ((more[:, 0] == low[own, 0]) & (more[:, 1] < low[own, 1]))
    )
  )
  assert list(is_own[3:]) == [True, True, False, False, False]
  np.testing.assert_array_equal(found, np.where(is_own, own, others[own]))
  assert not left


def test_ties_of_any_part_of_a_draw_are_decided(monkeypatch):
  table, low = gaussian_table.alias_table(2048.0)
  others, high = table >> 16, table & (2**16 - 1)
  own = np.random.default_rng(0).integers(-6000, 6000, [3, 60])
  # Of each draw none, one or more of the parts tie, and the next bits are just
  # below, or not.
  is_tie = np.array([[(i >> part) & 1 for i in range(60)] for part in range(3)])
  is_below = np.array([[(i // 8) % 2] * 3 for i in range(60)]).T
  first = np.where(is_tie, high[own], (high[own] + 2**15) % 2**16)
  more = low[own] - is_below[..., np.newaxis] * np.array([0, 1])
  in_ties = is_tie.any(axis=0)
  words = tf.constant((own << 16) + first, tf.int32)
  bits = tf.constant(more[:, in_ties].reshape([-1, 2]))
  left = _give_words(monkeypatch, [words, bits])
  stddev, step = 1.3 * 2**29, 1.0
  found = gaussian_draws._draw_block(
    60,
    tf.constant(stddev, tf.float64),
    tf.constant(step, tf.float64),
    tf.constant(_KEYS, tf.int64),
    (tf.constant(table), tf.constant(low)),
  )
  is_own = np.where(is_tie, is_below, first < high[own])
  largest = math.ceil(math.sqrt((stddev / 2048) ** 2 - 2**20 - 1))
  scales = np.array([largest, 1024, 1])
  np.testing.assert_array_equal(
    found, scales @ np.where(is_own, own, others[own])
  )
  assert not left


@pytest.mark.parametrize('stddev', [1.0, 1.3, 1.999999, 3e-5, 7e20])
def test_parts_have_the_variance_together(monkeypatch, stddev):
  # With ones for the parts: the scales, whose squares are the variance.
  ones = tf.unstack(tf.eye(3, dtype=tf.int32))
  monkeypatch.setattr(
    table_draws, 'draw_combined', lambda *arguments: arguments[-1](*ones)
  )
  (drawn,) = gaussian_draws.draw_gaussian(
    [[3]], stddev, tf.constant([1, 2], tf.int64)
  )
  step = float(gaussian_draws.grid_step(stddev))
  assert math.frexp(step)[0] == 0.5
  assert 2.0**-30 < step / stddev <= 2.0**-29
  parts = drawn.numpy() / step
  variance = 2048.0**2 * np.sum(parts**2)
  assert 1 <= variance * (step / stddev) ** 2 <= 1 + 2.0**-16
  # What is added to multiples of a part is at least twice as wide.
  assert 2048.0 * math.hypot(1, parts[1]) >= 2 * parts[0]
  assert 2048.0 >= 2 * parts[1]
  assert parts[2] == 1


@pytest.mark.parametrize(
  'sizes', [[0], [1], [5, 0, 3], [40_000, 7, 20_000], [150_000, 7, 250_000]]
)
def test_blocks_make_up_all_tensors(sizes):
  key = tf.constant([1, 2], tf.int64)
  found = gaussian_draws.draw_gaussian([[size] for size in sizes], 2.0, key)
  assert [len(noise) for noise in found] == sizes
  # One stream, whatever the tensors are; no part of it comes twice.
  (whole,) = gaussian_draws.draw_gaussian([[sum(sizes)]], 2.0, key)
  np.testing.assert_array_equal(np.concatenate(found), whole)
  assert len(np.unique(whole)) >= 0.9999 * len(whole)


@pytest.mark.parametrize(
  ('stddev', 'size'), [(1.0, 2**13 + 1), (1.999, 131_071), (3e-5, 400_001)]
)
def test_compiled_draws_have_the_bits_of_operations(stddev, size):
  draw = functools.partial(gaussian_draws.draw_gaussian, [[size]], stddev)
  key = tf.constant([5, 6], tf.int64)
  graph = tf.function(draw).get_concrete_function(key)
  assert b'_XlaMustCompile' in graph.graph.as_graph_def().SerializeToString()
  # Outside of a graph nothing is compiled.
  np.testing.assert_array_equal(graph(key), draw(key))


def test_noise_of_unknown_shape_is_refused():
  @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
  def add_noise(value):
    return gaussian_draws.add_gaussian_noise(
      value, 1.0, tf.constant([1, 2], tf.int64)
    )

  with pytest.raises(ValueError, match=r'`shapes` must be known .*\(None,\)'):
    add_noise.get_concrete_function()


def test_rounded_noise_does_not_tell_whether_a_point_is_even():
  # For all x on the grid, x + rounded noise = rounded (x + noise).
  noise = tf.constant(np.arange(-40, 40) / 8.0)
  one = tf.constant(1.0, tf.float64)
  found = gaussian_draws.round_noise(noise, one).numpy()
  for x in (1.0, 2.0):
    np.testing.assert_array_equal(
      x + found, gaussian_draws.round_noise(noise + x, one)
    )
  assert set(np.unique(found, return_counts=True)[1][1:-1]) == {8}


@pytest.mark.parametrize('power', [-149, -120, -30, 0, 30, 120])
@pytest.mark.parametrize('largest', [1.0, 2.0**30, 2.0**31, 1e30, 3e38])
def test_narrow_values_are_rounded_as_wide_ones(power, largest):
  step = tf.constant(2.0**power, tf.float64)
  rng = np.random.default_rng(0)
  scales = np.exp(rng.uniform(-5, np.log(1e9), 500))
  wide = rng.choice([-1, 1], 500) * scales * 2.0**power
  wide = np.append(wide, [0.0, largest, -(2.0**power), 0.75 * 2.0**power])
  with np.errstate(over='ignore', under='ignore'):
    narrow = wide.astype(np.float32)
  narrow = narrow[np.isfinite(narrow)]
  # Below, a processor may take a number for zero.
  narrow = narrow[np.abs(narrow) >= 2.0**-126]
  steps = narrow.astype(np.float64) / 2.0**power
  expected = np.trunc(steps) * 2.0**power
  found = gaussian_draws.round_towards_zero(tf.constant(narrow), step).numpy()
  is_normal = np.abs(expected) >= 2.0**-126
  np.testing.assert_array_equal(found[is_normal], expected[is_normal])
  assert np.all(np.abs(found) <= np.abs(narrow))


def test_a_value_that_is_no_number_stays_one_beside_others():
  value = [tf.constant([1.5, np.nan]), tf.constant([np.inf, -2.75])]
  found = gaussian_draws.round_towards_zero(value, tf.constant(1.0, tf.float64))
  np.testing.assert_array_equal(found[0], [1.0, np.nan])
  np.testing.assert_array_equal(found[1], [np.inf, -2.0])


@pytest.mark.parametrize('bound', [1.0, 2.0**31, 2.0**40, math.inf])
def test_a_bound_changes_nothing(bound):
  step = tf.constant(0.25, tf.float64)
  value = [tf.constant([0.9, -0.3, 0.25]), tf.constant([], tf.float32)]
  for given in (value, value + [tf.constant([-0.9], tf.float64)]):
    found = gaussian_draws.round_towards_zero(given, step, bound)
    expected = [np.trunc(leaf / 0.25) * 0.25 for leaf in given]
    for leaf, other in zip(found, expected, strict=True):
      assert leaf.dtype == other.dtype
      np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize('stddev', [0.01, 0.4, 1.0, 30.0])
def test_a_private_mean_has_the_bits_of_its_parts(stddev):
  # It knows that no element is larger than c; the factory of noise does not.
  values = np.float32([[0.6, -0.8, 0.0], [1.0, 0.0, 0.0], [1e-3, 1e-9, -1e-20]])
  results = []
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
  ):
    process = factory.create(tff.TensorType(np.float32, [3]))
    results.append(process.next(process.initialize(), list(values)).result)
  np.testing.assert_array_equal(*results)


def test_values_are_rounded_to_the_grid():
  value = tf.constant([-1.75, -1.0, 0.0, 0.3, 1.0, 2.0**60], tf.float64)
  step = tf.constant(0.5, tf.float64)
  np.testing.assert_array_equal(
    gaussian_draws.round_towards_zero(value, step),
    [-1.5, -1.0, 0.0, 0.0, 1.0, 2.0**60],
  )
  np.testing.assert_array_equal(
    gaussian_draws.round_to_nearest(value, step),
    [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0**60],
  )


def test_noise_of_a_factory_is_that_of_its_key():
  process = aggregators.gaussian_noise_factory(2.0, noise_key=(3, 4)).create(
    tff.TensorType(np.float64, [200])
  )
  key = gaussian_draws.derive_key(
    tf.constant([3, 4], tf.int64), tf.constant([0, 0], tf.int64)
  )
  (noise,) = gaussian_draws.draw_gaussian([[200]], 2.0, key)
  # Clients' values are rounded towards zero to the grid of 2^-28.
  value = -(0.25 + 2.0**-40) * np.ones(200)
  np.testing.assert_array_equal(
    process.next(process.initialize(), [value]).result, noise - 0.25
  )


@pytest.mark.parametrize(
  ('inner', 'factor'),
  [
    (tff.aggregators.SumFactory(), 1.0),
    (aggregators.secure_sum_factory(1.0), 1.0),
    (aggregators.difference_clipping_factory(1.0), 1 / (1 - 2.0**-22)),
  ],
)
def test_a_clip_inside_has_more_noise_for_the_rounding_of_its_sums(
  inner, factor
):
  value_type = tff.to_type([(np.float64, [3]), (np.float64, [13])])
  process = aggregators.gaussian_noise_factory(
    2.0, inner, noise_key=(3, 4)
  ).create(value_type)
  found = process.next(process.initialize(), []).result
  key = gaussian_draws.derive_key(
    tf.constant([3, 4], tf.int64), tf.constant([0, 0], tf.int64)
  )
  expected = gaussian_draws.draw_gaussian([[3], [13]], 2.0 * factor, key)
  for noise, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(noise, other)


@pytest.mark.parametrize(
  ('multiplier', 'expected'),
  [(1.0, 1 / (1 - 2.0**-22)), (64.0, 1 / (1 - 2.0**-21))],
)
def test_rounding_is_paid_for_up_to_the_noise_multiplier(multiplier, expected):
  value_type = tff.to_type([(np.float32, [3]), (np.float32, [13])])
  found = grid_sums.noise_factor(value_type, 2.0**-29, multiplier)
  assert found == expected
  assert grid_sums.noise_factor(value_type, 0.0, multiplier) == 1.0
