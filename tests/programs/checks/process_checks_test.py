"""Tests of what no record of an aggregator can say of a process."""

import collections
import dataclasses

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.programs import small_program
from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs.checks import process_checks

_PLAN = privacy.PrivacyPlan(
  num_clients=24,
  clients_per_round=8,
  num_rounds=8,
  target_delta=1e-3,
  noise_multiplier=1.0,
)


def _independent():
  return aggregators.dp_mean_factory(
    clipping_norm=1.0, **_PLAN.aggregator_parameters._asdict()
  )


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


def test_what_is_no_process_is_refused():
  with pytest.raises(TypeError, match='`process` must be a `tff.learning'):
    process_checks.check_process(_independent(), _PLAN)


def test_clients_keep_something_where_it_costs_nothing():
  process = _our_fed_avg(learning.steps.Scaffold(0.5, 1.0))
  everybody = dataclasses.replace(_PLAN, num_clients=8, sampling='none')
  for plan in (_PLAN, everybody):
    process_checks.check_process(process, plan)
  fixed_size = dataclasses.replace(_PLAN, sampling='fixed_size')
  with pytest.raises(ValueError, match='keep nothing from round to round'):
    process_checks.check_process(process, fixed_size)
  # With state at the server alone.
  stock = tff.learning.algorithms.build_unweighted_fed_avg(
    small_program.model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    tff.learning.optimizers.build_adam(0.1),
    model_aggregator=_independent(),
  )
  for process in (_our_fed_avg(learning.steps.Sgd()), stock):
    process_checks.check_process(process, fixed_size)


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
