"""Tests of what a process must be like for a ledger."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs import process_checks

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


def _model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(2)]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 2])),
  )


def test_fed_avg_is_taken_in_all_its_forms():
  for process in (
    tff.learning.algorithms.build_unweighted_fed_avg(
      _model_fn,
      tff.learning.optimizers.build_sgdm(0.1),
      tff.learning.optimizers.build_adam(0.1),
      model_aggregator=_independent(),
    ),
    learning.build_fed_avg(
      _model_fn,
      local_steps=1,
      batch_size=1,
      client_learning_rate=0.1,
      model_aggregator=_independent(),
      measure_updates=True,
    ),
  ):
    process_checks.check_process(process, _PLAN)


def test_a_second_aggregate_without_noise_is_refused():
  process = tff.learning.algorithms.build_unweighted_mime_lite(
    _model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9),
    model_aggregator=_independent(),
  )
  with pytest.raises(ValueError, match='`process` must keep no second aggreg'):
    process_checks.check_process(process, _PLAN)


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_noise_on_something_else_than_the_updates_is_none(momentum):
  process = tff.learning.algorithms.build_unweighted_mime_lite(
    _model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, momentum),
    model_aggregator=tff.aggregators.UnweightedMeanFactory(),
    full_gradient_aggregator=_independent(),
  )
  with pytest.raises(ValueError, match='`process` must add noise'):
    process_checks.check_process(process, _PLAN)


def test_zeroing_by_exact_norms_is_refused():
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=tff.learning.dp_aggregator(1.0, 80.0),
  )
  with pytest.raises(ValueError, match='`process` must not adapt a norm'):
    process_checks.check_process(process, _PLAN)
