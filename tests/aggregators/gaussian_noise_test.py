"""Tests of `gaussian_noise_factory` and the draws behind it."""

import collections
import math
import secrets

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from tff_clipping import aggregators
from tff_clipping.aggregators.parts import gaussian_draws

_SIZE = 20_000
_VECTOR = tff.TensorType(np.float32, [_SIZE])

# P(sqrt(n) D > 2.9) is 1e-7 for the distribution that is claimed (Kolmogorov).
# Where the standard deviation is off by a factor of 1.5 either way, D is 0.09
# and more, and sqrt(n) D is about 13 for n = 20,000.
_KS_LIMIT = 2.9


def _ks_statistic(samples, stddev):
  """Returns sqrt(n) times the Kolmogorov-Smirnov distance to N(0, stddev^2)."""
  found = stats.kstest(np.ravel(samples), 'norm', args=(0, stddev))
  return math.sqrt(np.size(samples)) * found.statistic


def _zeros(num_clients):
  return [np.zeros(_SIZE, np.float32)] * num_clients


def _noise(factory, num_clients=0, value_type=_VECTOR):
  process = factory.create(value_type)
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
  noise = _noise(
    aggregators.gaussian_noise_factory(0.3, noise_key=noise_key), 3
  )
  assert _ks_statistic(noise, 0.3) < _KS_LIMIT
  assert _ks_statistic(noise, 0.2) > _KS_LIMIT
  assert _ks_statistic(noise, 0.45) > _KS_LIMIT


def test_noise_does_not_depend_on_the_cohort():
  for num_clients in (0, 5):
    noise = _noise(aggregators.gaussian_noise_factory(2.0), num_clients)
    assert _ks_statistic(noise, 2.0) < _KS_LIMIT


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


def test_what_is_no_sum_gets_no_noise():
  for inner in (
    tff.aggregators.UnweightedMeanFactory(),
    aggregators.clipped_mean_factory(clipping_norm=1.0),
    # A mean over P: noise for a sum would be P times that of the mean.
    aggregators.fixed_denominator_mean_factory(2),
    aggregators.difference_clipping_factory(
      1.0, aggregators.fixed_denominator_mean_factory(2)
    ),
    aggregators.dp_mean_factory(
      clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=2
    ),
    aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=40
    ),
    tff.aggregators.UnweightedReservoirSamplingFactory(4),
  ):
    factory = aggregators.gaussian_noise_factory(1.0, inner)
    with pytest.raises(ValueError, match='must be a sum where noise is added'):
      factory.create(tff.TensorType(np.float32, [2]))


def test_fresh_noise_differs_between_runs_of_one_state():
  process = aggregators.gaussian_noise_factory(1.0).create(_VECTOR)
  state = process.initialize()
  first = process.next(state, _zeros(1)).result
  second = process.next(state, _zeros(1)).result
  # The correlation of independent draws has a standard deviation of 0.007.
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_fresh_noise_differs_between_factories():
  first = _noise(aggregators.gaussian_noise_factory(1.0))
  second = _noise(aggregators.gaussian_noise_factory(1.0))
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_key_repeats_a_run():
  runs = []
  for _ in range(2):
    process = aggregators.gaussian_noise_factory(1.0, noise_key=(7, -8)).create(
      _VECTOR
    )
    first = process.next(process.initialize(), _zeros(1))
    second = process.next(first.state, _zeros(1))
    runs.append((first.result, second.result))
  np.testing.assert_array_equal(runs[0], runs[1])
  # Rounds do not repeat.
  assert abs(np.corrcoef(*runs[0])[0, 1]) < 0.05


def test_other_key_gives_other_noise():
  keys = [(1, 2), (2, 1), (1, 3)]
  draws = [
    _noise(aggregators.gaussian_noise_factory(1.0, noise_key=k)) for k in keys
  ]
  off_diagonal = np.corrcoef(draws) - np.eye(3)
  assert np.max(np.abs(off_diagonal)) < 0.05


@pytest.mark.parametrize('noise_key', [None, (1, 2)])
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
    assert _ks_statistic(noise[name], 1.0) < _KS_LIMIT


@pytest.mark.parametrize(
  ('dtype', 'large'),
  [
    (tf.bfloat16.as_numpy_dtype, 2**8),
    (np.float16, 2**11),
    (np.float32, 2**24),
  ],
)
@pytest.mark.parametrize(
  'build',
  [
    aggregators.gaussian_noise_factory,
    lambda stddev: aggregators.local_gaussian_noise_factory(
      stddev, min_clients_per_round=3, max_clients_per_round=3
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
    aggregators.difference_clipping_factory(1.0),
    tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory()),
    tff.aggregators.zeroing_factory(
      1.0, aggregators.difference_clipping_factory(1.0)
    ),
  ):
    factory = aggregators.gaussian_noise_factory(0.1, inner)
    process = factory.create(tff.TensorType(np.float32, [2]))
    measurements = process.next.type_signature.result.measurements.member
    assert tff.structure.name_list(measurements) == [
      'noise_stddev',
      'clipping_norm',
    ]


def test_exact_estimate_inside_is_refused():
  estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    1.0, 0.5, 0.2
  )
  for clip in (
    aggregators.difference_clipping_factory(estimate),
    tff.aggregators.clipping_factory(estimate, tff.aggregators.SumFactory()),
    tff.aggregators.zeroing_factory(estimate, tff.aggregators.SumFactory()),
  ):
    with pytest.raises(ValueError, match='must not vary a norm'):
      aggregators.gaussian_noise_factory(1.0, clip).create(_VECTOR)


def test_weighted_inner_factory_is_refused_with_a_reason():
  with pytest.raises(TypeError, match='how much one client can move'):
    aggregators.gaussian_noise_factory(1.0, tff.aggregators.MeanFactory())


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


def test_integer_leaf_is_refused():
  with pytest.raises(TypeError, match='floating-point leaves'):
    aggregators.gaussian_noise_factory(1.0).create(tff.TensorType(np.int32))


def _draw_keys(monkeypatch, count, *, secret=None, generator=None):
  """Returns keys of one graph, with the sources that are not to tell them."""
  monkeypatch.setattr(tf, 'timestamp', lambda: tf.constant(1.0, tf.float64))
  if secret is not None:
    monkeypatch.setattr(secrets, 'token_bytes', lambda size: secret)
  if generator is not None:
    monkeypatch.setattr(
      tf.raw_ops,
      'NonDeterministicInts',
      lambda shape, dtype: tf.constant(generator, dtype),
    )

  @tf.function
  def draw():
    return gaussian_draws.fresh_key()

  return [draw().numpy() for _ in range(count)]


def test_fresh_keys_differ_whenever_a_graph_runs(monkeypatch):
  keys = _draw_keys(monkeypatch, 20, secret=bytes(16))
  assert all(len(set(half)) == 20 for half in np.transpose(keys))


def test_fresh_keys_have_all_bits_of_the_systems_entropy(monkeypatch):
  secrets_of_two = bytes(range(16)), bytes(range(100, 116))
  one, other = (
    _draw_keys(monkeypatch, 1, secret=secret, generator=[3, 4])[0]
    for secret in secrets_of_two
  )
  differences = np.bitwise_xor(one, other).tobytes()
  assert differences == bytes(
    a ^ b for a, b in zip(*secrets_of_two, strict=True)
  )


def _integers(key, shape):
  return tf.random.stateless_uniform(
    shape, key, None, None, tf.int64, alg='philox'
  ).numpy()


def _box_muller(radial, angular):
  """Normal draws from integers, as the books have it."""
  uniform = (np.bitwise_and(radial, 2**63 - 1) + 0.5) / 2**63
  radius, angle = np.sqrt(-2 * np.log(uniform)), angular * np.pi / 2**63
  return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


@pytest.mark.parametrize('num_draws', [1, 2])
def test_noise_is_the_sum_of_draws_with_keys_of_their_own(num_draws):
  key = tf.constant([3, 4], tf.int64)
  found = gaussian_draws.add_gaussian_noise(
    np.zeros(5), 2.0, key, num_draws=num_draws
  )
  keys = _integers(key, [1, num_draws, 2])
  draws = [
    _box_muller(*_integers(keys[0, j], [2, 3]))[:5] for j in range(num_draws)
  ]
  np.testing.assert_allclose(
    found, 2.0 * np.sum(draws, axis=0) / math.sqrt(num_draws), rtol=1e-12
  )


def test_tails_are_those_of_a_normal_distribution(monkeypatch):
  # Of a radius, P(R > r) = exp(-r^2 / 2): that of the integers below.
  radial = [0, 1, 1000, 2**40, 2**62, 2**63 - 1]
  monkeypatch.setattr(
    gaussian_draws,
    '_integers',
    lambda key, shape: tf.constant([radial, [0] * len(radial)], tf.int64),
  )
  drawn = gaussian_draws._draw_normal(
    tf.constant([2 * len(radial)]), tf.constant([1, 2], tf.int64)
  )
  for found, integer in zip(drawn.numpy(), radial, strict=False):
    beyond = min(math.log(integer + 0.5) - 63 * math.log(2), 0.0)
    # A step of `float64` below 1 is what the least radius may be off by.
    assert found == pytest.approx(math.sqrt(-2 * beyond), rel=1e-14, abs=3e-8)
  assert max(drawn) > 9.4


def test_a_standard_deviation_has_all_its_digits():
  stddev = 1.000000059
  one, other = (
    gaussian_draws.add_gaussian_noise(
      np.zeros(4), s, tf.constant([3, 4], tf.int64)
    )
    for s in (stddev, 1.0)
  )
  np.testing.assert_allclose(one, stddev * other, rtol=1e-15)


@pytest.mark.parametrize('value', [None, 0.25 + 2.0**-24])
def test_noise_of_a_factory_has_two_draws_in_64_bits(value):
  # In 32 bits, noise would leave the lowest bits of a sum as they are.
  process = aggregators.gaussian_noise_factory(2.0, noise_key=(3, 4)).create(
    tff.TensorType(np.float32, [200])
  )
  state = process.initialize()
  key = gaussian_draws.derive_key(
    tf.constant([3, 4], tf.int64), tf.constant([0, 0], tf.int64)
  )
  values = [] if value is None else [np.full(200, value, np.float32)]
  noised = gaussian_draws.add_gaussian_noise(
    np.sum(values, axis=0, dtype=np.float64) * np.ones(200),
    2.0,
    key,
    num_draws=2,
  )
  assert noised.dtype == tf.float64
  # No grid of 32 bits holds them.
  assert np.mean(noised == tf.cast(noised, tf.float32).numpy()) < 0.01
  np.testing.assert_array_equal(
    process.next(state, values).result, tf.cast(noised, tf.float32)
  )
