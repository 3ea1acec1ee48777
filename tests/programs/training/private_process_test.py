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


def _private(ledger, noise_key='drawn', **kwargs):
  return programs.PrivateProcess(
    noised_scalar.build_process(ledger.plan, noise_key),
    programs.build_private_sampler(ledger.plan, noised_scalar.IDS, seed=3),
    ledger,
    client_value=lambda client_id: np.float32(client_id == '0'),
    **kwargs,
  )


def _run_by_hand(private, state, num_rounds=_NUM_ROUNDS):
  """Returns the state after rounds of `run_private_round`, from a state."""
  for round_num in range(1, num_rounds + 1):
    _, output = programs.run_private_round(
      lambda state, cohort: private.process.next(
        state, [private.client_value(c) for c in cohort]
      ),
      private.sampler,
      private.ledger,
      state=state,
      round_num=round_num,
    )
    state = output.state
  return state


def _weight(private, state):
  return float(private.process.get_model_weights(state).trainable[0])


@pytest.mark.slow
def test_run_training_process_charges_each_round_and_repeats_after_a_kill(
  tmp_path, ledger
):
  private = _private(ledger)
  released = tff.program.MemoryReleaseManager()
  states = tff.program.FileProgramStateManager(tmp_path / 'states')

  def select(round_num):
    if round_num == killed_in:
      raise _Killed
    return round_num

  def run():
    return tff.simulation.run_training_process(
      private,
      select,
      total_rounds=_NUM_ROUNDS,
      metrics_managers=[released],
      program_state_manager=states,
      rounds_per_saving_program_state=10,
    )

  asyncio.set_event_loop(asyncio.new_event_loop())
  killed_in = 3
  with pytest.raises(_Killed):
    run()
  assert ledger.rounds == [1, 2]
  before = dict(released.values())
  killed_in = None
  state = run()
  # Rounds 1 and 2 were run again from the initial state, at no cost.
  assert ledger.rounds == [1, 2, 3]
  initial = asyncio.run(states.load(0, private.initialize()))
  assert _weight(private, state) == _weight(
    private, _run_by_hand(private, initial)
  )
  assert ledger.rounds == [1, 2, 3]
  metrics = dict(released.values())
  assert metrics.keys() == {1, 2, 3}
  for round_num, row in before.items():
    row.pop('training_time_in_seconds')
    assert row.items() <= metrics[round_num].items()


@pytest.mark.slow
def test_train_model_charges_each_round_and_goes_on(tmp_path, ledger):
  class AsyncContext(tff.framework.AsyncContext):
    async def invoke(self, comp, arg):
      return runtime.InProcessContext().invoke(comp, arg)

  private = _private(ledger, context=runtime.InProcessContext())
  initial = private.initialize()
  models = tff.program.MemoryReleaseManager()
  states = tff.program.FileProgramStateManager(tmp_path / 'states')

  def run(num_rounds):
    context = tff.program.NativeFederatedContext(AsyncContext())
    with tff.framework.get_context_stack().install(context):
      asyncio.run(
        tff.learning.programs.train_model(
          train_process=private,
          initial_train_state=initial,
          train_data_source=programs.RoundNumbers(),
          train_per_round_clients=8,
          train_total_rounds=num_rounds,
          program_state_manager=states,
          model_output_manager=models,
          evaluation_manager=None,
          evaluation_periodicity=1,
        )
      )

  run(1)
  assert ledger.rounds == [1]
  run(_NUM_ROUNDS)
  assert ledger.rounds == [1, 2, 3]
  state = models.values()[f'training_checkpoint_round_{_NUM_ROUNDS}']
  assert _weight(private, state) == _weight(
    private, _run_by_hand(private, initial)
  )
  assert ledger.rounds == [1, 2, 3]


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
    client_value=lambda client_id: data,
  )
  given = private.next(state, 1).metrics
  assert set(given) == {
    'aggregator/clipping_norm',
    'aggregator/clipping/mean_value/noise_stddev',
    'finalizer/update_non_finite',
  }


def test_a_process_that_the_plan_does_not_charge_for_is_refused(ledger):
  process = _fed_avg(aggregators.clipped_mean_factory(clipping_norm=1.0))
  with pytest.raises(ValueError, match='`process` must add noise'):
    programs.PrivateProcess(process, _private(ledger).sampler, ledger)


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
    programs.PrivateProcess(_private(ledger).process, sampler, ledger)
  assert ledger.num_releases == 0
