"""Tests of correlated noise in a loop of one's own that is killed."""

import collections
import functools
import shutil

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.privacy.correlated_noise import optimization
from tff_clipping.programs.checks import records
from tff_clipping.programs.clients import client_sampling
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints

_IDS = tuple(str(i) for i in range(12))
_NUM_ROUNDS = 9
# Where a program is killed: what is called, and whether it is done by then.
_STAGES = (
  (Checkpoints, 'save', False),
  (Checkpoints, 'save', True),
  (privacy.PrivacyLedger, 'charge', True),
)


@functools.cache
def _buffers(separation):
  return privacy.blt_strategy(
    num_rounds=_NUM_ROUNDS,
    participation=privacy.Participation(min_separation=separation),
    num_buffers=2,
  )


_STRATEGIES = {
  'banded': privacy.banded_strategy(
    num_rounds=_NUM_ROUNDS,
    participation=privacy.Participation(min_separation=4),
  ),
  'blt': _buffers(4),
}


@functools.cache
def _plan_of(name):
  return privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=12,
    clients_per_round=3,
    strategy=_STRATEGIES[name],
    target_epsilon=2.0,
    target_delta=1e-3,
    min_separation=4,
  )


@pytest.fixture(
  name='plan',
  scope='module',
  params=['banded', pytest.param('blt', marks=pytest.mark.slow)],
)
def _plan(request):
  return _plan_of(request.param)


@pytest.mark.parametrize(
  'is_same', [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_noise_of_another_strategy_with_as_many_slots_is_refused(is_same):
  # One is for clients that come back after a round, the other for single ones.
  plan = _plan_of('blt')
  process = _process(
    _buffers(4 if is_same else 1), None, plan.aggregator_parameters
  )
  output = process.next(process.initialize(), [np.zeros(5, np.float32)] * 3)
  metrics = collections.OrderedDict(aggregator=output.measurements)
  if is_same:
    assert records.check_mechanism(metrics, plan).kind == 'correlated'
    return
  with pytest.raises(ValueError, match="must have the plan's `strategy`"):
    records.check_mechanism(metrics, plan)


@functools.cache
def _process(strategy, noise_key, parameters):
  """Returns a mean of vectors with the noise of a plan."""
  return aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    strategy=strategy,
    noise_key=noise_key,
    **parameters._asdict(),
  ).create(tff.TensorType(np.float32, [5]))


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is done on the way out."""


class _Run:
  """A run that is killed and started again, and all that it released."""

  def __init__(self, folder, plan, noise_key=None):
    self.plan = plan
    self.folder = folder
    folder.mkdir(exist_ok=True)
    self._process = _process(
      plan.strategy, noise_key, plan.aggregator_parameters
    )
    self.released = collections.defaultdict(set)

  def run(self, *, until=_NUM_ROUNDS, update=0.2, ids=_IDS):
    """Runs until a round has been released, after which it is killed."""
    sampler = build_private_sampler(self.plan, ids, seed=3)
    store = Checkpoints(self.folder / 'outcomes')

    def next_fn(state, cohort):
      updates = [np.full(5, update, np.float32)] * len(cohort)
      output = self._process.next(state['noise'], updates)
      return tff.learning.templates.LearningProcessOutput(
        {'noise': output.state, 'mean': output.result},
        collections.OrderedDict(aggregator=output.measurements),
      )

    with privacy.PrivacyLedger(
      self.folder / 'ledger.jsonl', self.plan
    ) as ledger:
      try:
        initial = {
          'noise': self._process.initialize(),
          'mean': np.zeros(5, np.float32),
        }
        round_num, state = private_rounds.resume(ledger, store, initial)
        while round_num < until:
          self._release(round_num, state)
          round_num += 1
          _, output = private_rounds.run_private_round(
            next_fn, sampler, ledger, store, state=state, round_num=round_num
          )
          state = output.state
        self._release(round_num, state)
      finally:
        self.charged, self.epsilon = ledger.rounds, ledger.epsilon

  def _release(self, round_num, state):
    if round_num:
      self.released[round_num].add(state['mean'].tobytes())


def _kill_at(monkeypatch, run, stage, round_num):
  owner, name, is_done = stage
  call = getattr(owner, name)

  def killing(self, *args, **kwargs):
    is_there = any(type(arg) is int and arg == round_num for arg in args)
    if is_there and not is_done:
      raise _Killed
    result = call(self, *args, **kwargs)
    if is_there:
      raise _Killed
    return result

  with monkeypatch.context() as patch:
    patch.setattr(owner, name, killing)
    with pytest.raises(_Killed):
      run.run()


def test_a_sampler_without_a_digest_is_refused(tmp_path, plan):
  class Own(client_sampling.ClientSampler):
    charged_as = plan.sampler_parameters

    def sample(self, round_num, draw=0):
      raise AssertionError('No cohort is drawn.')

  store = Checkpoints(tmp_path / 'outcomes')
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for sampler in (Own(_IDS, seed=3), _WithoutInit(plan)):
      with pytest.raises(ValueError, match='must have the `digest` of what'):
        private_rounds.run_private_round(
          lambda state, cohort: None,
          sampler,
          ledger,
          store,
          state=(),
          round_num=1,
        )
    assert not ledger.rounds


class _WithoutInit:
  """A sampler that is no `ClientSampler`."""

  def __init__(self, plan):
    self.charged_as = plan.sampler_parameters


def test_a_killed_run_releases_what_one_that_never_stopped_does(
  tmp_path, plan, monkeypatch
):
  whole = _Run(tmp_path / 'whole', plan, noise_key=(1, 2))
  whole.run()
  killed = _Run(tmp_path / 'killed', plan, noise_key=(1, 2))
  for round_num, stage in enumerate([*_STAGES, *_STAGES], start=1):
    _kill_at(monkeypatch, killed, stage, round_num)
    killed.run(until=round_num)
  killed.run()
  assert killed.charged == [*range(1, _NUM_ROUNDS + 1)]
  assert killed.epsilon == plan.epsilon <= 2.0
  assert killed.released == whole.released


def test_each_round_is_released_with_one_noise(tmp_path, plan, monkeypatch):
  run = _Run(tmp_path / 'run', plan)
  for round_num, stage in enumerate([*_STAGES, *_STAGES], start=1):
    _kill_at(monkeypatch, run, stage, round_num)
  run.run()
  assert run.charged == [*range(1, _NUM_ROUNDS + 1)]
  assert all(len(looks) == 1 for looks in run.released.values())


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_with_the_plan_of_its_ledger(
  tmp_path, monkeypatch
):
  settings = dict(
    num_clients=12,
    clients_per_round=3,
    target_epsilon=2.0,
    target_delta=1e-3,
    min_separation=4,
  )

  def find_plan(folder):
    """Returns the plan as a program would that is started anew."""
    plan = privacy.read_plan(folder, num_rounds=_NUM_ROUNDS, **settings)
    if plan is not None:
      return plan
    return privacy.CorrelatedNoisePlan.from_target_epsilon(
      strategy=privacy.banded_strategy(
        num_rounds=_NUM_ROUNDS,
        participation=privacy.Participation(min_separation=4),
      ),
      **settings,
    )

  for name in ('whole', 'moved'):
    (tmp_path / name).mkdir()
  whole = _Run(tmp_path / 'whole', find_plan(tmp_path / 'whole'), (1, 2))
  whole.run()
  moved = _Run(tmp_path / 'moved', find_plan(tmp_path / 'moved'), (1, 2))
  moved.run(until=5)
  _kill_at(monkeypatch, moved, _STAGES[1], 6)
  minimize = optimization._minimize

  def minimize_elsewhere(*args):
    point, loss = minimize(*args)
    return np.nextafter(point, 1), loss

  monkeypatch.setattr(optimization, '_minimize', minimize_elsewhere)
  anew = find_plan(tmp_path)  # There is no ledger.
  assert anew.strategy != moved.plan.strategy
  # A process that was made with it is not that of the ledger.
  other = _Run(tmp_path / 'moved', anew, (1, 2))
  with pytest.raises(ValueError, match='privacy.read_plan'):
    other.run()
  # Nor with the strategy alone.
  other.plan = moved.plan
  with pytest.raises(ValueError, match='one that was optimised anew is anothe'):
    other.run()
  there = _Run(tmp_path / 'moved', find_plan(tmp_path / 'moved'), (1, 2))
  assert there.plan == moved.plan
  there.run()
  assert there.charged == [*range(1, _NUM_ROUNDS + 1)]
  assert {**moved.released, **there.released} == whole.released
  with pytest.raises(ValueError, match='`target_epsilon` is 3 and was 2'):
    privacy.read_plan(tmp_path / 'moved', target_epsilon=3)


def test_clients_in_another_order_are_refused(tmp_path, plan):
  run = _Run(tmp_path / 'run', plan)
  run.run(until=4)
  with pytest.raises(ValueError, match='the same `client_ids` in the same ord'):
    run.run(ids=_IDS[::-1])
  assert run.charged == [1, 2, 3, 4]
  run.run()
  assert run.charged == [*range(1, _NUM_ROUNDS + 1)]


def test_an_older_disk_ends_the_run(tmp_path, plan):
  run = _Run(tmp_path / 'run', plan)
  run.run(until=3)
  shutil.copytree(tmp_path / 'run' / 'outcomes', tmp_path / 'backup')
  run.run(until=4)
  shutil.rmtree(tmp_path / 'run' / 'outcomes')
  shutil.copytree(tmp_path / 'backup', tmp_path / 'run' / 'outcomes')
  with pytest.raises(privacy.RoundChargedError, match='the run ends'):
    run.run()
  assert run.charged == [1, 2, 3, 4]
  assert all(len(looks) == 1 for looks in run.released.values())


def test_the_state_of_another_run_is_refused(tmp_path, plan):
  """What it keeps of earlier noises would be in the releases of both."""
  run = _Run(tmp_path / 'run', plan)
  run.run(until=2)
  with privacy.PrivacyLedger(tmp_path / 'run' / 'ledger.jsonl', plan) as ledger:
    _, state = private_rounds.resume(
      ledger,
      Checkpoints(tmp_path / 'run' / 'outcomes'),
      {'noise': run._process.initialize(), 'mean': np.zeros(5, np.float32)},
    )
  with (
    privacy.PrivacyLedger(tmp_path / 'other.jsonl', plan) as ledger,
    pytest.raises(ValueError, match='`state` must be that before round 1'),
  ):
    private_rounds.run_private_round(
      lambda state, cohort: None,
      build_private_sampler(plan, _IDS, seed=4),
      ledger,
      Checkpoints(tmp_path / 'other'),
      state=state,
      round_num=1,
    )
