"""Tests of the records of private means, and of who passes them on."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators.one_round import first_round, l2_norm, run
from tff_clipping import adaptive_noise, aggregators, privacy
from tff_clipping.aggregators.server_noise import strategy_digest
from tff_clipping.mechanism import ADAPTS, MECHANISM, Mechanism
from tff_clipping.privacy.audit import canaries

_VECTOR = tff.TensorType(np.float32, [3])
_STRATEGY = privacy.blt_strategy(
  num_rounds=4, participation=privacy.Participation(min_separation=2)
)
_NOISE = dict(noise_multiplier=1.5, clients_per_round=2)
_QUIET = dict(noise_multiplier=1e-5, clients_per_round=2)


_dp_mean = functools.partial(
  aggregators.dp_mean_factory, clipping_norm=0.5, **_NOISE
)


_ONES = [np.ones(3, np.float32)]


def _expected(**fields):
  return Mechanism(
    **dict(kind='gaussian', clipping_norm=0.5, **_NOISE) | fields
  )


_TWO_TENSORS = tff.to_type([(np.float32, [20_000]), (np.float32, [20_000])])
_ZEROS = [np.zeros(20_000, np.float32)] * 2
_USUAL = ('clipping_norm', 'noise_stddev')
# The private means, and what the record of each has beside c, z and P.
_MEANS = {
  'gaussian': (_dp_mean, dict(public=_USUAL)),
  'secure': (
    functools.partial(
      _dp_mean, sum_factory=aggregators.secure_sum_factory(0.5)
    ),
    dict(public=_USUAL),
  ),
  'per_layer': (
    functools.partial(_dp_mean, clipping_norm=[0.3, 0.4]),
    dict(
      clipping_norm=aggregators.combined_clipping_norm([0.3, 0.4]),
      public=('clipping_norms', 'noise_stddev'),
    ),
  ),
  'adaptive': (
    functools.partial(
      aggregators.adaptive_dp_mean_factory,
      initial_clipping_norm=0.5,
      below_count_stddev=3.0,
    ),
    dict(clipping_norm=ADAPTS, public=(*_USUAL, 'bits_noise_stddev')),
  ),
  'correlated': (
    functools.partial(
      aggregators.correlated_dp_mean_factory,
      clipping_norm=0.5,
      strategy=_STRATEGY,
    ),
    dict(
      kind='correlated',
      strategy=strategy_digest(_STRATEGY.recurrence),
      public=_USUAL,
    ),
  ),
  'shares': (
    functools.partial(
      aggregators.local_gaussian_mean_factory, clipping_norm=0.5
    ),
    dict(kind='shares', min_clients=2, max_clients=2, public=_USUAL),
  ),
  'distributed': (
    functools.partial(
      aggregators.distributed_gaussian_mean_factory,
      clipping_norm=0.5,
      min_clients_per_round=1,
      max_clients_per_round=3,
    ),
    dict(
      kind='distributed',
      min_clients=1,
      max_clients=3,
      public=(
        *_USUAL,
        'share_noise_stddev',
        'min_clients_per_round',
        'max_clients_per_round',
        'bits_per_client',
      ),
    ),
  ),
}


@functools.cache
def _process(name):
  return _MEANS[name][0](**_NOISE).create(_TWO_TENSORS)


@pytest.mark.parametrize('name', _MEANS)
def test_each_private_mean_measures_what_it_does(name):
  measured = first_round(_process(name), [_ZEROS] * 2).measurements
  expected = _expected(**_MEANS[name][1])
  assert Mechanism.from_json(measured[MECHANISM]) == expected
  # Everything else that is measured is public.
  assert set(measured) == {MECHANISM, *expected.public}


def _released_multiplier(record, measured):
  """Returns the noise on the sum over the clip, by what a record says."""
  if record.clipping_norm == ADAPTS:
    # Bits and values together have the multiplier of the record.
    return adaptive_noise.split_noise_multiplier(
      noise_multiplier=record.noise_multiplier,
      below_count_stddev=float(measured['bits_noise_stddev']),
    )
  if record.kind == 'distributed':
    # The record is of the least cohort, and all releases have the largest's.
    shares = record.max_clients / record.min_clients
    return record.noise_multiplier * math.sqrt(shares)
  return record.noise_multiplier


@pytest.mark.parametrize('name', _MEANS)
def test_rounds_and_tensors_have_noise_of_their_own(name):
  process = _process(name)
  rounds = [first_round(process, [_ZEROS] * 2).result for _ in range(2)]
  draws = [tensor for result in rounds for tensor in result]
  # The correlation of independent draws has a standard deviation of 0.007.
  assert np.max(np.abs(np.corrcoef(draws) - np.eye(4))) < 0.05


@pytest.mark.parametrize('name', _MEANS)
def test_the_noise_that_is_added_is_that_of_the_record(name):
  process = _process(name)
  # Whatever the cohort, where it has no bounds.
  sizes = {'shares': (2,), 'distributed': (1, 3)}.get(name, (0, 2))
  for num_clients in sizes:
    output = first_round(process, [_ZEROS] * num_clients)
    record = Mechanism.from_json(output.measurements[MECHANISM])
    norm = record.clipping_norm
    if norm == ADAPTS:
      norm = float(output.measurements['clipping_norm'])
    expected = norm * _released_multiplier(record, output.measurements)
    assert output.measurements['noise_stddev'] == pytest.approx(
      expected, rel=0.011 if name == 'distributed' else 1e-6
    )
    expected /= record.clients_per_round
    found = np.std(np.concatenate(output.result, dtype=np.float64))
    # Five standard errors of the estimate: one failure in a million runs. Noise
    # in integers is up to 1.1 % larger.
    rounding = 0.011 if name == 'distributed' else 0.0
    error = 5 / math.sqrt(2 * 40_000)
    assert 1 - error < found / expected < 1 + error + rounding


@pytest.mark.parametrize('name', _MEANS)
def test_the_clip_is_that_of_the_record(name):
  # There is next to no noise. One of the two clients sends a long update, the
  # other one that is no number.
  tensors = [np.full(4, x, np.float32) for x in (100, -100, np.nan, 100)]
  output = run(
    _MEANS[name][0](**_QUIET),
    [tensors[:2], tensors[2:]],
    tff.to_type([(np.float32, [4]), (np.float32, [4])]),
  )
  record = Mechanism.from_json(output.measurements[MECHANISM])
  norm = 0.5 if record.clipping_norm == ADAPTS else record.clipping_norm
  assert l2_norm(output.result) == pytest.approx(
    norm / record.clients_per_round, rel=1e-3
  )


def _has_record(factory):
  """Returns whether a record is among what a process measures."""
  output_type = factory.create(_VECTOR).next.type_signature.result
  return MECHANISM in tff.structure.name_list(output_type.measurements.member)


class _OwnSum(tff.aggregators.SumFactory):
  """Is a plain sum by its base class, and may do anything."""


@pytest.mark.parametrize(
  'sum_factory',
  [
    # One client moves it by ten times as much.
    aggregators.transformed_factory(
      tff.aggregators.SumFactory(), after=lambda total: 10 * total
    ),
    _OwnSum(),
  ],
)
@pytest.mark.parametrize(
  'name', ['gaussian', 'adaptive', 'correlated', 'shares']
)
def test_a_sum_of_ones_own_takes_the_record(name, sum_factory):
  assert not _has_record(_MEANS[name][0](sum_factory=sum_factory, **_NOISE))


@pytest.mark.parametrize(('z', 'is_exact'), [(2.0**-21, True), (2e-7, False)])
def test_a_sum_that_may_round_has_no_record(z, is_exact):
  # Two clients of the length c are 2^22 standard deviations, or more.
  factory = aggregators.dp_mean_factory(
    clipping_norm=0.5, noise_multiplier=z, clients_per_round=2
  )
  assert _has_record(factory) == is_exact


def _canaries():
  return canaries.Canaries(num_canaries=2, num_parameters=3, seed=0)


@pytest.mark.parametrize(
  'wrap',
  [
    lambda inner: aggregators.transformed_factory(
      inner, before=tf.sign, after=lambda x: 2 * x
    ),
    tff.aggregators.concat_factory,
  ],
)
def test_who_vouches_for_a_record_passes_it_on(wrap):
  measured = run(wrap(_dp_mean()), _ONES, _VECTOR).measurements
  assert Mechanism.from_json(measured[MECHANISM]) == _expected(public=_USUAL)


def test_products_of_canaries_are_in_the_record():
  audited = aggregators.add_canary_products(_dp_mean(), _canaries())
  measured = run(audited, _ONES, _VECTOR).measurements
  assert Mechanism.from_json(measured[MECHANISM]) == _expected(
    public=('canary_products', *_USUAL)
  )


@pytest.mark.parametrize(
  'wrap',
  [
    aggregators.add_update_norm_measurements,
    lambda inner: aggregators.difference_clipping_factory(1.0, inner),
    lambda inner: aggregators.per_layer_clipping_factory([1.0], inner),
    lambda inner: tff.aggregators.clipping_factory(1.0, inner),
    tff.aggregators.UnweightedMeanFactory,
    aggregators.realized_mean_factory,
    lambda inner: aggregators.fixed_denominator_mean_factory(2, inner),
    lambda inner: aggregators.gaussian_noise_factory(1.0, inner),
    lambda inner: aggregators.dp_mean_factory(
      clipping_norm=0.5, sum_factory=inner, **_NOISE
    ),
  ],
)
def test_nobody_else_passes_a_record_on(wrap):
  assert not _has_record(wrap(_dp_mean()))


def test_a_record_survives_weights():
  process = tff.aggregators.as_weighted_aggregator(_dp_mean()).create(
    _VECTOR, tff.TensorType(np.float32)
  )
  measured = first_round(process, _ONES, [np.float32(3.0)]).measurements
  assert Mechanism.from_json(measured[MECHANISM]) == _expected(public=_USUAL)


@pytest.mark.slow
def test_a_record_survives_the_context_of_tff():
  with tff.framework.get_context_stack().install(
    tff.backends.native.create_sync_local_cpp_execution_context()
  ):
    measured = run(_dp_mean(), _ONES, _VECTOR).measurements
  assert Mechanism.from_json(measured[MECHANISM]) == _expected(public=_USUAL)
