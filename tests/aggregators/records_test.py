"""Tests of the records of private means, and of who passes them on."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.correlated_noise import strategy_digest
from tff_clipping.mechanism import ADAPTS, MECHANISM, Mechanism
from tff_clipping.privacy.audit import canaries

_VECTOR = tff.TensorType(np.float32, [3])
_STRATEGY = privacy.blt_strategy(
  num_rounds=4, participation=privacy.Participation(min_separation=2)
)
_NOISE = dict(noise_multiplier=1.5, clients_per_round=2)


def _dp_mean(**arguments):
  return aggregators.dp_mean_factory(clipping_norm=0.5, **_NOISE, **arguments)


def _measure(factory, value_type=_VECTOR):
  process = factory.create(value_type)
  clients = [
    tff.types.structure_from_tensor_type_tree(
      lambda t: np.ones(t.shape, np.float32), value_type
    )
  ] * 2
  return process.next(process.initialize(), clients).measurements


def _expected(**fields):
  return Mechanism(
    **dict(kind='gaussian', clipping_norm=0.5, **_NOISE) | fields
  )


@pytest.mark.parametrize(
  ('factory', 'expected'),
  [
    (
      _dp_mean(),
      _expected(public=('clipping_norm', 'noise_stddev')),
    ),
    (
      _dp_mean(sum_factory=aggregators.secure_sum_factory(0.5)),
      _expected(public=('clipping_norm', 'noise_stddev')),
    ),
    (
      aggregators.adaptive_dp_mean_factory(
        initial_clipping_norm=0.5, below_count_stddev=3.0, **_NOISE
      ),
      _expected(
        clipping_norm=ADAPTS,
        public=('clipping_norm', 'noise_stddev', 'bits_noise_stddev'),
      ),
    ),
    (
      aggregators.correlated_dp_mean_factory(
        clipping_norm=0.5, strategy=_STRATEGY, **_NOISE
      ),
      _expected(
        kind='correlated',
        strategy=strategy_digest(_STRATEGY.recurrence),
        public=('clipping_norm', 'noise_stddev'),
      ),
    ),
    (
      aggregators.distributed_gaussian_mean_factory(
        clipping_norm=0.5,
        min_clients_per_round=1,
        max_clients_per_round=3,
        **_NOISE,
      ),
      _expected(
        kind='distributed',
        min_clients=1,
        max_clients=3,
        public=(
          'clipping_norm',
          'noise_stddev',
          'share_noise_stddev',
          'min_clients_per_round',
          'max_clients_per_round',
          'bits_per_client',
        ),
      ),
    ),
  ],
)
def test_each_private_mean_measures_what_it_does(factory, expected):
  measured = _measure(factory)
  found = Mechanism.from_json(measured[MECHANISM])
  assert set(found.public) >= set(expected.public)
  assert dataclasses.replace(found, public=expected.public) == expected


def _times_ten():
  """Returns a sum that moves by ten times as much as a client moves it."""

  class _TimesTen(tff.aggregators.UnweightedAggregationFactory):
    def create(self, value_type):
      inner = tff.aggregators.SumFactory().create(value_type)

      @tff.tensorflow.computation(value_type)
      def times_ten(value):
        return tf.nest.map_structure(lambda t: 10 * t, value)

      @tff.federated_computation(
        inner.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
      )
      def next_fn(state, value):
        output = inner.next(state, value)
        return tff.templates.MeasuredProcessOutput(
          output.state,
          tff.federated_map(times_ten, output.result),
          output.measurements,
        )

      return tff.templates.AggregationProcess(inner.initialize, next_fn)

  return _TimesTen()


class _OwnSum(tff.aggregators.SumFactory):
  """Is a plain sum by its base class, and may do anything."""


@pytest.mark.parametrize('sum_factory', [_times_ten(), _OwnSum()])
@pytest.mark.parametrize(
  'make',
  [
    _dp_mean,
    lambda **given: aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=0.5, below_count_stddev=3.0, **_NOISE, **given
    ),
    lambda **given: aggregators.correlated_dp_mean_factory(
      clipping_norm=0.5, strategy=_STRATEGY, **_NOISE, **given
    ),
  ],
)
def test_a_sum_of_ones_own_takes_the_record(make, sum_factory):
  assert MECHANISM not in str(
    make(sum_factory=sum_factory).create(_VECTOR).next.type_signature
  )


def _canaries():
  return canaries.Canaries(num_canaries=2, num_parameters=3, seed=0)


@pytest.mark.parametrize(
  'wrap',
  [
    lambda inner: aggregators.transformed_factory(
      inner, before=tf.sign, after=lambda x: 2 * x
    ),
    lambda inner: aggregators.add_canary_products(inner, _canaries()),
    tff.aggregators.concat_factory,
  ],
)
def test_who_vouches_for_a_record_passes_it_on(wrap):
  measured = _measure(wrap(_dp_mean()))
  assert measured[MECHANISM] == _measure(_dp_mean())[MECHANISM]


@pytest.mark.parametrize(
  'wrap',
  [
    aggregators.add_update_norm_measurements,
    lambda inner: aggregators.difference_clipping_factory(1.0, inner),
    lambda inner: aggregators.per_layer_clipping_factory([1.0], inner),
    lambda inner: tff.aggregators.clipping_factory(1.0, inner),
    tff.aggregators.UnweightedMeanFactory,
  ],
)
def test_nobody_else_passes_a_record_on(wrap):
  assert MECHANISM not in _measure(wrap(_dp_mean()))


def test_a_record_survives_weights():
  process = tff.aggregators.as_weighted_aggregator(_dp_mean()).create(
    _VECTOR, tff.TensorType(np.float32)
  )
  output = process.next(
    process.initialize(), [np.ones(3, np.float32)], [np.float32(3.0)]
  )
  assert output.measurements[MECHANISM] == _measure(_dp_mean())[MECHANISM]


@pytest.mark.slow
def test_a_record_survives_the_context_of_tff():
  process = _dp_mean().create(_VECTOR)
  value = [np.ones(3, np.float32)]
  with tff.framework.get_context_stack().install(
    tff.backends.native.create_sync_local_cpp_execution_context()
  ):
    measured = process.next(process.initialize(), value).measurements
  assert measured[MECHANISM] == _measure(_dp_mean())[MECHANISM]
