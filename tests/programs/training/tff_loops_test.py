"""Tests of what a private process refuses, and of the numbers of rounds.

tests/programs/kills_test.py runs TFF's own loops.
"""

import asyncio
from concurrent import futures

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.programs import noised_scalar, small_program
from tff_clipping import aggregators, learning, privacy, programs


@pytest.fixture(name='ledger')
def _ledger(tmp_path):
  with privacy.PrivacyLedger(
    tmp_path / 'ledger.jsonl', noised_scalar.plan()
  ) as ledger:
    yield ledger


def _private(ledger, process=None, **kwargs):
  return programs.PrivateProcess(
    process or noised_scalar.build_process(ledger.plan, None),
    programs.build_private_sampler(ledger.plan, noised_scalar.IDS, seed=3),
    ledger,
    programs.Checkpoints(ledger.path.parent / 'outcomes'),
    **kwargs or dict(client_value=np.float32),
  )


def _build_scaffold(model_fn, local_step, model_aggregator):
  return learning.build_fed_avg(
    model_fn,
    local_steps=1,
    batch_size=1,
    client_learning_rate=0.1,
    local_step=local_step,
    model_aggregator=model_aggregator,
  )


@pytest.mark.parametrize(
  ('build_process', 'optimizer', 'error', 'message'),
  [
    (
      tff.learning.algorithms.build_unweighted_mime_lite,
      tff.learning.optimizers.build_sgdm(0.1, 0.9),
      ValueError,
      '`process` must keep no second aggr',
    ),
    # It takes data, and would be given ids.
    (
      tff.learning.algorithms.build_unweighted_fed_avg,
      tff.learning.optimizers.build_sgdm(0.1),
      TypeError,
      '`client_value` must be .*float32',
    ),
    (
      _build_scaffold,
      learning.steps.Scaffold(0.5),
      ValueError,
      '`process` must have clients that keep nothing .*`client_states`',
    ),
  ],
)
def test_what_takes_more_or_something_else_is_refused(
  ledger, build_process, optimizer, error, message
):
  process = build_process(
    small_program.model_fn,
    optimizer,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, **ledger.plan.aggregator_parameters._asdict()
    ),
  )
  with pytest.raises(error, match=message):
    _private(ledger, process, context=None)


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


def test_a_run_whose_outcomes_are_lost_begins_anew_as_its_error_says(ledger):
  private = _private(ledger)
  private.next(private.initialize(), 1)
  for path in private.store.folder.iterdir():
    path.unlink()
  states = programs.OutcomeStates(ledger, private.store)
  with pytest.raises(programs.StorageError, match='with `start_over=True`'):
    asyncio.run(states.get_versions())
  states = programs.OutcomeStates(ledger, private.store, start_over=True)
  assert asyncio.run(states.get_versions()) is None
  private.next(private.initialize(), 1)
  assert asyncio.run(states.get_versions()) == [1]
  assert [release.draw for release in ledger.releases] == [0, 1]
