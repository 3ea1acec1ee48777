"""Tests of whether a round has the noise that its plan charges for."""

import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.programs.checks import noise_checks, process_checks

_VECTOR = tff.TensorType(np.float32, [2])
_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
)


def _more_noise(plan):
  """Returns a plan that a process for another one has too little noise for."""
  return dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier / 0.9)


class _ByTensor(tff.aggregators.UnweightedAggregationFactory):
  """Aggregates each tensor of a pair by a factory of its own."""

  def __init__(self, *factories):
    self._factories = factories

  def create(self, value_type):
    processes = [
      factory.create(t)
      for factory, (_, t) in zip(
        self._factories, tff.structure.iter_elements(value_type), strict=True
      )
    ]

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(tuple(p.initialize() for p in processes))

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      outputs = [p.next(state[i], value[i]) for i, p in enumerate(processes)]
      return tff.templates.MeasuredProcessOutput(
        *(
          tff.federated_zip(tuple(getattr(o, field) for o in outputs))
          for field in ('state', 'result', 'measurements')
        )
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


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
    # The test of its bits has this factory too.
    pytest.param(
      lambda z: aggregators.adaptive_dp_mean_factory(
        initial_clipping_norm=0.5, noise_multiplier=z, clients_per_round=80
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_less_noise_than_the_plans_is_refused(make):
  process = make(_PLAN.noise_multiplier).create(_VECTOR)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)]).measurements
  noise_checks.check_noise(state, metrics, _PLAN)
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, _more_noise(_PLAN))


@pytest.mark.parametrize(
  'factory',
  [
    tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(9.0, 8.0, 0.5),
    tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(1.0, 80.0),
    tff.learning.dp_aggregator(1.0, 80.0, zeroing=False),
    _ByTensor(
      aggregators.dp_mean_factory(
        clipping_norm=1.0, noise_multiplier=9.0, clients_per_round=8
      ),
      tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        9.0, 8.0, 1.0
      ),
    ),
  ],
)
def test_noise_of_tffs_factory_is_refused(factory):
  is_pair = isinstance(factory, _ByTensor)
  process = factory.create(
    tff.to_type((_VECTOR, _VECTOR)) if is_pair else _VECTOR
  )
  with pytest.raises(ValueError, match='ends at 5.7 standard deviations'):
    noise_checks.check_noise(process.initialize(), {}, _PLAN)


_SHARES_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=2,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
  sampling='fixed_size',
)


_SHARE = _SHARES_PLAN.share_parameters.share_multiplier


def _in_shares(share, sum_factory=None):
  """A mean of two clients, each with a share of the noise."""
  return aggregators.difference_clipping_factory(
    1.0,
    aggregators.fixed_denominator_mean_factory(
      2.0,
      aggregators.local_gaussian_noise_factory(
        share,
        sum_factory,
        min_clients_per_round=2,
        max_clients_per_round=2,
      ),
    ),
  )


@pytest.mark.parametrize(
  'factory',
  [
    aggregators.distributed_gaussian_mean_factory(
      clipping_norm=1.0,
      noise_multiplier=1.0,
      clients_per_round=2,
      min_clients_per_round=2,
      max_clients_per_round=2,
    ),
    pytest.param(_in_shares(_SHARE), marks=pytest.mark.slow),
    pytest.param(
      _in_shares(
        _SHARE, aggregators.secure_sum_factory(1.0, local_noise_stddev=_SHARE)
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_smaller_shares_than_the_plans_are_refused(factory):
  process = factory.create(_VECTOR)
  process_checks.check_process(process, _SHARES_PLAN)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)] * 2).measurements
  noise_checks.check_noise(state, metrics, _SHARES_PLAN)
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, _more_noise(_SHARES_PLAN))
  with pytest.raises(ValueError, match='where the noise comes in shares'):
    noise_checks.check_noise(state, metrics, _PLAN)


def test_noise_of_the_bits_is_counted():
  # The bits have so little noise that much of the budget goes to them: the
  # noise on the sum alone would do for this plan.
  plan = dataclasses.replace(_PLAN, noise_multiplier=0.9)
  process = aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=0.5,
    noise_multiplier=plan.noise_multiplier,
    clients_per_round=12,
  ).create(_VECTOR)
  state = process.initialize()
  output = process.next(state, [np.ones(2, np.float32)] * 2)
  noise_checks.check_noise(state, output.measurements, plan)
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, output.measurements, _more_noise(plan))


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


def _dp_mean(z, clipping_norm=1.0):
  return aggregators.dp_mean_factory(
    clipping_norm=clipping_norm, noise_multiplier=z, clients_per_round=8
  )


def _noise(stddev, inner=None):
  return aggregators.gaussian_noise_factory(stddev, inner)


def _clip(norm, inner):
  return aggregators.difference_clipping_factory(norm, inner)


@pytest.mark.parametrize(
  ('factory', 'multiplier'),
  [
    # A client is in both tensors.
    (_ByTensor(_dp_mean(1.0), _dp_mean(1.0)), 0.5**0.5),
    pytest.param(
      _ByTensor(_dp_mean(1.0, 2.0), _dp_mean(1.0, 0.1)),
      0.5**0.5,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _ByTensor(_dp_mean(1.5), _dp_mean(1.5)),
      1.5 * 0.5**0.5,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _ByTensor(_dp_mean(500.0), _dp_mean(0.02)), 0.02, marks=pytest.mark.slow
    ),
    pytest.param(
      _noise(1.0, _ByTensor(_clip(3.0, None), _clip(4.0, None))),
      0.2,
      marks=pytest.mark.slow,
    ),
    # One clip of both: nothing tells that they are not the same elements.
    pytest.param(
      _clip(1.0, _ByTensor(_noise(1.0), _noise(1.0))),
      0.5**0.5,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _clip(1.0, _ByTensor(_noise(1.0), _noise(0.5))),
      5.0**-0.5,
      marks=pytest.mark.slow,
    ),
    # A clip in a clip.
    pytest.param(
      _clip(1.0, _ByTensor(_dp_mean(1.0, 0.1), _dp_mean(1.0, 0.1))),
      0.5**0.5,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _clip(1.0, _ByTensor(_clip(0.3, _noise(1.0)), _noise(2.0))),
      0.34**-0.5,
      marks=pytest.mark.slow,
    ),
  ],
)
def test_parts_with_noise_of_their_own_are_one_release(factory, multiplier):
  process = factory.create(tff.to_type((_VECTOR, _VECTOR)))
  process_checks.check_process(process, _PLAN)
  state = process.initialize()
  value = (np.ones(2, np.float32), np.ones(2, np.float32))
  metrics = process.next(state, [value]).measurements
  _assert_has(metrics, state, multiplier)


def test_noise_with_no_clip_beside_a_clip_is_refused():
  process = _ByTensor(_dp_mean(9.0), _noise(9.0)).create(
    tff.to_type((_VECTOR, _VECTOR))
  )
  state = process.initialize()
  value = (np.ones(2, np.float32), np.ones(2, np.float32))
  metrics = process.next(state, [value]).measurements
  with pytest.raises(ValueError, match='found 0 times'):
    noise_checks.check_noise(state, metrics, _PLAN)


@pytest.mark.slow
def test_noise_on_noise_counts_as_both():
  process = _noise(1.0, _noise(2.0, _clip(1.0, None))).create(_VECTOR)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)]).measurements
  _assert_has(metrics, state, 5.0**0.5)


def _assert_has(metrics, state, multiplier):
  """Asserts that a round has the noise of a multiplier, and not of more."""
  enough, more = (
    dataclasses.replace(_PLAN, noise_multiplier=share * multiplier)
    for share in (1.0 - 1e-6, 1.0 + 1e-6)
  )
  noise_checks.check_noise(state, metrics, enough)
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, more)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('least', 'largest'),
  [
    (1, 12),
    (0, 11),
    (2, 2),
  ],
)
def test_shares_for_fewer_cohorts_than_the_plans_are_refused(least, largest):
  plan = privacy.PrivacyPlan(
    num_clients=24,
    clients_per_round=2,
    num_rounds=8,
    target_delta=1e-3,
    noise_multiplier=1.0,
    sampling='truncated_poisson',
    min_clients_per_round=0,
    max_clients_per_round=12,
  )
  process = aggregators.distributed_gaussian_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=5.0,
    clients_per_round=2,
    min_clients_per_round=least,
    max_clients_per_round=largest,
  ).create(_VECTOR)
  state = process.initialize()
  metrics = process.next(state, [np.ones(2, np.float32)] * 2).measurements
  with pytest.raises(ValueError, match="must have the plan's bounds of a "):
    noise_checks.check_noise(state, metrics, plan)


@pytest.mark.parametrize(('bound', 'is_enough'), [(7.05, True), (7.0, False)])
def test_a_secure_sum_that_would_clamp_the_shares_is_refused(bound, is_enough):
  # 12.1 · 0.5 of noise and a norm of 1; a factory of one's own tells no more
  # than what it measures.
  share = _SHARES_PLAN.share_parameters
  metrics = {
    'clipping_norm': 0.5 / share.share_multiplier,
    'share_noise_stddev': 0.5,
    'min_clients_per_round': share.min_clients_per_round,
    'max_clients_per_round': share.max_clients_per_round,
    'secure_sum_bound': bound - 1.0 + 0.5 / share.share_multiplier,
  }
  if is_enough:
    noise_checks.check_noise({}, metrics, _SHARES_PLAN)
    return
  with pytest.raises(ValueError, match='must leave room for the noise'):
    noise_checks.check_noise({}, metrics, _SHARES_PLAN)


@pytest.mark.slow
def test_rounding_to_integers_is_counted():
  # The norm that it leaves is 0.8 % above c, for so many elements.
  plan = dataclasses.replace(_SHARES_PLAN, noise_multiplier=3.0)
  process = aggregators.distributed_gaussian_mean_factory(
    clipping_norm=0.5,
    noise_multiplier=0.995 * plan.noise_multiplier,
    clients_per_round=2,
  ).create(tff.TensorType(np.float32, [2**18]))
  state = process.initialize()
  value = np.zeros(2**18, np.float32)
  metrics = process.next(state, [value, value]).measurements
  assert 0.5 < metrics['clipping_norm'] < 0.505
  with pytest.raises(ValueError, match='must add the noise of the plan'):
    noise_checks.check_noise(state, metrics, plan)
