"""Tests of rounds with correlated noise that are run again after a crash."""

import collections
import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_clipping import aggregators, privacy
from tff_clipping.privacy.correlated_noise import optimization
from tff_clipping.programs.checks import noise_checks, process_checks
from tff_clipping.programs.clients import client_sampling
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import private_rounds
from tff_clipping.runtime import environment

_IDS = tuple(str(i) for i in range(12))
_NUM_ROUNDS = 9
_ROUNDS_PER_CHECKPOINT = 3


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
  'tree': privacy.TreeStrategy(num_rounds=_NUM_ROUNDS),
}


@pytest.fixture(
  name='plan',
  scope='module',
  params=[
    'banded',
    *(pytest.param(name, marks=pytest.mark.slow) for name in ('blt', 'tree')),
  ],
)
def _plan(request):
  return privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=12,
    clients_per_round=3,
    strategy=_STRATEGIES[request.param],
    target_epsilon=2.0,
    target_delta=1e-3,
    min_separation=4,
  )


@functools.cache
def _plan_of_buffers():
  return privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=12,
    clients_per_round=3,
    strategy=_buffers(4),
    target_epsilon=2.0,
    target_delta=1e-3,
    min_separation=4,
  )


@pytest.mark.parametrize(
  'is_same', [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_noise_of_another_strategy_with_as_many_slots_is_refused(is_same):
  # One is for clients that come back after a round, the other for single ones.
  plan = _plan_of_buffers()
  process = _process(
    _buffers(4 if is_same else 1), None, plan.aggregator_parameters
  )
  process_checks.check_process(process, plan)
  state = process.initialize()
  output = process.next(state, [np.zeros(5, np.float32)] * 3)
  if is_same:
    noise_checks.check_noise(state, output.measurements, plan)
    return
  with pytest.raises(ValueError, match="the noise of the plan's strategy"):
    noise_checks.check_noise(state, output.measurements, plan)


@functools.cache
def _process(strategy, noise_key, parameters):
  """Returns a mean of vectors with the noise of a plan."""
  return aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    strategy=strategy,
    noise_key=noise_key,
    **parameters._asdict(),
  ).create(tff.TensorType(np.float32, [5]))


class _Run:
  """A run that is killed and started again, and all that it released."""

  def __init__(self, folder, plan, noise_key=None):
    self.plan = plan
    self._path = folder / 'ledger.jsonl'
    self._process = _process(
      plan.strategy, noise_key, plan.aggregator_parameters
    )
    self.kept = 0, self._process.initialize()
    self.released = collections.defaultdict(set)

  def run(self, *, until=_NUM_ROUNDS, update=0.2, ids=_IDS):
    """Runs from the last checkpoint until a round, after which it is killed."""
    round_num, state = self.kept
    sampler = build_private_sampler(self.plan, ids, seed=3)

    def next_fn(state, cohort):
      updates = [np.full(5, update, np.float32)] * len(cohort)
      output = self._process.next(state, updates)
      return tff.learning.templates.LearningProcessOutput(
        output.state,
        collections.OrderedDict(
          mean=output.result, aggregator=output.measurements
        ),
      )

    with privacy.PrivacyLedger(self._path, self.plan) as ledger:
      try:
        while round_num < until:
          round_num += 1
          _, output = private_rounds.run_private_round(
            next_fn, sampler, ledger, state=state, round_num=round_num
          )
          state = output.state
          self.released[round_num].add(output.metrics['mean'].tobytes())
          if round_num % _ROUNDS_PER_CHECKPOINT == 0:
            self.kept = round_num, state
      finally:
        self.charged, self.epsilon = ledger.rounds, ledger.epsilon

  def lose_states(self):
    """Forgets all checkpoints, and with them the key of the noise."""
    self.kept = 0, self._process.initialize()


def test_a_sampler_without_a_digest_is_refused(tmp_path, plan):
  class Own(client_sampling.ClientSampler):
    charged_as = plan.sampler_parameters

    def sample(self, round_num, draw=0):
      raise AssertionError('No cohort is drawn.')

  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for sampler in (Own(_IDS, seed=3), _WithoutInit(plan)):
      with pytest.raises(ValueError, match='must have the `digest` of what'):
        private_rounds.run_private_round(
          lambda state, cohort: None, sampler, ledger, state=(), round_num=1
        )
    assert not ledger.rounds


class _WithoutInit:
  """A sampler that is no `ClientSampler`."""

  def __init__(self, plan):
    self.charged_as = plan.sampler_parameters


def test_a_killed_run_releases_what_one_that_never_stopped_does(tmp_path, plan):
  runs = []
  for name, kills in (('whole', ()), ('killed', (1, 2, 5, 5, 7, 8))):
    (tmp_path / name).mkdir()
    run = _Run(tmp_path / name, plan, noise_key=(1, 2))
    for until in kills:
      run.run(until=until)
    run.run()
    assert run.charged == [*range(1, _NUM_ROUNDS + 1)]
    assert run.epsilon == plan.epsilon <= 2.0
    runs.append(run.released)
  assert runs[0] == runs[1]
  assert all(len(looks) == 1 for looks in runs[1].values())


def test_a_repeated_round_is_not_released_in_another_environment(
  tmp_path, plan, monkeypatch
):
  run = _Run(tmp_path, plan)
  run.run(until=5)
  with monkeypatch.context() as patch:
    patch.setattr(
      environment, 'describe', lambda computed, **kwargs: 'elsewhere'
    )
    with pytest.raises(
      privacy.ChangedReleaseError,
      match='Round 4, run again, may give other bits .* from the state after '
      'round 5, the last',
    ):
      run.run()
    # Whether it would have had the same bits, nobody knows.
    assert run.charged == [1, 2, 3, 4, 5]
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
  moved.run(until=6)
  minimize = optimization._minimize

  def minimize_elsewhere(*args):
    point, loss = minimize(*args)
    return np.nextafter(point, 1), loss

  monkeypatch.setattr(optimization, '_minimize', minimize_elsewhere)
  anew = find_plan(tmp_path)  # There is no ledger.
  assert anew.strategy != moved.plan.strategy
  # A process that was made with it is not that of the ledger.
  state, plan = moved.kept, moved.plan
  other = _Run(tmp_path / 'moved', anew, (1, 2))
  other.kept = state
  with pytest.raises(ValueError, match='privacy.read_plan'):
    other.run()
  # Nor with the strategy alone.
  other.plan = plan
  with pytest.raises(ValueError, match='one that was optimised anew is anothe'):
    other.run()
  there = _Run(tmp_path / 'moved', find_plan(tmp_path / 'moved'), (1, 2))
  assert there.plan == plan
  there.kept = state
  there.run()
  assert there.charged == [*range(1, _NUM_ROUNDS + 1)]
  assert {**moved.released, **there.released} == whole.released
  with pytest.raises(ValueError, match='`target_epsilon` is 3 and was 2'):
    privacy.read_plan(tmp_path / 'moved', target_epsilon=3)


def test_other_updates_in_a_repeated_round_end_the_run(tmp_path, plan):
  run = _Run(tmp_path, plan)
  run.run(until=5)
  with pytest.raises(privacy.ChangedReleaseError, match='the run ends'):
    run.run(update=0.1)
  assert run.charged == [1, 2, 3, 4, 5]
  assert all(len(looks) == 1 for looks in run.released.values())


def test_clients_in_another_order_are_refused(tmp_path, plan):
  run = _Run(tmp_path, plan)
  run.run(until=4)
  with pytest.raises(ValueError, match='the same `client_ids` in the same ord'):
    run.run(ids=_IDS[::-1])
  assert run.charged == [1, 2, 3, 4]
  run.run()
  assert run.charged == [*range(1, _NUM_ROUNDS + 1)]


def test_a_lost_key_ends_the_run(tmp_path, plan):
  run = _Run(tmp_path, plan)
  run.run(until=4)
  run.lose_states()
  with pytest.raises(privacy.ChangedReleaseError, match='the run ends'):
    run.run()
  assert run.charged == [1, 2, 3, 4]
  assert all(len(looks) == 1 for looks in run.released.values())
