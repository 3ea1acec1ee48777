"""Tests of what a private process refuses, and of the numbers of rounds.

tests/programs/kills_test.py runs TFF's own loops.
"""

import asyncio
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.programs import noised_scalar
from tff_clipping import aggregators, privacy, programs


@pytest.fixture(name='ledger')
def _ledger(tmp_path):
  with privacy.PrivacyLedger(
    tmp_path / 'ledger.jsonl', noised_scalar.plan()
  ) as ledger:
    yield ledger


def _private(ledger, process=None, **kwargs):
  settings = dict(
    sampler=programs.build_private_sampler(
      ledger.plan, noised_scalar.IDS, seed=3
    ),
    client_value=lambda client_id: np.float32(client_id == '0'),
  )
  return programs.PrivateProcess(
    process=process or noised_scalar.build_process(ledger.plan, None),
    ledger=ledger,
    store=programs.Checkpoints(ledger.path.parent / 'outcomes'),
    **settings | kwargs,
  )


def _model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
  )


def _mime(plan):
  return tff.learning.algorithms.build_unweighted_mime_lite(
    _model_fn,
    base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, **plan.aggregator_parameters._asdict()
    ),
  )


def _fed_avg(plan):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, **plan.aggregator_parameters._asdict()
    ),
  )


@pytest.mark.parametrize(
  ('build_process', 'error', 'message'),
  [
    (_mime, ValueError, '`process` must keep no second aggr'),
    (
      _fed_avg,
      TypeError,
      r'`client_value` must be given for a process that takes the data of its '
      r'clients, .*float32.*, found none',
    ),
  ],
)
def test_a_process_of_another_kind_is_refused(
  ledger, build_process, error, message
):
  process = build_process(ledger.plan)
  settings = {}
  if error is TypeError:
    settings = dict(
      client_value=programs.PrivateProcess.__dataclass_fields__[
        'client_value'
      ].default
    )
  with pytest.raises(error, match=message):
    _private(ledger, process, **settings)


def test_a_sampler_of_another_plan_is_refused(ledger):
  sampler = programs.FixedSizeSampler(
    noised_scalar.IDS, clients_per_round=8, seed=0
  )
  with pytest.raises(ValueError, match='`sampler` must be that of the ledger'):
    _private(ledger, sampler=sampler)


def test_data_in_place_of_the_number_of_a_round_are_refused(ledger):
  private = _private(ledger)
  with pytest.raises(TypeError, match='found a list: `sampler` draws the coho'):
    private.next(private.initialize(), [[np.float32(1)]])
  assert ledger.num_releases == 0


def test_a_round_in_another_thread_names_the_line_to_add(ledger):
  private = _private(ledger)
  state = private.initialize()
  with futures.ThreadPoolExecutor() as pool:
    result = pool.submit(private.next, state, 1)
    with pytest.raises(RuntimeError, match='set_default_context.* in the thr'):
      result.result()
  assert ledger.num_releases == 0


def test_the_numbers_go_on_where_they_were_saved():
  source = programs.RoundNumbers()
  numbers = source.iterator()
  assert [numbers.select(5), numbers.select()] == [1, 2]
  again = type(numbers).from_bytes(numbers.to_bytes())
  assert again.select(5) == 3
  assert source.iterator().select(5) == 1


def test_a_version_that_is_not_the_last_is_not_there(ledger):
  private = _private(ledger)
  states = programs.OutcomeStates(ledger, private.store)
  assert asyncio.run(states.get_versions()) is None
  private.next(private.initialize(), 1)
  assert asyncio.run(states.get_versions()) == [1]
  with pytest.raises(tff.program.ProgramStateNotFoundError):
    asyncio.run(states.load(2, private.initialize()))
