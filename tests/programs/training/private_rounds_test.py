"""Tests of a private round: saved, charged, released, and what it refuses.

The rounds are those of `counted_rounds`.
"""

import collections
import errno
import shutil
import types

import numpy as np
import pytest

from tests import processes
from tests.programs import keeping, noised_scalar
from tests.programs.counted_rounds import FIRST, Output, Run
from tff_clipping import privacy
from tff_clipping.learning.fed_avg_round import ClientWorkState
from tff_clipping.programs.clients.client_sampling import (
  FixedSizeSampler,
  build_private_sampler,
)
from tff_clipping.programs.clients.client_states import ClientStates
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.storage_errors import StorageError


@pytest.fixture(name='allocated')
def _allocated(tmp_path):
  """A run whose rounds cannot be drawn anew."""
  plan = noised_scalar.plan(sampling='random_allocation')
  run = Run(tmp_path / 'allocated', plan)
  yield run
  run.kill()


def _kill_before_the_charge(run, round_num, state, monkeypatch):
  """Lets a round be saved, and kills the program before the charge."""
  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', processes.kill)
    with pytest.raises(processes.Killed):
      run.round(round_num, state)
  run.kill()


def test_the_outcome_is_saved_before_it_is_charged(run, monkeypatch):
  events = []

  def note(owner, name):
    call = getattr(owner, name)

    def noted(self, *args, **kwargs):
      result = call(self, *args, **kwargs)
      events.append((name, len(run.ledger.releases), len(run.store.rounds())))
      return result

    monkeypatch.setattr(owner, name, noted)

  note(Checkpoints, 'save')
  note(privacy.PrivacyLedger, 'charge')
  run.rounds(2)
  assert events == [
    ('save', 0, 1), ('charge', 1, 1), ('save', 1, 2), ('charge', 2, 2)
  ]  # fmt: skip
  for outcome, release in zip(
    run.store.outcomes(), run.ledger.releases, strict=True
  ):
    assert outcome.id == release.id
    assert outcome.charge.run_id == run.ledger.run_id
  first, second = run.store.outcomes()
  assert (first.charge.after, second.charge.after) == ('', first.id)


def _full_disk(*args, **kwargs):
  raise OSError(errno.ENOSPC, 'No space left on device')


@pytest.mark.parametrize(
  ('charge', 'error', 'message'),
  [
    (processes.kill, processes.Killed, None),
    (_full_disk, StorageError, 'The ledger could not .* No space'),
  ],
)
def test_a_pending_outcome_is_charged_and_never_run_again(
  run, monkeypatch, charge, error, message
):
  state = run.rounds(1)
  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', charge)
    with pytest.raises(error, match=message):
      run.round(2, state)
  # Nor in the same process.
  with pytest.raises(privacy.RoundChargedError, match='Call .resume'):
    run.round(2, state)
  run.kill()
  run.start()
  assert run.charged() == [(1, 0)]
  assert run.resume() == (2, 2.0)
  assert run.charged() == [(1, 0), (2, 0)]
  assert run.restart() == (2, 2.0)
  assert run.charged() == [(1, 0), (2, 0)]
  assert run.num_runs == 2


def test_an_outcome_that_the_budget_refuses_is_set_aside(tmp_path, monkeypatch):
  run = Run(tmp_path / 'run', noised_scalar.plan(num_rounds=2))
  state = run.rounds(2)
  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'check_budget', lambda *args: None)
    _kill_before_the_charge(run, 3, state, monkeypatch)
  run.start()
  assert run.resume() == (2, 2.0)
  assert run.charged() == [(1, 0), (2, 0)]
  (aside,) = [name for name in run.files() if name.startswith('set_aside')]
  assert 'round_3' in aside
  with pytest.raises(privacy.BudgetExhaustedError):
    run.round(3, state)
  run.kill()


def test_a_stale_outcome_is_set_aside_and_not_released(
  run, monkeypatch, tmp_path
):
  state = run.rounds(1)
  _kill_before_the_charge(run, 2, state, monkeypatch)
  (pending,) = run.store.folder.glob('*round_2.state')
  shutil.move(pending, tmp_path / pending.name)
  assert run.restart() == (1, 1.0)
  run.round(2, state)
  shutil.move(
    tmp_path / pending.name, run.store.folder / '00000009_round_2.state'
  )
  assert run.restart() == (2, 3.0)
  assert run.charged() == [(1, 0), (2, 0)]
  assert sum(name.startswith('set_aside') for name in run.files()) == 1


def test_two_pending_outcomes_are_refused(run, monkeypatch):
  state = run.rounds(1)
  copy = run.folder / 'copy'
  _kill_before_the_charge(run, 2, state, monkeypatch)
  shutil.copytree(run.store.folder, copy)
  (run.store.folder / '00000002_round_2.state').unlink()
  assert run.restart() == (1, 1.0)
  _kill_before_the_charge(run, 2, state, monkeypatch)
  shutil.copy(
    copy / '00000002_round_2.state',
    run.store.folder / '00000003_round_2.state',
  )
  before = run.files()
  run.start()
  with pytest.raises(StorageError, match='Nobody may choose'):
    run.resume()
  assert run.files() == before
  assert run.charged() == [(1, 0)]


@pytest.mark.parametrize('times', [0, 1, 2])
def test_a_line_that_was_cut_short_takes_the_pending_id(
  run, monkeypatch, times
):
  state = run.rounds(1)
  _kill_before_the_charge(run, 2, state, monkeypatch)
  for _ in range(times):
    # The second time while the first is mended.
    with open(run.folder / 'ledger.jsonl', 'ab') as file:
      file.write(b'{"line":')
    run.start()
    run.kill()
  run.start()
  assert len(run.ledger.releases) == 1 + times
  assert run.resume() == (2, 2.0)
  # Each line counts as a release; none of the outcome is lost or run again.
  extra = [(None, None)] * (times - 1)
  assert run.charged() == [(1, 0), *extra, (2, 0)]
  assert run.num_runs == 2
  assert run.restart() == (2, 2.0)
  run.round(3, np.float32(2))
  assert run.charged()[-1] == (3, len(extra))


def test_a_line_that_was_cut_short_counts_where_its_outcome_is_lost(run):
  state = run.rounds(1)
  run.kill()
  with open(run.folder / 'ledger.jsonl', 'ab') as file:
    file.write(b'{"line":3,"kind":"release"')
  run.start()
  assert run.resume() == (1, 1.0)
  run.round(2, state)
  # The line may have been of round 2: its cohort is another one.
  assert run.charged() == [(1, 0), (None, None), (2, 1)]
  assert run.cohorts[-1] == tuple(run.sampler.sample(2, 1))
  assert all(release.id for release in run.ledger.releases)
  assert run.restart() == (2, 2.0)


def test_a_second_draw_that_was_killed_is_charged_by_its_id(
  run, tmp_path, monkeypatch
):
  # The number of its round is charged already, and its id is not.
  run.rounds(2)
  shutil.copytree(run.store.folder, tmp_path / 'backup')
  run.round(3, np.float32(2))
  run.kill()
  shutil.rmtree(run.store.folder)
  shutil.copytree(tmp_path / 'backup', run.store.folder)
  run.start()
  run.resume()
  _kill_before_the_charge(run, 3, np.float32(2), monkeypatch)
  run.start()
  assert run.charged() == [(1, 0), (2, 0), (3, 0)]
  assert run.resume() == (3, 4.0)
  assert run.charged() == [(1, 0), (2, 0), (3, 0), (3, 1)]


def _without_store(run):
  shutil.rmtree(run.store.folder)


def _stale_alone(run):
  # What is left was never charged.
  last = run.store.outcomes()[-1]
  shutil.rmtree(run.store.folder)
  Checkpoints(run.store.folder).save(
    np.float32(9), 3, charge=last.charge, outcome_id='another'
  )


def _of_another_ledger(run):
  for file in run.folder.glob('ledger.jsonl*'):
    file.unlink()


def _older_ledger(run):
  # That of round 1, as from a backup.
  for name in ('ledger.jsonl', 'ledger.jsonl.seal'):
    shutil.copy(run.folder / 'backup' / name, run.folder / name)


def _without_a_ledger(run):
  Checkpoints(run.store.folder).save(np.float32(9), 9)


@pytest.mark.parametrize(
  ('change', 'reason'),
  [
    (_without_store, 'the ledger has charged 3 releases, and no outcome of '),
    (_stale_alone, 'the ledger has charged 3 releases, and no outcome of '),
    (_of_another_ledger, 'is of another ledger'),
    (_older_ledger, 'after a release that the ledger does not have'),
    (_without_a_ledger, 'was saved without a ledger'),
  ],
)
def test_outcomes_of_another_run_are_refused_and_nothing_is_moved(
  run, change, reason
):
  state = run.rounds(1)
  (run.folder / 'backup').mkdir()
  for file in run.folder.glob('ledger.jsonl*'):
    shutil.copy(file, run.folder / 'backup')
  for round_num in (2, 3):
    state = run.round(round_num, state)
  run.kill()
  change(run)
  run.start()
  before = run.files(), run.charged()
  with pytest.raises(StorageError, match=reason):
    run.resume()
  assert (run.files(), run.charged()) == before
  # Nor does a loop go on that does not resume.
  for round_num in (1, 4):
    with pytest.raises(privacy.RoundChargedError, match='Call `resume'):
      run.round(round_num, FIRST)
  assert run.num_runs == 3


def test_a_run_without_new_draws_may_not_begin_anew(allocated):
  allocated.rounds(2)
  allocated.kill()
  shutil.rmtree(allocated.store.folder)
  allocated.start()
  with pytest.raises(StorageError, match='cannot be drawn anew'):
    allocated.resume(start_over=True)


def test_a_charged_round_is_not_run_again(run):
  state = run.rounds(2)
  for round_num in (1, 2, 4):
    with pytest.raises(
      privacy.RoundChargedError, match='`round_num` must be 3, the round after'
    ):
      run.round(round_num, state)
  assert run.charged() == [(1, 0), (2, 0)]


@pytest.mark.parametrize('num_rounds', [1, 3])
def test_an_older_state_is_refused_and_a_changed_one_is_not(run, num_rounds):
  # Else the budget is spent on models that nobody gets.
  before = run.rounds(1)
  state = before
  for round_num in range(2, 2 + num_rounds):
    state = run.round(round_num, state)
  last = 1 + num_rounds
  for older in (before, before.copy(), np.float32(before)):
    with pytest.raises(
      privacy.RoundChargedError,
      match=f'`state` must be that after round {last}, which was charged, foun',
    ):
      run.round(last + 1, older)
  assert len(run.charged()) == last
  # What is made of releases is no older state.
  run.round(last + 1, np.float32(state + 0.5))
  assert len(run.charged()) == last + 1


def test_a_round_that_changes_nothing_goes_on(run):
  # As one that TFF rejects, of an aggregator that nobody has checked.
  for round_num in (1, 2, 3):
    run.round(round_num, FIRST, lambda state, cohort: Output(state.copy(), {}))
  assert run.charged() == [(1, 0), (2, 0), (3, 0)]


def test_only_what_is_damaged_is_moved_and_only_where_the_run_goes_on(run):
  run.rounds(3)
  first, last = sorted(run.store.folder.iterdir())
  content = last.read_bytes()
  last.write_bytes(b'{}')
  run.kill()
  header = run.folder / 'ledger.jsonl'
  moved = run.folder / 'moved'
  header.rename(moved)
  (run.folder / 'ledger.jsonl.seal').rename(run.folder / 'seal')
  run.start()
  with pytest.raises(StorageError, match='of another ledger'):
    run.resume()
  assert sorted(run.store.folder.iterdir()) == [first, last]
  run.kill()
  moved.rename(header)
  (run.folder / 'seal').rename(run.folder / 'ledger.jsonl.seal')
  run.start()
  assert run.resume() == (2, 2.0)
  (aside,) = run.store.folder.glob('damaged_*')
  assert aside.read_bytes() == b'{}' != content


def test_of_two_threads_in_one_round_one_is_charged(run):
  def next_fn(state, cohort):
    # Another thread runs the round meanwhile.
    run.round(1, state)
    return run.next_fn(state, cohort)

  with pytest.raises(ValueError, match='`draw` must be the next one of round'):
    run.round(1, FIRST, next_fn)
  assert run.charged() == [(1, 0)]
  assert run.restart() == (1, 1.0)
  assert sum(name.startswith('set_aside') for name in run.files()) == 1
  run.round(2, np.float32(1))
  assert run.charged() == [(1, 0), (2, 0)]


def test_what_was_measured_and_may_be_released_is_saved(run):
  metrics = collections.OrderedDict(
    client_work=collections.OrderedDict(num_examples=np.int32(10)),
    aggregator=noised_scalar.measured(run.plan, clipped_count=np.int32(2)),
  )
  run.round(1, FIRST, lambda state, cohort: Output(state, metrics))
  (outcome,) = run.store.outcomes()
  assert outcome.released == {'aggregator/clipping_norm': 1.0}
  assert b'num_examples' not in outcome.path.read_bytes()


class _Twice(FixedSizeSampler):
  """Draws each client twice."""

  def sample(self, round_num, draw=0):
    return 2 * super().sample(round_num, draw)


def _sized(sampler_class, plan=None):
  sampler = sampler_class(noised_scalar.IDS, clients_per_round=8, seed=0)
  sampler.charged_as = plan and plan.sampler_parameters
  return sampler


@pytest.mark.parametrize(
  ('sampler', 'settings', 'error', 'message'),
  [
    (_sized(FixedSizeSampler), {}, ValueError, 'found FixedSizeSampler for no'),
    (lambda round_num: ['0'], {}, ValueError, 'found function for no plan'),
    (
      _sized(_Twice, noised_scalar.plan()),
      {},
      ValueError,
      'a client at most once in a cohort',
    ),
    (
      None,
      dict(round_num=[np.float32(1)]),
      TypeError,
      '`round_num` must be the number of the round, found a list: `sampler` dr',
    ),
    (None, dict(next_fn='process'), TypeError, 'not callable'),
    (
      None,
      dict(next_fn=lambda state, cohort: Output(state, {'a': object()})),
      TypeError,
      '`next_fn` must return values, found ',
    ),
  ],
)
def test_what_cannot_be_charged_is_refused_and_nothing_is_saved(
  run, sampler, settings, error, message
):
  run.sampler = sampler or run.sampler
  with pytest.raises(error, match=message):
    run.round(**dict(round_num=1, state=FIRST) | settings)
  assert run.num_runs == len(run.ledger.releases) == 0
  assert run.files() == []


def test_the_ledger_knows_a_seed_of_cohorts_again(tmp_path):
  seeds = []
  for place, seed in enumerate((3, 3, 4)):
    run = Run(tmp_path / str(place), seed=seed)
    run.rounds(2)
    run.kill()
    seeds.append(privacy.read_ledger(run.folder).seeds)
  assert [len(each) for each in seeds] == [1, 1, 1]
  assert seeds[0] == seeds[1] != seeds[2]


def test_other_cohorts_in_the_midst_of_a_run_are_refused(allocated):
  state = allocated.rounds(1)
  allocated.sampler = build_private_sampler(
    allocated.plan, noised_scalar.IDS, seed=4
  )
  with pytest.raises(ValueError, match='`sampler` must be that of the releas'):
    allocated.round(2, state)
  # Nor one that does not say which cohorts it draws.
  allocated.sampler = types.SimpleNamespace(
    charged_as=allocated.plan.sampler_parameters
  )
  with pytest.raises(ValueError, match='must have the `digest` of what'):
    allocated.round(2, state)


def test_an_empty_cohort_is_released_and_charged(tmp_path):
  plan = privacy.PrivacyPlan(
    num_clients=len(noised_scalar.IDS),
    clients_per_round=1,
    num_rounds=50,
    target_delta=1e-2,
    noise_multiplier=1.0,
  )
  ids = noised_scalar.IDS
  seed = next(
    seed
    for seed in range(100)
    if not build_private_sampler(plan, ids, seed=seed).sample(1)
  )
  run = Run(tmp_path / 'run', plan, seed)
  process = noised_scalar.build_process(plan, None)
  state = run.round(
    1, process.initialize(), lambda state, cohort: process.next(state, cohort)
  )
  assert run.charged() == [(1, 0)]
  assert process.get_model_weights(state).trainable[0] != 0
  run.kill()


@pytest.mark.parametrize('noise_key', [(1, 2), None])
def test_a_seed_of_the_noise_is_a_caveat_and_allows_no_new_draw(run, noise_key):
  process = noised_scalar.build_process(run.plan, noise_key)

  def next_fn(state, cohort):
    return process.next(state, [np.float32(0)] * len(cohort))

  first = process.initialize()
  run.round(1, first, next_fn)
  is_given = noise_key is not None
  assert run.ledger.caveats == (private_rounds.GIVEN_NOISE,) * is_given
  run.kill()
  shutil.rmtree(run.store.folder)
  run.start()
  private_rounds.resume(run.ledger, run.store, first, start_over=True)
  if not is_given:
    run.round(1, first, next_fn)
    assert run.charged() == [(1, 0), (1, 1)]
    return
  with pytest.raises(privacy.RoundChargedError, match='the seed of its noise'):
    run.round(1, first, next_fn)
  assert run.charged() == [(1, 0)]


def test_strings_in_a_round_are_values(run):
  # As TFF returns a tensor of strings.
  names = np.array([b'a', b'bc'], object)
  state = {'weights': FIRST, 'names': names, 'name': b'c'}
  run.round(1, FIRST, lambda *args: Output(state, {'names': names}))
  (outcome,) = run.store.outcomes()
  found = run.store.load(outcome, state)
  assert found['names'].tolist() == [b'a', b'bc']
  assert found['name'].item() == b'c'


def _keep(run, states):
  """Returns a round in which each client of the cohort keeps 1 more."""

  def next_fn(state, cohort):
    output = run.next_fn(state, cohort)
    before = [states.read(each, len(run.cohorts)) for each in cohort]
    kept = [np.stack(values) + 1 for values in zip(*before, strict=True)]
    return Output(
      output.state, dict(output.metrics, client_work=dict(kept=kept))
    )

  return next_fn


def test_what_clients_keep_goes_on_with_a_run(run, tmp_path):
  def open_states():
    return ClientStates(tmp_path / 'kept', keeping.process(), noised_scalar.IDS)

  states = open_states()
  with pytest.raises(RuntimeError, match='calls `begin` or `resume` first'):
    states.read('0', 1)
  _, state = run.resume(client_states=states)
  state = run.round(1, state, _keep(run, states), client_states=states)
  states = open_states()
  round_num, state = run.restart(client_states=states)
  assert round_num == 1
  state = run.round(2, state, _keep(run, states), client_states=states)
  first, second = run.cohorts
  for each in noised_scalar.IDS:
    _, number = states.read(each, 3)
    assert number == first.count(each) + second.count(each)
  # For clients that keep nothing, no round counts.
  with pytest.raises(ValueError, match='found some for another'):
    run.round(3, state, run.next_fn, client_states=states)
  assert run.charged() == [(1, 0), (2, 0)]
  # Another process may measure something of this name.
  run.round(3, state, _keep(run, states))


def test_what_our_clients_keep_is_not_dropped(run, tmp_path):
  states = ClientStates(tmp_path / 'k', keeping.process(), noised_scalar.IDS)
  State = collections.namedtuple('State', 'client_work')
  first, second = (State(ClientWorkState(np.int32(t), (), ())) for t in (0, 1))
  run.resume(client_states=states)

  def next_fn(state, cohort):
    return Output(second, _keep(run, states)(state, cohort).metrics)

  with pytest.raises(ValueError, match='`client_states` must .* found none'):
    run.round(1, first, next_fn)
  assert not run.charged()


def test_clients_keep_nothing_where_no_amplification_is_proved(tmp_path):
  run = Run(tmp_path / 'run', noised_scalar.plan(sampling='fixed_size'))
  states = ClientStates(tmp_path / 'k', keeping.process(), noised_scalar.IDS)
  _, state = run.resume(client_states=states)
  with pytest.raises(ValueError, match='keep nothing .* is fixed_size'):
    run.round(1, state, _keep(run, states), client_states=states)
  assert not run.cohorts
  run.kill()
