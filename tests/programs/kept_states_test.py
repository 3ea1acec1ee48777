"""Tests of training programs whose clients keep something."""

import collections

import numpy as np
import pytest

from tests.learning import linear_models
from tests.programs import small_program
from tff_clipping import learning
from tff_clipping.programs.clients.client_sampling import PoissonSampler
from tff_clipping.programs.clients.client_states import (
  ClientStates,
  DamagedStatesError,
)
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.training_program import TrainingProgram


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return linear_models.write_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def process(store):
  return learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=2,
    batch_size=4,
    client_learning_rate=0.05,
    local_step=learning.steps.Scaffold(2 / 3),
    client_store=store,
  )


def _sampler(store, seed=3):
  return PoissonSampler(store.client_ids, sampling_prob=2 / 3, seed=seed)


def _program(folder, process, store, num_rounds, **settings):
  return TrainingProgram(
    process=process,
    num_rounds=num_rounds,
    evaluate=lambda weights: dict(test_accuracy=0.5, test_loss=1.0),
    checkpoints=Checkpoints(folder / 'checkpoints', keep=2),
    **dict(
      sampler=_sampler(store),
      client_states=ClientStates(folder / 'states', process, store.client_ids),
      rounds_per_checkpoint=1,
    )
    | settings,
  )


def _by_hand(process, store, num_rounds):
  """Returns the model and what clients keep, without a program."""
  state, kept, sampler = process.initialize(), {}, _sampler(store)
  zeros = [np.zeros([3, 1], np.float32)]
  for round_num in range(1, num_rounds + 1):
    cohort = sampler.sample(round_num)
    output = process.next(
      state,
      [
        collections.OrderedDict(client=each, kept=kept.get(each, zeros))
        for each in cohort
      ],
    )
    state = output.state
    (values,) = output.metrics['client_work']['kept']
    kept.update({e: [v] for e, v in zip(cohort, values, strict=True)})
  return process.get_model_weights(state).trainable[0], kept


def _check(folder, process, store, result, num_rounds):
  model, kept = _by_hand(process, store, num_rounds)
  np.testing.assert_array_equal(
    process.get_model_weights(result.state).trainable[0], model
  )
  states = ClientStates(folder / 'states', process, store.client_ids)
  outcome = Checkpoints(folder / 'checkpoints').latest()
  states.resume(outcome.round_num, outcome.id)
  for each, (value,) in kept.items():
    np.testing.assert_array_equal(states.read(each, num_rounds + 1)[0], value)


@pytest.mark.slow
def test_a_program_keeps_what_clients_keep(tmp_path, process, store):
  result = _program(tmp_path, process, store, 6).run()
  _check(tmp_path, process, store, result, 6)


@pytest.mark.parametrize('rounds_per_checkpoint', [1, 4])
@pytest.mark.slow
def test_a_program_that_goes_on_has_the_same_bits(
  tmp_path, process, store, rounds_per_checkpoint
):
  class Failed(Exception):
    pass

  def fail(metrics):
    if metrics['round_num'] == 3:
      raise Failed

  settings = dict(rounds_per_checkpoint=rounds_per_checkpoint)
  with pytest.raises(Failed):
    # The states of round 3 are written; of the checkpoints, that of round 0 or
    # round 3 is the last.
    _program(tmp_path, process, store, 6, should_stop=fail, **settings).run()
  assert (tmp_path / 'states' / 'round_3').is_dir()
  assert Checkpoints(tmp_path / 'checkpoints').rounds()[-1] == (
    3 if rounds_per_checkpoint == 1 else 0
  )
  result = _program(tmp_path, process, store, 6, **settings).run()
  _check(tmp_path, process, store, result, 6)


@pytest.mark.slow
def test_a_damaged_checkpoint_goes_back_with_what_clients_kept(
  tmp_path, process, store
):
  _program(tmp_path, process, store, 4).run()
  (path,) = (tmp_path / 'checkpoints').glob('*round_4.state')
  path.write_bytes(b'{}')
  result = _program(tmp_path, process, store, 5).run()
  _check(tmp_path, process, store, result, 5)


def test_states_of_another_run_are_refused(tmp_path, process, store):
  _program(tmp_path / 'a', process, store, 2).run()
  # Of other cohorts.
  sampler = _sampler(store, seed=4)
  _program(tmp_path / 'b', process, store, 3, sampler=sampler).run()
  other = ClientStates(tmp_path / 'b' / 'states', process, store.client_ids)
  with pytest.raises(DamagedStatesError, match='checkpoint of round 2'):
    _program(tmp_path / 'a', process, store, 4, client_states=other).run()
  with pytest.raises(DamagedStatesError, match='are of another run'):
    _program(tmp_path / 'c', process, store, 4, client_states=other).run()


def test_states_are_given_where_clients_keep_something(
  tmp_path, process, store
):
  with pytest.raises(ValueError, match='must be given .* found none'):
    _program(tmp_path, process, store, 1, client_states=None)
  with pytest.raises(TypeError, match='must be `ClientStates`, found str'):
    _program(tmp_path, process, store, 1, client_states='states')
  states = ClientStates(tmp_path / 'states', process, store.client_ids)
  with pytest.raises(ValueError, match='for no other, found some'):
    small_program.program(tmp_path, client_states=states)
