"""Tests of a private process inside of TFF's own loops."""

import asyncio
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.programs import noised_scalar
from tff_clipping import aggregators, privacy, programs, runtime

_NUM_ROUNDS = 3


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill."""


@pytest.fixture
def ledger(tmp_path):
  with privacy.PrivacyLedger(
    tmp_path / 'ledger.jsonl', noised_scalar.plan()
  ) as ledger:
    yield ledger


def _private(ledger, **kwargs):
  return programs.PrivateProcess(
    noised_scalar.build_process(ledger.plan, None),
    programs.build_private_sampler(ledger.plan, noised_scalar.IDS, seed=3),
    ledger,
    _store(ledger),
    client_value=lambda client_id: np.float32(client_id == '0'),
    **kwargs,
  )


def _store(ledger):
  return programs.Checkpoints(ledger.path.parent / 'outcomes')


def _weight(private, state):
  return float(private.process.get_model_weights(state).trainable[0])


def _kill_at(monkeypatch, stage, round_num):
  """Makes a program be killed at a stage of a round."""
  owner, name, is_done = {
    'before the outcome': (programs.Checkpoints, 'save', False),
    'before the charge': (programs.Checkpoints, 'save', True),
    'before the release': (privacy.PrivacyLedger, 'charge', True),
  }[stage]
  call = getattr(owner, name)

  def killing(self, *args, **kwargs):
    is_there = any(type(arg) is int and arg == round_num for arg in args)
    if is_there and not is_done:
      raise _Killed
    result = call(self, *args, **kwargs)
    if is_there:
      raise _Killed
    return result

  monkeypatch.setattr(owner, name, killing)


def _simulate(ledger):
  """Runs `tff.simulation.run_training_process`; returns the last weight."""
  private = _private(ledger)
  asyncio.set_event_loop(asyncio.new_event_loop())
  state = tff.simulation.run_training_process(
    private,
    lambda round_num: round_num,
    total_rounds=_NUM_ROUNDS,
    program_state_manager=programs.OutcomeStates(ledger, private.store),
  )
  return _weight(private, state)


class _AsyncContext(tff.framework.AsyncContext):
  """Runs computations in this process, for `tff.program`."""

  async def invoke(self, comp, arg):
    return runtime.InProcessContext().invoke(comp, arg)


def _train(ledger):
  """Runs `train_model`; returns the weight of the last outcome."""
  private = _private(ledger, context=runtime.InProcessContext())
  context = tff.program.NativeFederatedContext(_AsyncContext())
  with tff.framework.get_context_stack().install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=private,
        train_data_source=programs.RoundNumbers(),
        train_per_round_clients=8,
        train_total_rounds=_NUM_ROUNDS,
        program_state_manager=programs.OutcomeStates(ledger, private.store),
        model_output_manager=tff.program.MemoryReleaseManager(),
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  # It releases no model when it begins after the last round.
  round_num, state = private.resume()
  assert round_num == _NUM_ROUNDS
  return _weight(private, state)


@pytest.mark.slow
@pytest.mark.parametrize('loop', [_simulate, _train])
@pytest.mark.parametrize(
  'stage', ['before the outcome', 'before the charge', 'before the release']
)
def test_a_kill_costs_a_loop_of_tff_no_round_and_no_epsilon(
  tmp_path, monkeypatch, loop, stage
):
  path, plan = tmp_path / 'ledger.jsonl', noised_scalar.plan()
  for round_num in range(1, _NUM_ROUNDS + 1):
    with monkeypatch.context() as patch:
      _kill_at(patch, stage, round_num)
      with privacy.PrivacyLedger(path, plan) as ledger:
        with pytest.raises(_Killed):
          loop(ledger)
  with privacy.PrivacyLedger(path, plan) as ledger:
    weight = loop(ledger)
    assert ledger.releases[0].draw == 0
    assert ledger.rounds == [1, 2, 3]
  # A start after the last round runs nothing, and has the same model.
  with privacy.PrivacyLedger(path, plan) as ledger:
    assert loop(ledger) == weight
    assert ledger.rounds == [1, 2, 3]


@pytest.mark.slow
def test_a_loop_of_tff_that_discards_rounds_is_refused(ledger):
  private = _private(ledger, context=runtime.InProcessContext())
  context = tff.program.NativeFederatedContext(_AsyncContext())
  with (
    tff.framework.get_context_stack().install(context),
    pytest.raises(privacy.RoundChargedError, match='`round_num` must be 2'),
  ):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=private,
        train_data_source=programs.RoundNumbers(),
        train_per_round_clients=8,
        train_total_rounds=_NUM_ROUNDS,
        should_discard_round=lambda output: True,
        program_state_manager=programs.OutcomeStates(ledger, private.store),
        model_output_manager=tff.program.MemoryReleaseManager(),
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  assert ledger.rounds == [1]


def test_the_numbers_go_on_where_they_were_saved():
  source = programs.RoundNumbers()
  numbers = source.iterator()
  assert [numbers.select(5), numbers.select()] == [1, 2]
  again = type(numbers).from_bytes(numbers.to_bytes())
  assert again.select(5) == 3
  assert source.iterator().select(5) == 1


def _model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
  )


def _fed_avg(model_aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=model_aggregator,
  )


@pytest.mark.slow
def test_exact_metrics_are_not_given_back(tmp_path, ledger):
  process = _fed_avg(
    aggregators.dp_mean_factory(
      clipping_norm=1.0, **ledger.plan.aggregator_parameters._asdict()
    )
  )
  ones = tf.ones([1, 1])
  data = tf.data.Dataset.from_tensors((ones, ones))
  state = process.initialize()
  exact = process.next(state, [data]).metrics
  assert exact['client_work']['train']['num_examples'] == 1
  private = programs.PrivateProcess(
    process,
    _private(ledger).sampler,
    ledger,
    _store(ledger),
    client_value=lambda client_id: data,
  )
  given = private.next(state, 1).metrics
  assert set(given) == {
    'aggregator/clipping_norm',
    'aggregator/noise_stddev',
  }
  assert not ledger.caveats


def test_a_process_that_keeps_another_aggregate_is_refused(ledger):
  process = tff.learning.algorithms.build_unweighted_mime_lite(
    _model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, **ledger.plan.aggregator_parameters._asdict()
    ),
  )
  with pytest.raises(ValueError, match='`process` must keep no second aggr'):
    programs.PrivateProcess(
      process, _private(ledger).sampler, ledger, _store(ledger)
    )


def test_a_round_in_another_thread_names_the_line_to_add(ledger):
  private = _private(ledger)
  state = private.initialize()
  with futures.ThreadPoolExecutor() as pool:
    result = pool.submit(private.next, state, 1)
    with pytest.raises(RuntimeError, match='set_default_context.* in the thr'):
      result.result()
  assert ledger.num_releases == 0


def test_a_sampler_of_another_plan_is_refused(ledger):
  sampler = programs.FixedSizeSampler(
    noised_scalar.IDS, clients_per_round=8, seed=0
  )
  with pytest.raises(ValueError, match='`sampler` must be that of the ledger'):
    programs.PrivateProcess(
      _private(ledger).process, sampler, ledger, _store(ledger)
    )
  assert ledger.num_releases == 0
