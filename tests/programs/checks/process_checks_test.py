"""Tests of what no record of an aggregator can say of a process."""

import collections
import dataclasses
import types

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tests.programs import noised_scalar, small_program
from tests.programs.counted_rounds import Output
from tff_clipping import aggregators, learning, privacy
from tff_clipping.programs.checks import process_checks

_PLAN = privacy.PrivacyPlan(**noised_scalar.UNIT_NOISE)


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


def _check_work(**kept):
  state = tff.StructWithPythonType([('client_work', kept)], dict)
  process_checks.check_process(
    types.SimpleNamespace(
      state_type=tff.FederatedType(state, tff.SERVER), next=None
    ),
    _PLAN,
  )


@pytest.mark.parametrize(
  'dtype',
  [np.float32, ml_dtypes.bfloat16, np.complex64, np.int32, np.bool_, np.str_],
)
@pytest.mark.parametrize('name', ['kept', 'previous_model'])
def test_work_that_keeps_a_vector_is_refused(dtype, name):
  with pytest.raises(ValueError, match='no second aggregate'):
    _check_work(**{name: tff.TensorType(dtype, [2])})


@pytest.mark.parametrize('dtype', [np.float32, np.complex64, np.bool_])
def test_work_that_keeps_a_scalar_is_refused(dtype):
  # As that of Mime does for a model of scalars.
  with pytest.raises(ValueError, match='no second aggregate'):
    _check_work(optimizer={'learning_rate': np.float32, 'accumulator': dtype})


def test_work_that_keeps_rounds_and_hyperparameters_is_not_refused():
  adam = dict.fromkeys(['learning_rate', 'beta_1', 'epsilon'], np.float32)
  _check_work(round_num=np.int32, optimizer=adam)


def _state(work, untrained=0.0):
  weights = tff.learning.models.ModelWeights([0.0], [np.float32(untrained)])
  return tff.learning.templates.LearningAlgorithmState(
    weights, distributor=(), client_work=work, aggregator=(), finalizer=()
  )


@pytest.mark.parametrize(
  'after',
  [
    _state({'round_num': 4, 'learning_rate': 0.1}, untrained=1e6),
    _state({'round_num': 1000, 'learning_rate': 0.1}),
    _state({'round_num': 4, 'learning_rate': 1e6}),
  ],
)
def test_a_round_that_changes_what_is_not_trained_is_charged_nothing(
  after, run
):
  metrics = collections.OrderedDict(aggregator=noised_scalar.measured(run.plan))
  before = _state({'round_num': 3, 'learning_rate': 0.1})
  with pytest.raises(ValueError, match='nothing is charged'):
    run.round(1, before, lambda *_: Output(after, metrics))
  assert not run.ledger.num_releases
  assert not run.store.rounds()
  counted = _state({'round_num': 4, 'learning_rate': 0.1})
  run.round(1, before, lambda *_: Output(counted, metrics))
  assert run.ledger.num_releases == 1


def _model_with(build_layer):
  return linear_models.layers_fn(
    lambda: [build_layer(), tf.keras.layers.Dense(1)], num_features=2
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
    _model_with(layer),
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=_independent(),
  )
  assert len(_untrained_warnings(process, recwarn)) == is_warned


@pytest.mark.slow
def test_frozen_layers_of_our_processes_are_not_warned_of(recwarn):
  # What steps change besides, `build_fed_avg` has refused.
  process = learning.build_fed_avg(
    _model_with(lambda: tf.keras.layers.Dense(3, trainable=False)),
    local_steps=1,
    batch_size=1,
    client_learning_rate=0.1,
    model_aggregator=_independent(),
  )
  model = process.state_type.member.global_model_weights
  assert len(model.non_trainable) == 2
  assert not _untrained_warnings(process, recwarn)
