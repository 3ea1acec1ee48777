"""A kill costs no round and no epsilon: one table of kinds of noise and loops.

Each case is a run in a folder. Its program is killed in one round after the
other, twice in the same place where nothing was saved, and begun again. Then
each round was charged once and released with one noise, and with a seed of the
noise the releases are those of a run that was never killed, bit for bit.

In the independent runs client 0 sends the clipping norm and all others send
zeros, so the exact loss of the releases is known: that of Poisson-sampled
Gaussians, one for each cohort, whose noise is divided by the root of the number
of looks at it.
"""

import asyncio
import collections
import functools
import gc
import json
import shutil
import signal

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from dp_accounting import pld

from tests import computations, processes
from tests.learning import linear_models
from tests.programs import noised_scalar
from tff_clipping import aggregators, learning, privacy, programs, runtime
from tff_clipping.privacy import audit
from tff_clipping.privacy.correlated_noise import optimization
from tff_clipping.programs.training import private_rounds

_KEY = (1, 2)
# Where a program is killed: what is called, and whether it is done by then.
_STAGES = {
  'before the outcome': (programs.Checkpoints, 'save', False),
  'before the charge': (programs.Checkpoints, 'save', True),
  'before the release': (privacy.PrivacyLedger, 'charge', True),
}
_OF_KEPT_STATES = {
  'before the states': (programs.ClientStates, 'write', False),
  'after the states': (programs.ClientStates, 'write', True),
}


class _Run:
  """A run in a folder, of one program after the other.

  Attributes:
    released: The models that left the trusted side, by round and draw.
    charged: The rounds and draws in the ledger.
  """

  def __init__(self, folder, plan, process, loop, value=None):
    self.folder, self.plan, self.loop = folder, plan, loop
    self.process = process
    self.client_value = value or (
      lambda client_id: np.float32(client_id == '0')
    )
    self.ids = noised_scalar.IDS
    self.released = collections.defaultdict(set)
    self.charged = []
    folder.mkdir(exist_ok=True)

  def run(self, until=None):
    """Runs a program until it ends or is killed; returns what it returns."""
    sampler = programs.build_private_sampler(self.plan, self.ids, seed=3)
    store = programs.Checkpoints(self.folder / 'outcomes')
    with privacy.PrivacyLedger(
      self.folder / 'ledger.jsonl', self.plan, caveats=['a test']
    ) as ledger:
      try:
        return self.loop(self, sampler, ledger, store, until or self.rounds)
      finally:
        self.charged = [tuple(draw) for _, *draw in ledger.releases]
        self.epsilon = ledger.epsilon

  @property
  def rounds(self):
    return self.plan.num_rounds

  def release(self, store, weights):
    """Notes a model that leaves, as that of the last outcome."""
    last = store.outcomes()[-1]
    leaves = [np.asarray(leaf).tobytes() for leaf in weights]
    self.released[last.round_num, last.charge.draw].add(b''.join(leaves))

  def release_state(self, store, state):
    self.release(store, self.process.get_model_weights(state).trainable)


def _train_with_our_program(run, sampler, ledger, store, until, **settings):
  def evaluate(weights):
    if store.rounds():
      run.release(store, weights.trainable)
    return dict(test_accuracy=0.0, test_loss=1.0)

  return programs.TrainingProgram(
    **dict(
      process=run.process,
      sampler=sampler,
      client_value=run.client_value,
      num_rounds=until,
      evaluate=evaluate,
      checkpoints=store,
      watchers=[programs.MetricsFiles(run.folder / 'metrics.csv')],
      ledger=ledger,
    )
    | settings
  ).run()


def _loop(run, sampler, ledger, store, until):
  """The loop of docs/private_run.md."""

  def next_fn(state, cohort):
    return run.process.next(state, [run.client_value(c) for c in cohort])

  round_num, state = programs.resume(ledger, store, run.process.initialize())
  if round_num:
    run.release_state(store, state)
  while round_num < until:
    round_num += 1
    _, output = programs.run_private_round(
      next_fn, sampler, ledger, store, state=state, round_num=round_num
    )
    state = output.state
    run.release_state(store, state)


# One for all programs, so that a process is compiled once.
_our_context = functools.cache(runtime.InProcessContext)


@functools.cache
def _context_of_tff():
  return tff.backends.native.create_sync_local_cpp_execution_context()


@pytest.fixture(scope='module', autouse=True)
def _end_context_of_tff():
  yield
  # Its worker ends with it, while Python is still whole.
  _context_of_tff.cache_clear()
  gc.collect()


def _private(run, sampler, ledger, store, **kwargs):
  return programs.PrivateProcess(
    run.process, sampler, ledger, store, client_value=run.client_value, **kwargs
  )


def _simulate(run, sampler, ledger, store, until):
  asyncio.set_event_loop(asyncio.new_event_loop())
  state = tff.simulation.run_training_process(
    _private(run, sampler, ledger, store),
    lambda round_num: round_num,
    total_rounds=until,
    program_state_manager=programs.OutcomeStates(ledger, store),
  )
  run.release_state(store, state)


def _simulate_in_the_context_of_tff(run, *args):
  with tff.framework.get_context_stack().install(_context_of_tff()):
    _simulate(run, *args)


def _train_model(run, sampler, ledger, store, until, in_tff=False):
  private = _private(
    run,
    sampler,
    ledger,
    store,
    context=_context_of_tff() if in_tff else _our_context(),
  )
  context = tff.program.NativeFederatedContext(
    computations.AsyncContext(_our_context())
  )
  with tff.framework.get_context_stack().install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=private,
        train_data_source=programs.RoundNumbers(),
        train_per_round_clients=8,
        train_total_rounds=until,
        program_state_manager=programs.OutcomeStates(ledger, store),
        model_output_manager=tff.program.MemoryReleaseManager(),
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  # It releases no model when it begins after the last round.
  round_num, state = private.resume()
  assert round_num == until
  run.release_state(store, state)


class _Audited:
  """A process that measures how much a release has of two canaries."""

  def __init__(self, process):
    self._process = process
    self.state_type = process.state_type
    self.initialize = process.initialize
    self.get_model_weights = process.get_model_weights

  def next(self, state, values):
    output = self._process.next(state, values)
    weight = self.get_model_weights(output.state).trainable[0]
    measured = output.metrics['aggregator']
    measured['canary_products'] = weight * np.ones(2)
    record = json.loads(measured['mechanism'])
    record['public'].append('canary_products')
    measured['mechanism'] = json.dumps(record)
    return output


def _audit(run, sampler, ledger, store, until):
  watcher = programs.RunAudit(
    run.folder / 'audit',
    plan=run.plan,
    # One is in, and one is held out.
    canaries=audit.Canaries(num_canaries=2, num_parameters=3, seed=1),
    release_unit=1.0,
  )
  # The models of two canaries are not of this process.
  watcher.record_model = lambda round_num, weights: None
  _train_with_our_program(
    run, sampler, ledger, store, until, watchers=[watcher]
  )


def _train_keeping(run, sampler, ledger, store, until):
  _train_with_our_program(
    run,
    sampler,
    ledger,
    store,
    until,
    client_states=_states_of(run),
    client_value=lambda client_id: client_id,
  )


def _states_of(run):
  return programs.ClientStates(run.folder / 'states', run.process, run.ids)


def _independent(folder, loop, key=_KEY, **kwargs):
  plan = noised_scalar.plan(num_rounds=6, **kwargs)
  return _Run(folder, plan, noised_scalar.build_process(plan, key), loop)


def _audited(folder):
  run = _independent(folder, _audit)
  run.process = _Audited(run.process)
  return run


def _correlated(folder, name, key=_KEY):
  plan = noised_scalar.correlated_plan(name)
  process = noised_scalar.build_process(plan, key)
  return _Run(folder, plan, process, _loop)


@functools.cache
def _scaffold(folder):
  """SCAFFOLD of a small linear model, with clip and noise of a given key."""
  rng = np.random.default_rng(5)
  store = programs.write_client_store(
    folder,
    'tiny',
    {
      'x': rng.normal(size=[48, 3]).astype(np.float32),
      'y': rng.normal(size=[48, 1]).astype(np.float32),
    },
    np.split(np.arange(48), 24),
    noised_scalar.IDS,
  )
  plan = noised_scalar.plan(num_rounds=6)
  return learning.build_fed_avg(
    _linear_model,
    local_steps=2,
    batch_size=2,
    client_learning_rate=0.1,
    local_step=learning.steps.Scaffold(0.5, clipping_norm=0.2),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=0.2, noise_key=_KEY, **plan.aggregator_parameters._asdict()
    ),
    client_store=store,
  )


_linear_model = linear_models.layers_fn(
  lambda: [tf.keras.layers.Dense(1, kernel_initializer='zeros')]
)


def _keeping(folder):
  process = _scaffold(folder.parent.parent / 'clients')
  return _Run(folder, noised_scalar.plan(num_rounds=6), process, _train_keeping)


def _shuffling(folder):
  """TFF's own process, in its own context, over data that are shuffled."""
  plan = noised_scalar.plan(num_rounds=6)
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _linear_model,
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=0.2, **plan.aggregator_parameters._asdict()
    ),
  )

  def client_data(client_id):
    x = np.random.default_rng(int(client_id)).normal(size=[6, 3])
    examples = {'x': x.astype(np.float32), 'y': x[:, :1].astype(np.float32)}
    data = tf.data.Dataset.from_tensor_slices(examples)
    return data.shuffle(6).batch(2)

  return _Run(
    folder, plan, process, _simulate_in_the_context_of_tff, client_data
  )


_CASES = {
  'a bare loop': lambda folder: _independent(folder, _loop),
  'fresh noise': lambda folder: _independent(folder, _loop, key=None),
  'our program': lambda folder: _independent(folder, _train_with_our_program),
  'random allocation': lambda folder: _independent(
    folder, _train_with_our_program, sampling='random_allocation'
  ),
  'banded noise': lambda folder: _correlated(folder, 'banded'),
  'blt noise': lambda folder: _correlated(folder, 'blt'),
  'run_training_process': lambda folder: _independent(folder, _simulate),
  'train_model': lambda folder: _independent(folder, _train_model),
  'train_model in the context of TFF': lambda folder: _independent(
    folder, functools.partial(_train_model, in_tff=True)
  ),
  'an audit': _audited,
  'states of clients': _keeping,
  'shuffled data in the context of TFF': _shuffling,
}
_FAST = ('a bare loop', 'fresh noise', 'banded noise')
_WITHOUT_SEED = ('fresh noise', 'shuffled data in the context of TFF')


def _kill(monkeypatch, run, stage, round_num):
  """Runs until a stage of a round, where the program is killed."""
  owner, name, is_done = stage
  call = getattr(owner, name)

  def killing(self, *args, **kwargs):
    is_there = any(type(arg) is int and arg == round_num for arg in args)
    if is_there and not is_done:
      raise processes.Killed
    result = call(self, *args, **kwargs)
    if is_there:
      raise processes.Killed
    return result

  with monkeypatch.context() as patch:
    patch.setattr(owner, name, killing)
    with pytest.raises(processes.Killed):
      run.run()


def _exact_epsilon(run):
  """The cost of what was released, for client 0 present or absent."""
  cohorts = collections.Counter(len(looks) for looks in run.released.values())
  return _epsilon_of_looks(run.plan, tuple(sorted(cohorts.items())))


@functools.cache
def _epsilon_of_looks(plan, cohorts):
  """The cost of some cohorts for each number of looks at them."""
  accountant = pld.PLDAccountant(
    dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
  )
  for looks, count in cohorts:
    noise = dp_accounting.GaussianDpEvent(plan.noise_multiplier / looks**0.5)
    accountant.compose(
      dp_accounting.PoissonSampledDpEvent(plan.sampling_prob, noise), count
    )
  return accountant.get_epsilon(noised_scalar.DELTA)


def _assert_charged_once(run):
  """Every release was charged once, at its exact cost at least."""
  assert len(set(run.charged)) == len(run.charged)
  assert run.released.keys() <= set(run.charged)
  assert all(len(looks) == 1 for looks in run.released.values())
  if run.plan.sampling == 'poisson':
    assert _exact_epsilon(run) <= run.epsilon * (1 + 1e-3)


@pytest.mark.parametrize(
  'case',
  [
    pytest.param(name, marks=() if name in _FAST else pytest.mark.slow)
    for name in _CASES
  ],
)
def test_kills_at_each_stage_cost_no_round_and_no_epsilon(
  tmp_path, monkeypatch, case
):
  build, keeps = _CASES[case], case == 'states of clients'
  run = build(tmp_path / 'killed')
  stages = [*_STAGES.values(), *(_OF_KEPT_STATES.values() if keeps else ())]
  for round_num in range(1, run.rounds + 1):
    stage = stages[(round_num - 1) % len(stages)]
    _kill(monkeypatch, run, stage, round_num)
    if stage == _STAGES['before the outcome']:
      _kill(monkeypatch, run, stage, round_num)
  run.run()
  # Another start runs nothing, and has the same model.
  run.run()
  assert run.charged == [(t, 0) for t in range(1, run.rounds + 1)]
  assert run.epsilon == run.plan.epsilon
  _assert_charged_once(run)
  if case in _WITHOUT_SEED:
    return
  whole = build(tmp_path / 'whole')
  whole.run()
  assert run.released.items() <= whole.released.items()
  if case == 'our program':
    metrics = pd.read_csv(tmp_path / 'killed' / 'metrics.csv')
    assert metrics['round_num'].tolist() == list(range(run.rounds + 1))
    assert metrics['epsilon'].is_monotonic_increasing
  if case == 'an audit':
    kept = sorted((tmp_path / 'killed' / 'audit').iterdir())
    assert len(kept) == run.rounds
    for path in kept:
      other = tmp_path / 'whole' / 'audit' / path.name
      np.testing.assert_array_equal(np.load(path), np.load(other))
  if keeps:
    found, expected = _states_of(run), _states_of(whole)
    for states in (found, expected):
      last = programs.Checkpoints(
        states._folder.parent / 'outcomes'
      ).outcomes()[-1]
      states.resume(last.round_num, last.id)
    for client_id in run.ids:
      for one, other in zip(
        found.read(client_id, 9), expected.read(client_id, 9), strict=True
      ):
        np.testing.assert_array_equal(one, other)


def test_one_cohort_looked_at_twice_would_cost_more_than_two_draws(tmp_path):
  """The cost that the rules are for; it also shows that it would be seen."""
  run = _independent(tmp_path / 'run', _loop)
  for round_num in range(1, 4):
    run.released[round_num, 0] = {b'1', b'2'}
  assert _exact_epsilon(run) > 1.1 * run.plan.epsilon_after(6)


def _restore_after(run, backup, last):
  """Runs some rounds, two more, and restores the outcomes before these."""
  run.run(last)
  shutil.copytree(run.folder / 'outcomes', backup)
  run.run(last + 2)
  shutil.rmtree(run.folder / 'outcomes')
  shutil.copytree(backup, run.folder / 'outcomes')


def test_a_restored_disk_makes_new_draws_that_are_charged(tmp_path):
  run = _independent(tmp_path / 'run', _train_with_our_program, key=None)
  _restore_after(run, tmp_path / 'backup', 2)
  result = run.run()
  # Rounds 3 and 4 are drawn anew, and the plan has no release left for them.
  assert run.charged == [(1, 0), (2, 0), (3, 0), (4, 0), (3, 1), (4, 1)]
  assert result.reason is programs.StopReason.BUDGET_EXHAUSTED
  assert result.round_num == 4
  _assert_charged_once(run)


@pytest.mark.parametrize('name', ['random allocation', 'banded noise'])
def test_a_restored_disk_ends_a_run_without_new_draws(tmp_path, name):
  # With a round drawn anew, a client might come a second time in its epoch.
  run = _CASES[name](tmp_path / 'run')
  _restore_after(run, tmp_path / 'backup', 2)
  with pytest.raises(
    (programs.RoundError, privacy.RoundChargedError), match='cannot be drawn an'
  ):
    run.run()
  assert run.charged == [(1, 0), (2, 0), (3, 0), (4, 0)]
  assert all(len(looks) == 1 for looks in run.released.values())


def test_a_damaged_outcome_is_a_new_draw(tmp_path):
  run = _independent(tmp_path / 'run', _train_with_our_program, key=None)
  run.run(5)
  (path,) = (tmp_path / 'run' / 'outcomes').glob('*round_5.state')
  path.write_bytes(b'{}')
  assert run.run().reason is programs.StopReason.BUDGET_EXHAUSTED
  assert run.charged[-2:] == [(5, 0), (5, 1)]
  assert len([*path.parent.glob('damaged_*round_5*')]) == 1
  _assert_charged_once(run)


def test_lost_outcomes_are_refused_or_drawn_anew(tmp_path):
  run = _independent(tmp_path / 'run', _train_with_our_program, key=None)
  run.run(2)
  shutil.rmtree(run.folder / 'outcomes')
  with pytest.raises(programs.StorageError, match='no outcome of them'):
    run.run()
  assert run.charged == [(1, 0), (2, 0)]
  (run.folder / 'metrics.csv').unlink()
  run.loop = functools.partial(_train_with_our_program, start_over=True)
  run.run(2)
  assert run.charged == [(1, 0), (2, 0), (1, 1), (2, 1)]
  _assert_charged_once(run)


def test_a_signal_at_the_worst_moment_leaves_every_row_evaluated(
  tmp_path, monkeypatch
):
  run = _independent(tmp_path / 'run', _train_with_our_program)
  charge = privacy.PrivacyLedger.charge

  def stop(self, round_num, *args, **kwargs):
    epsilon = charge(self, round_num, *args, **kwargs)
    if round_num == 4:
      # Charged, and nothing released yet.
      signal.raise_signal(signal.SIGTERM)
    return epsilon

  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', stop)
    result = run.run()
  assert result.reason is programs.StopReason.INTERRUPTED
  assert run.charged == [(t, 0) for t in range(1, 5)]
  assert run.run().reason is programs.StopReason.FINISHED
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(7))
  assert metrics['test_loss'].notna().all()
  _assert_charged_once(run)


def test_a_signal_in_a_round_that_fails_leaves_the_round_before(tmp_path):
  run = _keeping(tmp_path / 'run')
  sampler = programs.build_private_sampler(run.plan, run.ids, seed=3)

  class FailsWhenStopped(programs.RoundWatcher):
    def record(self, done):
      if done.round_num == 3:
        signal.raise_signal(signal.SIGTERM)
        raise programs.StorageError('the disk is full')

  def train(watchers):
    return programs.TrainingProgram(
      process=run.process,
      sampler=sampler,
      num_rounds=4,
      evaluate=None,
      checkpoints=programs.Checkpoints(run.folder / 'outcomes'),
      watchers=watchers,
      client_states=_states_of(run),
    ).run()

  result = train([FailsWhenStopped()])
  assert result.reason is programs.StopReason.INTERRUPTED
  assert result.round_num == 2
  # What the clients keep has the id of the checkpoint.
  assert train([]).reason is programs.StopReason.FINISHED


@pytest.mark.slow
def test_a_correlated_run_goes_on_on_another_processor(tmp_path, monkeypatch):
  """Whose last bits are others: of the noise, and of what was optimised."""
  first = _correlated(tmp_path / 'run', 'banded', key=None)
  first.run(3)
  _kill(monkeypatch, first, _STAGES['before the charge'], 4)
  minimize = optimization._minimize

  def minimize_elsewhere(*args):
    point, loss = minimize(*args)
    return np.nextafter(point, 1), loss

  monkeypatch.setattr(optimization, '_minimize', minimize_elsewhere)
  anew = noised_scalar.correlated_plan.__wrapped__('banded')
  assert anew.strategy != first.plan.strategy
  # A plan that was optimised there is refused, and so is a process with it.
  other = _Run(
    tmp_path / 'run', anew, noised_scalar.build_process(anew, None), _loop
  )
  with pytest.raises(ValueError, match='privacy.read_plan'):
    other.run()
  other.plan = first.plan
  with pytest.raises(ValueError, match='one that was optimised anew is anothe'):
    other.run()
  # That of the ledger goes on.
  plan = privacy.read_plan(
    tmp_path / 'run', num_clients=24, target_epsilon=2.0, num_rounds=6
  )
  there = _Run(
    tmp_path / 'run', plan, noised_scalar.build_process(plan, None), _loop
  )
  next_fn = there.process.next

  class Elsewhere:
    initialize = there.process.initialize
    get_model_weights = there.process.get_model_weights

    @staticmethod
    def next(state, values):
      output = next_fn(state, values)
      moved = tf.nest.map_structure(
        lambda x: (
          np.nextafter(x, np.float32(1))
          if np.asarray(x).dtype == np.float32
          else x
        ),
        output.state,
      )
      return tff.learning.templates.LearningProcessOutput(moved, output.metrics)

  there.process = Elsewhere
  there.run()
  assert there.charged == [(t, 0) for t in range(1, 7)]
  assert there.epsilon == plan.epsilon <= 2.0
  for draw in first.released.keys() & there.released.keys():
    assert first.released[draw] == there.released[draw]


def test_the_state_of_another_run_is_refused(tmp_path):
  """What it keeps of earlier noises would be in the releases of both."""
  run = _correlated(tmp_path / 'run', 'banded')
  run.run(2)
  with privacy.PrivacyLedger(run.folder / 'ledger.jsonl', run.plan) as ledger:
    _, state = private_rounds.resume(
      ledger,
      programs.Checkpoints(run.folder / 'outcomes'),
      run.process.initialize(),
    )
  with (
    privacy.PrivacyLedger(tmp_path / 'other.jsonl', run.plan) as ledger,
    pytest.raises(ValueError, match='`state` must be that before round 1'),
  ):
    private_rounds.run_private_round(
      lambda state, cohort: None,
      programs.build_private_sampler(run.plan, run.ids, seed=4),
      ledger,
      programs.Checkpoints(tmp_path / 'other'),
      state=state,
      round_num=1,
    )
