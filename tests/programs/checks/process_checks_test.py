"""Tests of what a process must be like for a ledger."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tests.programs import small_program
from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs.checks import noise_checks, process_checks

_VECTOR = tff.TensorType(np.float32, [2])
_STRATEGY = privacy.TreeStrategy(num_rounds=8)
_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
)
_CORRELATED_PLAN = privacy.CorrelatedNoisePlan(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
  strategy=_STRATEGY,
  min_separation=3,
)


def _independent():
  return aggregators.dp_mean_factory(
    clipping_norm=1.0, **_PLAN.aggregator_parameters._asdict()
  )


def _correlated():
  return aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=8,
    strategy=_STRATEGY,
  )


def _tree_of_tff():
  return tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
    noise_multiplier=1.0,
    clients_per_round=8,
    l2_norm_clip=1.0,
    record_specs=[tf.TensorSpec([2])],
  )


@pytest.mark.parametrize(
  ('make', 'plan', 'is_taken'),
  [
    (_independent, _PLAN, True),
    (_independent, _CORRELATED_PLAN, False),
    (_correlated, _PLAN, False),
    (_correlated, _CORRELATED_PLAN, True),
    (_tree_of_tff, _PLAN, False),
  ],
)
def test_noise_is_of_the_plans_kind(make, plan, is_taken):
  value_type = tff.to_type([_VECTOR]) if make is _tree_of_tff else _VECTOR
  process = make().create(value_type)
  if is_taken:
    process_checks.check_process(process, plan)
    return
  with pytest.raises(ValueError, match="`process` must have the plan's kind"):
    process_checks.check_process(process, plan)


def _clip_inside(noise):
  return aggregators.fixed_denominator_mean_factory(
    8.0, noise(aggregators.difference_clipping_factory(1.0))
  )


@pytest.mark.parametrize(
  ('plan', 'noise'),
  [
    (_PLAN, functools.partial(aggregators.gaussian_noise_factory, 40.0)),
    (
      _CORRELATED_PLAN,
      functools.partial(aggregators.correlated_noise_factory, _STRATEGY, 40.0),
    ),
  ],
)
def test_sums_that_are_rounded_are_paid_for_up_to_a_multiplier_of_32(
  plan, noise
):
  inside = _clip_inside(noise).create(_VECTOR)
  outside = aggregators.difference_clipping_factory(1.0, noise()).create(
    _VECTOR
  )
  paid, unpaid = (
    dataclasses.replace(plan, noise_multiplier=z) for z in (32.0, 32.1)
  )
  process_checks.check_process(inside, paid)
  process_checks.check_process(outside, unpaid)
  with pytest.raises(ValueError, match='`process` must clip outside of its'):
    process_checks.check_process(inside, unpaid)


def test_rounding_of_correlated_noise_is_paid_for_up_to_a_multiplier_of_32():
  process = _correlated().create(_VECTOR)
  at_most = 32.0 * _CORRELATED_PLAN.sensitivity
  process_checks.check_process(
    process,
    dataclasses.replace(_CORRELATED_PLAN, noise_multiplier=at_most * 0.999),
  )
  with pytest.raises(ValueError, match='times the sensitivity of its strategy'):
    process_checks.check_process(
      process,
      dataclasses.replace(_CORRELATED_PLAN, noise_multiplier=at_most * 1.001),
    )


@functools.cache
def _shares():
  return aggregators.distributed_gaussian_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=8,
    min_clients_per_round=8,
    max_clients_per_round=8,
  ).create(_VECTOR)


@pytest.mark.parametrize(
  ('plan', 'message'),
  [
    (_PLAN, "`sampling` must be 'truncated_poisson' or 'fixed_size'"),
    (_CORRELATED_PLAN, "`process` must have the plan's kind of noise"),
  ],
)
def test_shares_for_cohorts_without_bounds_are_refused(plan, message):
  process = _shares()
  with pytest.raises(ValueError, match=message):
    process_checks.check_process(process, plan)
  fixed = dataclasses.replace(_PLAN, sampling='fixed_size')
  process_checks.check_process(process, fixed)


@functools.cache
def _our_fed_avg(step):
  return learning.build_fed_avg(
    small_program.model_fn,
    local_steps=1,
    batch_size=1,
    client_learning_rate=0.1,
    local_step=step,
    model_aggregator=_independent(),
    measure_updates=True,
  )


@pytest.mark.slow
def test_fed_avg_is_taken_in_all_its_forms():
  for process in (
    tff.learning.algorithms.build_unweighted_fed_avg(
      small_program.model_fn,
      tff.learning.optimizers.build_sgdm(0.1),
      tff.learning.optimizers.build_adam(0.1),
      model_aggregator=_independent(),
    ),
    _our_fed_avg(learning.steps.Sgd()),
  ):
    process_checks.check_process(process, _PLAN)


@pytest.mark.parametrize(
  ('dtype', 'is_taken'),
  [
    (np.float16, False),
    (np.float32, True),
  ],
)
def test_their_clip_of_16_bits_is_refused(dtype, is_taken):
  noised = aggregators.fixed_denominator_mean_factory(
    8, aggregators.gaussian_noise_factory(1.0)
  )
  theirs, ours = (
    factory.create(tff.TensorType(dtype, [2]))
    for factory in (
      tff.aggregators.clipping_factory(1.0, noised),
      aggregators.difference_clipping_factory(1.0, noised),
    )
  )
  process_checks.check_process(ours, _PLAN)
  if is_taken:
    process_checks.check_process(theirs, _PLAN)
    return
  with pytest.raises(ValueError, match='must not clip tensors of 16 bits'):
    process_checks.check_process(theirs, _PLAN)


def test_a_second_aggregate_without_noise_is_refused():
  process = tff.learning.algorithms.build_unweighted_mime_lite(
    small_program.model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9),
    model_aggregator=_independent(),
  )
  with pytest.raises(ValueError, match='`process` must keep no second aggreg'):
    process_checks.check_process(process, _PLAN)


@pytest.mark.parametrize(
  'momentum', [pytest.param(0.0, marks=pytest.mark.slow), 0.9]
)
def test_noise_on_something_else_than_the_updates_is_none(momentum):
  process = tff.learning.algorithms.build_unweighted_mime_lite(
    small_program.model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, momentum),
    model_aggregator=tff.aggregators.UnweightedMeanFactory(),
    full_gradient_aggregator=_independent(),
  )
  with pytest.raises(ValueError, match='`process` must add noise'):
    process_checks.check_process(process, _PLAN)


def test_zeroing_by_exact_norms_is_refused():
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=tff.learning.dp_aggregator(1.0, 80.0),
  )
  with pytest.raises(ValueError, match='`process` must not vary a norm'):
    process_checks.check_process(process, _PLAN)


def _noised_sum():
  return aggregators.gaussian_noise_factory(1.0)


def _weighted_fed_avg(aggregator):
  return tff.learning.algorithms.build_weighted_fed_avg(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregator,
  )


def _unweighted_fed_avg(aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregator,
  )


@pytest.mark.parametrize(
  ('build', 'make'),
  [
    pytest.param(
      _unweighted_fed_avg,
      lambda: aggregators.difference_clipping_factory(
        1.0, tff.aggregators.UnweightedMeanFactory(_noised_sum())
      ),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _unweighted_fed_avg,
      lambda: tff.aggregators.UnweightedMeanFactory(_independent()),
      marks=pytest.mark.slow,
    ),
    (
      _weighted_fed_avg,
      lambda: tff.aggregators.MeanFactory(
        aggregators.difference_clipping_factory(1.0, _noised_sum())
      ),
    ),
    pytest.param(
      _weighted_fed_avg,
      lambda: tff.aggregators.clipping_factory(
        1.0, tff.aggregators.MeanFactory(_noised_sum())
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_a_denominator_that_is_not_public_is_refused(build, make):
  with pytest.raises(ValueError, match='must divide by a public number'):
    process_checks.check_process(build(make()), _PLAN)


def test_updates_that_nothing_clips_are_refused():
  process = aggregators.fixed_denominator_mean_factory(
    8.0, _noised_sum()
  ).create(_VECTOR)
  with pytest.raises(ValueError, match='`process` must clip what a client'):
    process_checks.check_process(process, _PLAN)


@pytest.mark.parametrize(
  'make',
  [
    lambda: aggregators.difference_clipping_factory(
      1.0, aggregators.fixed_denominator_mean_factory(8.0, _noised_sum())
    ),
    pytest.param(
      lambda: aggregators.per_layer_clipping_factory(
        [1.0], aggregators.fixed_denominator_mean_factory(8.0, _noised_sum())
      ),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda: aggregators.adaptive_dp_mean_factory(
        initial_clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=80
      ),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda: tff.aggregators.clipping_factory(
        1.0, aggregators.fixed_denominator_mean_factory(8.0, _noised_sum())
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_whoever_clips_and_noises_a_sum_is_taken(make):
  process = make().create(_VECTOR)
  process_checks.check_process(process, _PLAN)
  state = process.initialize()
  clients = [np.array(v, np.float32) for v in ([3.0, 4.0], [0.1, 0.2])]
  output = process.next(state, clients)
  noise_checks.check_noise(state, output.measurements, _PLAN)


@pytest.mark.parametrize(
  'make',
  [
    lambda: tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      1.0, 8.0, 1.0
    ),
    lambda: tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
      1.0, 80.0
    ),
    lambda: tff.learning.dp_aggregator(1.0, 80.0, zeroing=False),
  ],
)
def test_noise_whose_tails_end_is_refused(make):
  with pytest.raises(ValueError, match='tails of a normal distribution'):
    process_checks.check_process(make().create(_VECTOR), _PLAN)


def test_noise_of_another_strategy_is_refused():
  process = aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    clients_per_round=8,
    strategy=privacy.TreeStrategy(num_rounds=40),
  ).create(_VECTOR)
  with pytest.raises(ValueError, match="noise of the plan's strategy"):
    process_checks.check_process(process, _CORRELATED_PLAN)


@pytest.mark.slow
def test_state_of_the_server_is_no_clip():
  process = _unweighted_fed_avg(_independent())
  finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
    tff.learning.optimizers.build_sgdm(1.0),
    process.get_model_weights.type_signature.result,
  )

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        base=finalizer.initialize(),
        clipping_norm=tff.federated_value(np.float32(0.9), tff.SERVER),
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    *finalizer.next.type_signature.parameter[1:],
  )
  def next_fn(state, weights, update):
    output = finalizer.next(state['base'], weights, update)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(
          base=output.state, clipping_norm=state['clipping_norm']
        )
      ),
      output.result,
      output.measurements,
    )

  distributor = tff.learning.templates.build_broadcast_process(
    process.get_model_weights.type_signature.result
  )
  work = tff.learning.templates.build_model_delta_client_work(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    client_weighting=tff.learning.ClientWeighting.UNIFORM,
  )
  composed = tff.learning.templates.compose_learning_process(
    tff.tensorflow.computation(
      lambda: tff.learning.models.ModelWeights.from_model(
        small_program.model_fn()
      )
    ),
    distributor,
    work,
    tff.aggregators.as_weighted_aggregator(_independent()).create(
      tff.to_type([(np.float32, [1, 2]), (np.float32, [2])]),
      tff.TensorType(np.float32),
    ),
    tff.learning.templates.FinalizerProcess(initialize, next_fn),
  )
  process_checks.check_process(composed, _PLAN)


@pytest.mark.parametrize(
  'factory',
  [
    tff.aggregators.zeroing_factory(
      1.0,
      aggregators.fixed_denominator_mean_factory(
        8.0, aggregators.gaussian_noise_factory(1.0)
      ),
    ),
    tff.aggregators.DifferentiallyPrivateFactory(tfp.NoPrivacySumQuery()),
  ],
)
def test_what_bounds_no_norm_is_no_clip(factory):
  with pytest.raises(ValueError, match='`process` must clip what a client'):
    process_checks.check_process(factory.create(_VECTOR), _PLAN)


def test_a_tree_of_tff_is_not_of_the_plans_strategy():
  process = _tree_of_tff().create(tff.to_type([_VECTOR]))
  with pytest.raises(ValueError, match="noise of the plan's strategy"):
    process_checks.check_process(process, _CORRELATED_PLAN)


def test_clients_keep_something_where_it_costs_nothing():
  process = _our_fed_avg(learning.steps.Scaffold(0.5, 1.0))
  process_checks.check_process(process, _PLAN)
  everybody = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=8,
    clients_per_round=8,
    num_rounds=2,
    noise_multiplier=1.0,
    target_delta=1e-2,
    sampling='none',
  )
  process_checks.check_process(process, everybody)


@pytest.mark.parametrize('sampling', ['fixed_size', 'paper'])
@pytest.mark.parametrize(
  'step',
  [
    learning.steps.Scaffold(0.5, 1.0),
    pytest.param(learning.steps.FedPD(0.1), marks=pytest.mark.slow),
  ],
)
def test_clients_keep_nothing_in_cohorts_of_a_fixed_size(step, sampling):
  plan = dataclasses.replace(_PLAN, sampling=sampling)
  with pytest.raises(ValueError, match='keep nothing from round to round'):
    process_checks.check_process(_our_fed_avg(step), plan)
  process_checks.check_process(_our_fed_avg(learning.steps.Sgd()), plan)


def _model_with(layer):
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([layer, tf.keras.layers.Dense(1)]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 2]), y=tf.TensorSpec([None, 1])
    ),
  )


def _untrained_warnings(process, recwarn):
  process_checks.check_process(process, _PLAN)
  return [str(w.message) for w in recwarn if 'no client' in str(w.message)]


@pytest.mark.parametrize(
  ('layer', 'is_warned'),
  [
    (tf.keras.layers.BatchNormalization, True),
    pytest.param(
      tf.keras.layers.LayerNormalization, False, marks=pytest.mark.slow
    ),
  ],
)
def test_statistics_that_no_client_trains_are_warned_of(
  layer, is_warned, recwarn
):
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    lambda: _model_with(layer(input_shape=(2,))),
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=_independent(),
  )
  assert len(_untrained_warnings(process, recwarn)) == is_warned


@pytest.mark.slow
def test_frozen_layers_of_our_processes_are_not_warned_of(recwarn):
  # What steps change besides, `build_fed_avg` has refused.
  process = learning.build_fed_avg(
    lambda: _model_with(
      tf.keras.layers.Dense(3, trainable=False, input_shape=(2,))
    ),
    local_steps=1,
    batch_size=1,
    client_learning_rate=0.1,
    model_aggregator=_independent(),
  )
  model = process.state_type.member.global_model_weights
  assert len(model.non_trainable) == 2
  assert not _untrained_warnings(process, recwarn)
