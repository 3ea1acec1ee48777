"""Tests of what private pipelines refuse and hide, in any order of nesting."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.parts import composition_rules, inspect_process

_VECTOR = tff.TensorType(np.float32, [2])
_EXACT = (
  'clipped_count',
  'zeroed_count',
  'clipped_counts',
  'mean_count',
  'secure_sum_out_of_bounds_count',
  'secure_lower_clipped_count',
  'secure_upper_clipped_count',
)

# Every sum that a private factory may have inside. The bound is below what the
# clients send without a clip, and with one.
_SUMS = {
  'sum': tff.aggregators.SumFactory,
  'secure sum': lambda: aggregators.secure_sum_factory(
    0.25, local_noise_stddev=1.0
  ),
}

# Every way to put a sum into a factory that adds noise to it.
_NOISES = {
  'server': lambda inner: aggregators.gaussian_noise_factory(1.0, inner),
  'clients': lambda inner: aggregators.local_gaussian_noise_factory(
    1.0, inner, min_clients_per_round=1, max_clients_per_round=4
  ),
  'dp mean': lambda inner: aggregators.dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=2,
    sum_factory=inner,
  ),
  'adaptive dp mean': lambda inner: aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=2,
    below_count_stddev=1.0,
    sum_factory=inner,
  ),
  'correlated': lambda inner: aggregators.correlated_noise_factory(
    privacy.TreeStrategy(num_rounds=4), 1.0, inner
  ),
  'correlated dp mean': lambda inner: aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=2,
    strategy=privacy.TreeStrategy(num_rounds=4),
    sum_factory=inner,
  ),
}

# Every factory that takes another one.
_WRAPPERS = {
  'nothing': lambda inner: inner,
  'clip': lambda inner: aggregators.difference_clipping_factory(1.0, inner),
  'clip of layers': lambda inner: aggregators.per_layer_clipping_factory(
    [1.0], inner
  ),
  'mean': lambda inner: aggregators.fixed_denominator_mean_factory(2, inner),
}

# What a client may be: shorter than the bounds, longer, beyond `float32`, no
# number. Each is compared with a client that stays away.
_CLIENTS = {
  'normal': [0.1, -0.1],
  'long': [3.0, -4.0],
  'huge': [3e19, 3e19],
  'infinite': [np.inf, 0.0],
  'not a number': [np.nan, 0.2],
}


def _integers(**bounds):
  return aggregators.distributed_gaussian_mean_factory(
    clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=2, **bounds
  )


def _median(stddev):
  """Returns an estimate of the median; by a query without noise for None."""
  if stddev is None:
    return tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=1.0, target_quantile=0.5, learning_rate=0.2
    )
  return tff.aggregators.PrivateQuantileEstimationProcess(
    tfp.QuantileEstimatorQuery(
      initial_estimate=1.0,
      target_quantile=0.5,
      learning_rate=0.2,
      below_estimate_stddev=stddev,
      expected_num_records=2,
      geometric_update=True,
    )
  )


def _names(type_spec):
  if not isinstance(type_spec, tff.StructType):
    return set()
  names = set()
  for name, element in tff.structure.iter_elements(type_spec):
    names |= {name} | _names(element)
  return names


@pytest.mark.parametrize('clip', ['ours', 'per layer', 'theirs'])
@pytest.mark.parametrize('noise', ['server', 'client', 'theirs', 'integers'])
@pytest.mark.parametrize(
  'outside', [pytest.param('clip', marks=pytest.mark.slow), 'mean of clip']
)
def test_clip_around_noise_reports_nothing_exact(clip, noise, outside):
  inner = {
    'server': aggregators.gaussian_noise_factory(1.0),
    'client': aggregators.local_gaussian_noise_factory(
      1.0, min_clients_per_round=1, max_clients_per_round=9
    ),
    'theirs': tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      1.0, 2.0, 1.0
    ),
    'integers': _integers(),
  }[noise]
  if outside == 'mean of clip':
    inner = aggregators.fixed_denominator_mean_factory(2, inner)
  if clip == 'theirs':
    # TFF's clip counts for itself; ours around it must not.
    factory = aggregators.difference_clipping_factory(
      1.0, tff.aggregators.concat_factory(inner)
    )
  elif clip == 'ours':
    factory = aggregators.difference_clipping_factory(1.0, inner)
  else:
    factory = aggregators.per_layer_clipping_factory([1.0], inner)
  process = factory.create(_VECTOR)
  assert inspect_process.adds_noise(process.state_type)
  measurements = process.next.type_signature.result.measurements.member
  assert not _names(measurements) & set(_EXACT)


@pytest.mark.parametrize(
  'clip',
  [
    aggregators.difference_clipping_factory(1.0),
    aggregators.per_layer_clipping_factory([1.0]),
    tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory()),
    aggregators.add_update_norm_measurements(
      aggregators.difference_clipping_factory(1.0)
    ),
  ],
)
def test_noise_around_a_clip_reports_nothing_exact(clip):
  process = aggregators.gaussian_noise_factory(1.0, clip).create(_VECTOR)
  measurements = process.next.type_signature.result.measurements.member
  hidden = set(_EXACT) | set(aggregators.SIMULATION_ONLY_MEASUREMENTS)
  assert not _names(measurements) & hidden


@pytest.mark.parametrize(
  ('noise', 'sum_name'),
  [
    ('server', 'sum'),
    ('clients', 'secure sum'),
    ('adaptive dp mean', 'sum'),
    ('correlated', 'sum'),
  ],
)
def test_neighbouring_cohorts_report_the_same(noise, sum_name):
  _check_neighbours_report_the_same(_NOISES[noise](_SUMS[sum_name]()))


@pytest.mark.slow
@pytest.mark.parametrize('outer', _WRAPPERS)
@pytest.mark.parametrize('noise', _NOISES)
@pytest.mark.parametrize('inner', _WRAPPERS)
def test_neighbouring_cohorts_report_the_same_in_any_order(outer, noise, inner):
  if inner == 'mean':
    factory = _NOISES[noise](_WRAPPERS[inner](_SUMS['sum']()))
    with pytest.raises(ValueError, match='it divides by P'):
      factory.create(_VECTOR)
    return
  if noise == 'clients' and inner != 'nothing':
    pytest.skip('A clip inside noise at the clients is refused.')
  for make_sum in _SUMS.values():
    inside = _WRAPPERS[inner](make_sum())
    _check_neighbours_report_the_same(_WRAPPERS[outer](_NOISES[noise](inside)))


@pytest.mark.parametrize(
  'outer',
  [
    'clip',
    *(
      pytest.param(name, marks=pytest.mark.slow)
      for name in _WRAPPERS
      if name != 'clip'
    ),
  ],
)
def test_neighbouring_cohorts_of_integers_report_the_same(outer):
  _check_neighbours_report_the_same(
    _WRAPPERS[outer](
      _integers(min_clients_per_round=2, max_clients_per_round=3)
    )
  )


def _check_neighbours_report_the_same(factory):
  process = factory.create(_VECTOR)
  state = process.initialize()
  cohort = [np.array(x, np.float32) for x in ([0.1, 0.2], [-0.2, 0.1])]
  # The first round's clipping norm, if it adapts, is a constant; the later ones
  # come from noised bits.
  without = tf.nest.flatten(process.next(state, cohort).measurements)
  assert without
  for client in _CLIENTS.values():
    added = [*cohort, np.array(client, np.float32)]
    measurements = process.next(state, added).measurements
    assert tf.nest.flatten(measurements) == without


def test_processes_without_noise_are_told_from_those_with():
  for factory in (
    tff.aggregators.SumFactory(),
    tff.aggregators.UnweightedMeanFactory(),
    tff.aggregators.SecureSumFactory(1.0),
    aggregators.clipped_mean_factory(clipping_norm=1.0),
    aggregators.secure_sum_factory(1.0),
  ):
    assert not inspect_process.adds_noise(factory.create(_VECTOR).state_type)


def test_noise_of_the_estimate_of_a_norm_alone_is_none():
  norm = tff.aggregators.PrivateQuantileEstimationProcess(
    tfp.QuantileEstimatorQuery(
      initial_estimate=1.0,
      target_quantile=0.5,
      learning_rate=0.2,
      below_estimate_stddev=0.0,
      expected_num_records=2,
      geometric_update=True,
    ),
    aggregators.gaussian_noise_factory(1.0),
  )
  for factory in (
    tff.aggregators.clipping_factory(norm, tff.aggregators.SumFactory()),
    aggregators.difference_clipping_factory(norm),
  ):
    state_type = factory.create(_VECTOR).state_type
    assert inspect_process.NOISE_STATE in str(state_type)
    assert not inspect_process.adds_noise(state_type)


@pytest.mark.parametrize('stddev', [None, 0.0, 0.5])
@pytest.mark.parametrize(
  'nest',
  [
    lambda norm: aggregators.difference_clipping_factory(
      norm, aggregators.gaussian_noise_factory(1.0)
    ),
    lambda norm: aggregators.gaussian_noise_factory(
      1.0, aggregators.difference_clipping_factory(norm)
    ),
    lambda norm: aggregators.gaussian_noise_factory(
      1.0, tff.aggregators.clipping_factory(norm, tff.aggregators.SumFactory())
    ),
    lambda norm: aggregators.gaussian_noise_factory(
      1.0, tff.aggregators.zeroing_factory(norm, tff.aggregators.SumFactory())
    ),
    lambda norm: aggregators.gaussian_noise_factory(
      1.0, tff.aggregators.SecureSumFactory(norm)
    ),
    lambda norm: _NOISES['correlated'](
      aggregators.difference_clipping_factory(norm)
    ),
    lambda norm: _NOISES['adaptive dp mean'](
      aggregators.difference_clipping_factory(norm)
    ),
  ],
)
def test_a_norm_that_adapts_is_refused_where_the_noise_is_fixed(nest, stddev):
  with pytest.raises(ValueError, match='must not vary a norm'):
    nest(_median(stddev)).create(_VECTOR)


def _dp(**kwargs):
  return tff.learning.dp_aggregator(1.0, 80.0, **kwargs)


@pytest.mark.slow
def test_norms_that_their_noise_follows_are_taken():
  for factory in (
    aggregators.dp_mean_factory(
      clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=2
    ),
    _NOISES['adaptive dp mean'](tff.aggregators.SumFactory()),
    aggregators.fixed_denominator_mean_factory(
      2, _NOISES['adaptive dp mean'](tff.aggregators.SumFactory())
    ),
    tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 2.0, 1.0),
    tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(1.0, 80.0),
    _dp(zeroing=False),
  ):
    process = factory.create(_VECTOR)
    composition_rules.check_norms_are_charged('process', process.state_type)


def test_norms_that_no_noise_follows_are_refused():
  process = _NOISES['adaptive dp mean'](tff.aggregators.SumFactory()).create(
    _VECTOR
  )
  composition_rules.check_norms_are_charged('process', process.state_type)
  for factory in (
    _dp(zeroing=True),
    tff.aggregators.zeroing_factory(
      _median(0.5), _NOISES['dp mean'](tff.aggregators.SumFactory())
    ),
    tff.aggregators.clipping_factory(
      _median(0.5), _NOISES['adaptive dp mean'](tff.aggregators.SumFactory())
    ),
  ):
    process = factory.create(_VECTOR)
    with pytest.raises(ValueError, match='`process` must not vary a norm'):
      composition_rules.check_norms_are_charged('process', process.state_type)


@pytest.mark.parametrize('noise', _NOISES)
@pytest.mark.parametrize(
  'nest', [lambda inner: inner, tff.aggregators.concat_factory]
)
def test_sum_that_rounds_to_longer_updates_is_refused(noise, nest):
  # A step of this bound is 0.0005: an element of 0.0003 becomes 0.0005.
  inner = nest(tff.aggregators.SecureSumFactory(1e6))
  with pytest.raises(ValueError, match='must not lengthen clipped values'):
    _NOISES[noise](inner).create(_VECTOR)


def test_clip_of_noised_values_is_refused():
  for clip in (
    aggregators.difference_clipping_factory(1.0),
    aggregators.per_layer_clipping_factory([1.0]),
    tff.aggregators.zeroing_factory(1.0, tff.aggregators.SumFactory()),
  ):
    factory = aggregators.local_gaussian_noise_factory(
      1.0, clip, min_clients_per_round=1, max_clients_per_round=1
    )
    with pytest.raises(ValueError, match='must not clip'):
      factory.create(_VECTOR)


@pytest.mark.parametrize('noise', _NOISES)
def test_weighted_inner_factory_is_refused_with_a_reason(noise):
  with pytest.raises(TypeError, match='how much one client can move'):
    _NOISES[noise](tff.aggregators.MeanFactory())


def test_integer_leaf_is_refused():
  value_type = tff.to_type([(np.float32, [2]), (np.int32, [2])])
  wrappers = {**_NOISES, **_WRAPPERS}
  del wrappers['nothing']
  for factory in (
    *(wrap(tff.aggregators.SumFactory()) for wrap in wrappers.values()),
    _SUMS['secure sum'](),
    _integers(),
  ):
    with pytest.raises(
      TypeError, match=r'floating-point leaves, found int32\[2\]'
    ):
      factory.create(value_type)
