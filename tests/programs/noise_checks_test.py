"""Tests of whether a round has the noise that its plan charges for."""

import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.programs import noise_checks, process_checks

_VECTOR = tff.TensorType(np.float32, [2])
_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
)


@pytest.mark.parametrize(
  'make',
  [
    lambda z: aggregators.dp_mean_factory(
      clipping_norm=0.5, noise_multiplier=z, clients_per_round=8
    ),
    lambda z: aggregators.per_layer_clipping_factory(
      [3.0],
      aggregators.fixed_denominator_mean_factory(
        8.0, aggregators.gaussian_noise_factory(3.0 * z)
      ),
    ),
    lambda z: aggregators.smoothed_normalization_factory(
      0.1,
      aggregators.fixed_denominator_mean_factory(
        8.0, aggregators.gaussian_noise_factory(z)
      ),
    ),
    lambda z: aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=0.5, noise_multiplier=z, clients_per_round=80
    ),
    lambda z: tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      z, 8.0, 0.5
    ),
    lambda z: tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
      z, 80.0
    ),
    lambda z: tff.learning.dp_aggregator(z, 80.0, zeroing=False),
  ],
)
@pytest.mark.parametrize('share', [0.9, 1.0])
def test_less_noise_than_the_plans_is_refused(make, share):
  process = make(share * _PLAN.noise_multiplier).create(_VECTOR)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)]).measurements
  if share == 1.0:
    noise_checks.check_noise(state, metrics, _PLAN)
    return
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, _PLAN)


def test_no_noise_at_all_by_tffs_factory_is_refused():
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    0.0, 8.0, 1.0
  )
  process = factory.create(_VECTOR)
  with pytest.raises(ValueError, match='found 0 times'):
    noise_checks.check_noise(process.initialize(), {}, _PLAN)


_SHARES_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=2,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
  sampling='fixed_size',
)


@pytest.mark.parametrize('share', [0.9, 1.0])
@pytest.mark.parametrize(
  'make',
  [
    lambda z: aggregators.distributed_gaussian_mean_factory(
      clipping_norm=1.0,
      noise_multiplier=z,
      clients_per_round=2,
      min_clients_per_round=2,
      max_clients_per_round=2,
    ),
    lambda z: aggregators.difference_clipping_factory(
      1.0,
      aggregators.fixed_denominator_mean_factory(
        2.0,
        aggregators.local_gaussian_noise_factory(
          z * _SHARES_PLAN.share_parameters.share_multiplier,
          min_clients_per_round=2,
          max_clients_per_round=2,
        ),
      ),
    ),
  ],
)
def test_smaller_shares_than_the_plans_are_refused(make, share):
  process = make(share).create(_VECTOR)
  process_checks.check_process(process, _SHARES_PLAN)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)] * 2).measurements
  if share == 1.0:
    noise_checks.check_noise(state, metrics, _SHARES_PLAN)
    return
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, _SHARES_PLAN)
  with pytest.raises(ValueError, match='where the noise comes in shares'):
    noise_checks.check_noise(state, metrics, _PLAN)


@pytest.mark.parametrize('share', [0.9, 1.0])
@pytest.mark.parametrize(
  'make',
  [
    lambda z: aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=0.5, noise_multiplier=z, clients_per_round=12
    ),
    lambda z: tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
      z, 12.0
    ),
  ],
)
def test_noise_of_the_bits_is_counted(make, share):
  # The bits have so little noise that much of the budget goes to them: the
  # noise on the sum alone would do for this plan.
  plan = dataclasses.replace(_PLAN, noise_multiplier=0.9)
  process = make(share * plan.noise_multiplier).create(_VECTOR)
  state = process.initialize()
  output = process.next(state, [np.ones(2, np.float32)] * 2)
  if share == 1.0:
    noise_checks.check_noise(state, output.measurements, plan)
    noise_checks.check_noise(output.state, {}, plan)
    return
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, output.measurements, plan)


def test_a_smoothed_normalization_has_the_norm_1_behind_any_clip():
  process = aggregators.difference_clipping_factory(
    0.01,
    aggregators.smoothed_normalization_factory(
      1e-4,
      aggregators.fixed_denominator_mean_factory(
        8.0, aggregators.gaussian_noise_factory(0.01)
      ),
    ),
  ).create(_VECTOR)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)]).measurements
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, _PLAN)


@pytest.mark.parametrize(
  'metrics',
  [
    {'noise_stddev': b'much', 'clipping_norm': np.float32(1)},
    {'noise_stddev': 1.0, 'clipping_norm': [0.5, 1.0], 'name': b'median'},
    {'noise_stddev': 1.0, 'clipping_norms': np.float32(1)},
    {'clipping_norms': np.ones([2, 2]), 'norms': np.ones(5)},
    'a word',
    None,
    (),
  ],
)
def test_other_measurements_are_no_concern(metrics):
  noise_checks.check_noise({}, metrics, _PLAN)
