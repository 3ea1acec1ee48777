"""Tests of rounds that are run again, with the exact cost of what is released.

In the runs here client 0 sends the clipping norm and all others send zeros, so
the exact privacy loss of what a program released is known: it is that of
Poisson-sampled Gaussians, one for each cohort that was looked at, whose noise
is divided by the root of the number of looks.
"""

import collections
import functools
import signal

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from dp_accounting import pld

from tests.privacy.ledgers import read_releases
from tff_clipping import aggregators, privacy
from tff_clipping.programs import managers, private_rounds
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.client_sampling import (
  FixedSizeSampler,
  build_private_sampler,
)
from tff_clipping.programs.storage import StorageError
from tff_clipping.programs.training import StopReason, TrainingProgram
from tff_clipping.runtime import environment

_IDS = tuple(str(i) for i in range(24))
_DELTA = 1e-3


@functools.cache
def _plan(num_rounds=12, **kwargs):
  return privacy.PrivacyPlan.from_target_epsilon(
    num_clients=24,
    clients_per_round=8,
    num_rounds=num_rounds,
    target_epsilon=2.0,
    target_delta=_DELTA,
    accountant='pld',
    **kwargs,
  )


@functools.cache
def _build_process(plan, noise_key):
  """Returns a process that adds the noised mean of scalars to its weight."""
  aggregator = aggregators.dp_mean_factory(
    clipping_norm=1.0,
    **plan.aggregator_parameters._asdict(),
    noise_key=noise_key,
  ).create(tff.TensorType(np.float32))
  weights_type = tff.to_type(tff.learning.models.ModelWeights([np.float32], []))
  state_type = tff.to_type(
    collections.OrderedDict(
      weights=weights_type, aggregator=aggregator.state_type.member
    )
  )

  @tff.tensorflow.computation
  def initial():
    return tff.learning.models.ModelWeights([tf.constant(0.0)], [])

  @tff.tensorflow.computation(weights_type, np.float32)
  def add(weights, mean):
    value = weights.trainable[0] + mean
    return tff.learning.models.ModelWeights([value], [])

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        weights=tff.federated_eval(initial, tff.SERVER),
        aggregator=aggregator.initialize(),
      )
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def next_fn(state, values):
    output = aggregator.next(state['aggregator'], values)
    weights = tff.federated_map(add, (state['weights'], output.result))
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(weights=weights, aggregator=output.state)
      ),
      output.measurements,
    )

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    return state['weights']

  @tff.tensorflow.computation(state_type, weights_type)
  def set_model_weights(state, weights):
    return collections.OrderedDict(
      weights=weights, aggregator=state['aggregator']
    )

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


def _set_environment(monkeypatch, name):
  monkeypatch.setattr(environment, 'describe', lambda computed, **kwargs: name)


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is saved on the way out."""


class _Run:
  """A run in a folder, killed and started again, and all that it released."""

  def __init__(self, folder, plan, noise_key='drawn'):
    self._folder = folder
    self.plan = plan
    self._process = _build_process(plan, noise_key)
    # The weights that left the trusted side, by the cohort they came from.
    self.released = collections.defaultdict(set)

  def run(self, kill_after=None, num_rounds=None, noise_key=None):
    """Runs until the end, or until a round has released its weights."""
    sampler = _Recorded(build_private_sampler(self.plan, _IDS, seed=3))
    rounds = []

    def evaluate(weights):
      if sampler.last is not None:
        weight = np.float32(weights.trainable[0])
        self.released[sampler.last].add(weight.tobytes())
        rounds.append(sampler.last)
        if sampler.last[0] == kill_after:
          raise _Killed
      return dict(test_accuracy=0.0, test_loss=1.0)

    process = self._process
    if noise_key is not None:
      process = _build_process(self.plan, noise_key)
    with privacy.PrivacyLedger(
      self._folder / 'ledger.jsonl', self.plan
    ) as ledger:
      program = TrainingProgram(
        process=process,
        sampler=sampler,
        client_value=lambda c: np.float32(c == '0'),
        num_rounds=num_rounds or self.plan.num_rounds,
        evaluate=evaluate,
        checkpoints=Checkpoints(self._folder / 'checkpoints', keep=2),
        rounds_per_checkpoint=5,
        release_managers=managers.create_release_managers(
          metrics_path=self._folder / 'metrics.csv',
          tensorboard_dir=self._folder / 'tensorboard',
        ),
        ledger=ledger,
        measures_cohorts=False,
      )
      try:
        return program.run()
      except _Killed:
        return None
      finally:
        self.ledger_lines = read_releases(self._folder / 'ledger.jsonl')
        self.charged = ledger.rounds
        self.caveats = ledger.caveats
        self.epsilon = ledger.epsilon

  def exact_epsilon(self):
    """The cost of what was released, for client 0 present or absent."""
    accountant = pld.PLDAccountant(
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    cohorts = collections.Counter(
      len(looks) for looks in self.released.values()
    )
    for looks, count in cohorts.items():
      noise = dp_accounting.GaussianDpEvent(
        self.plan.noise_multiplier / looks**0.5
      )
      accountant.compose(
        dp_accounting.PoissonSampledDpEvent(self.plan.sampling_prob, noise),
        count,
      )
    return accountant.get_epsilon(_DELTA)


class _Recorded:
  """A sampler that knows what it drew last."""

  def __init__(self, sampler):
    self._sampler = sampler
    self.charged_as = sampler.charged_as
    self.last = None

  def sample(self, round_num, *draw):
    self.last = (round_num, *(draw or (0,)))
    return self._sampler.sample(round_num, *draw)


def _assert_charged(run):
  """Every release is charged, and the charge is at least its exact cost."""
  assert sum(len(looks) for looks in run.released.values()) == len(run.charged)
  assert run.exact_epsilon() <= run.epsilon * (1 + 1e-3)


def test_a_killed_run_ends_as_one_that_never_stopped_at_the_same_cost(tmp_path):
  plan, key = _plan(), (1, 2)
  runs = []
  for name, kills in (('whole', ()), ('killed', (1, 4, 4, 7, 9, 12))):
    (tmp_path / name).mkdir()
    run = _Run(tmp_path / name, plan, key)
    for kill_after in kills:
      assert run.run(kill_after) is None
    result = run.run()
    assert result.reason is StopReason.FINISHED
    _assert_charged(run)
    runs.append((run, result.state))
  (whole, state), (killed, killed_state) = runs
  tf.nest.map_structure(
    np.testing.assert_array_equal, dict(state), dict(killed_state)
  )
  assert killed.ledger_lines == whole.ledger_lines
  assert killed.released == whole.released
  metrics = [
    pd.read_csv(tmp_path / n / 'metrics.csv') for n in ('whole', 'killed')
  ]
  # What was spent is never shown as less, so a row that is written again has
  # the releases after it in its epsilon.
  epsilons = [m.pop('epsilon') for m in metrics]
  assert epsilons[1].ge(epsilons[0]).all()
  assert epsilons[1].iloc[-1] == epsilons[0].iloc[-1] <= 2.0
  pd.testing.assert_frame_equal(*metrics)


def test_a_stopped_run_ends_at_its_last_round_with_every_row_evaluated(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, _plan())
  charge = privacy.PrivacyLedger.charge

  def stop(self, round_num, *args, **kwargs):
    epsilon = charge(self, round_num, *args, **kwargs)
    if round_num == 8:
      # Ctrl-C at the worst moment: charged, and nothing written yet.
      signal.raise_signal(signal.SIGTERM)
    return epsilon

  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', stop)
    assert run.run().reason is StopReason.INTERRUPTED
  assert run.charged == list(range(1, 9))
  result = run.run()
  assert result.reason is StopReason.FINISHED
  assert run.charged == list(range(1, 13))
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(13))
  assert metrics['test_loss'].notna().all()
  _assert_charged(run)


def test_the_key_is_that_of_the_checkpoint_not_of_the_new_program(tmp_path):
  run = _Run(tmp_path, _plan())
  run.run(kill_after=7)
  result = run.run(noise_key='drawn')
  assert result.reason is StopReason.FINISHED
  assert run.charged == list(range(1, 13))
  _assert_charged(run)


def test_fresh_noise_makes_a_repeated_round_a_new_draw_that_is_charged(
  tmp_path,
):
  run = _Run(tmp_path, _plan(), noise_key=None)
  run.run(kill_after=7)
  result = run.run()
  # Rounds 6 and 7 are drawn anew, and the plan has no release left for them.
  assert run.charged == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10]
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert result.round_num == 10
  assert {k for k in run.released if k[0] in (6, 7)} == {
    (6, 0), (7, 0), (6, 1), (7, 1)
  }  # fmt: skip
  _assert_charged(run)


def test_what_the_first_draw_of_a_round_was_is_never_released_again(tmp_path):
  run = _Run(tmp_path, _plan(num_rounds=20), noise_key=None)
  for kill_after in (7, 6, 7, 6):
    run.run(kill_after)
  result = run.run()
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)


def test_a_damaged_checkpoint_costs_nothing_either(tmp_path):
  run = _Run(tmp_path, _plan())
  run.run(num_rounds=11)
  path = tmp_path / 'checkpoints' / 'round_11' / 'sha256.json'
  path.write_text('{}')
  assert run.run().reason is StopReason.FINISHED
  assert run.charged == list(range(1, 13))
  _assert_charged(run)


def test_without_any_checkpoint_all_rounds_are_drawn_anew(tmp_path):
  run = _Run(tmp_path, _plan())
  run.run(kill_after=3)
  for path in (tmp_path / 'checkpoints').iterdir():
    path.rename(tmp_path / path.name)
  with pytest.raises(StorageError, match='another run, up to round 2'):
    run.run(noise_key='drawn')
  (tmp_path / 'metrics.csv').unlink()
  # The key is gone with the states: a program draws another one.
  run.run(noise_key='drawn')
  assert run.charged == [1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  assert not run.caveats
  _assert_charged(run)


def test_one_cohort_looked_at_twice_would_cost_more_than_two_draws(tmp_path):
  """The cost that the rules above are for; it also shows that it is seen."""
  run = _Run(tmp_path, _plan())
  for round_num in range(1, 7):
    run.released[round_num, 0] = {b'1', b'2'}
  assert run.exact_epsilon() > 1.1 * run.plan.epsilon_after(12)


@pytest.mark.parametrize('is_known', [True, False])
def test_other_data_in_a_repeated_round_are_never_released(
  tmp_path, monkeypatch, is_known
):
  if is_known:
    _set_environment(monkeypatch, 'here')
  plan = _plan()
  sampler = build_private_sampler(plan, _IDS, seed=3)
  noise = iter(range(100))
  seen = []

  def next_fn(state, cohort):
    seen.append(tuple(cohort))
    return tff.learning.templates.LearningProcessOutput(
      np.float32(next(noise)), ()
    )

  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for _ in range(3):
      cohort, output = private_rounds.run_private_round(
        next_fn, sampler, ledger, state=np.float32(0), round_num=1
      )
      assert seen[-1] == tuple(cohort)
    assert ledger.num_releases == 3
    # Were the bits to be the same, that they are not tells of the clients.
    assert bool(ledger.caveats) == is_known
  # Each repeat first tried the cohort that was charged last.
  assert len(seen) == 5
  assert len({seen[0], seen[2], seen[4]}) == 3
  assert (seen[1], seen[3]) == (seen[0], seen[2])
  assert output.state == 4


def test_a_round_that_was_charged_elsewhere_is_drawn_anew_whatever_its_bits(
  tmp_path, monkeypatch
):
  # The result is the same in all, and whether it is depends on the clients.
  plan = _plan()
  sampler = build_private_sampler(plan, _IDS, seed=3)
  seen = []

  def next_fn(state, cohort):
    seen.append(tuple(cohort))
    return tff.learning.templates.LearningProcessOutput(state, ())

  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for name in ('a', 'a', 'b', 'b', 'a'):
      _set_environment(monkeypatch, name)
      private_rounds.run_private_round(
        next_fn, sampler, ledger, state=np.float32(0), round_num=1
      )
    assert ledger.num_releases == 3
  draws = [0, 0, 0, 1, 1, 1, 2]
  assert seen == [tuple(sampler.sample(1, draw)) for draw in draws]
  assert len(set(seen)) == 3


def test_moves_back_and_forth_are_charged_and_tell_nothing(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, _plan(num_rounds=20))
  for name, kill_after in (('a', 7), ('b', 6), ('a', 7), ('a', None)):
    _set_environment(monkeypatch, name)
    result = run.run(kill_after)
  # Round 6 in b, and again in a; round 7 from another state than before.
  assert run.charged[5:10] == [6, 7, 6, 6, 7]
  assert run.charged[10:12] == [8, 9]
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert not run.caveats
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)


def test_a_round_of_a_ledger_that_does_not_say_where_is_drawn_anew(tmp_path):
  plan = _plan()
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    output = tff.learning.templates.LearningProcessOutput(np.float32(0), ())
    digest = private_rounds.compute_digest(tuple(output))
    ledger.charge(1, digest)
    private_rounds.run_private_round(
      lambda state, cohort: output,
      build_private_sampler(plan, _IDS, seed=3),
      ledger,
      state=np.float32(0),
      round_num=1,
    )
    assert ledger.rounds == [1, 1]


def test_a_run_that_goes_on_elsewhere_is_charged_for_what_it_repeats(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, _plan())
  _set_environment(monkeypatch, 'a')
  run.run(kill_after=7)
  _set_environment(monkeypatch, 'b')
  run.run(kill_after=8)
  # From the checkpoint of round 5 again, where its rounds were charged last.
  result = run.run()
  assert run.charged == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10]
  assert not run.caveats
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)


def test_a_round_that_cannot_be_drawn_anew_is_not_released_elsewhere(
  tmp_path, monkeypatch
):
  seen = []

  def next_fn(state, cohort):
    seen.append(tuple(cohort))
    return tff.learning.templates.LearningProcessOutput(state, ())

  sampler = build_private_sampler(_plan(), _IDS, seed=3)
  state = {'privacy_noise': {'key': np.int64(1), 'ledger': np.int64(0)}}
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', _plan()) as ledger:

    def run():
      private_rounds.run_private_round(
        next_fn, sampler, ledger, state=state, round_num=1
      )

    _set_environment(monkeypatch, 'a')
    run()
    _set_environment(monkeypatch, 'b')
    with pytest.raises(privacy.ChangedReleaseError, match='has no `draw`'):
      run()
    # Of its result, nobody knows whether it would have been the same.
    assert ledger.num_releases == 1
    _set_environment(monkeypatch, 'a')
    run()
    assert ledger.num_releases == 1


def test_a_sampler_that_the_ledger_does_not_charge_for_is_refused(tmp_path):
  sampler = FixedSizeSampler(_IDS, clients_per_round=8, seed=0)
  seen = []
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', _plan()) as ledger:
    with pytest.raises(ValueError, match='`sampler` must be that of the ledg'):
      private_rounds.run_private_round(
        lambda *args: seen.append(args),
        sampler,
        ledger,
        state=np.float32(0),
        round_num=1,
      )
    assert ledger.num_releases == 0
  assert not seen


def test_an_empty_cohort_is_released_and_charged(tmp_path):
  plan = privacy.PrivacyPlan(
    num_clients=4,
    clients_per_round=1,
    num_rounds=50,
    target_delta=1e-2,
    noise_multiplier=1.0,
  )
  sampler = build_private_sampler(plan, _IDS[:4], seed=3)
  empty = next(t for t in range(1, 51) if not sampler.sample(t))
  process = _build_process(plan, 'drawn')
  state = process.initialize()
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    cohort, output = private_rounds.run_private_round(
      lambda state, cohort: process.next(state, list(map(float, cohort))),
      sampler,
      ledger,
      state=state,
      round_num=empty,
    )
    assert cohort == []
    assert ledger.rounds == [empty]
    assert ledger.last_draw(empty) == 0
  assert process.get_model_weights(output.state).trainable[0] != 0


def test_noise_that_cannot_be_drawn_anew_ends_a_round_with_other_bits(
  tmp_path, monkeypatch
):
  _set_environment(monkeypatch, 'here')
  # The key of the noise is kept, and no number of the draw: the next draw would
  # have the same noise on another cohort.
  state = {'privacy_noise': {'key': np.int64(1), 'ledger': np.int64(0)}}
  bits = iter([1, 2, 3])

  def next_fn(state, cohort):
    del cohort
    return tff.learning.templates.LearningProcessOutput(
      state | {'weights': np.float32(next(bits))}, ()
    )

  sampler = build_private_sampler(_plan(), _IDS, seed=3)
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', _plan()) as ledger:
    private_rounds.run_private_round(
      next_fn, sampler, ledger, state=state, round_num=1
    )
    with pytest.raises(privacy.ChangedReleaseError, match='has no `draw`'):
      private_rounds.run_private_round(
        next_fn, sampler, ledger, state=state, round_num=1
      )
    assert ledger.num_releases == 1


@pytest.mark.parametrize(
  'other',
  [
    dict(a=np.float32(1.5), b=['x', 2]),
    dict(a=np.float64(1), b=['x', 2]),
    dict(a=np.ones(1, np.float32), b=['x', 2]),
    dict(a=np.float32(1), b=['y', 2]),
    dict(a=np.float32(1), c=['x', 2]),
    dict(a=np.float32(1), b=['x', np.array([], np.int64)]),
    dict(a=tf.constant(1.0, tf.bfloat16).numpy(), b=['x', 2]),
  ],
)
def test_the_digest_tells_values_from_others(other):
  value = dict(a=np.float32(1), b=['x', 2])
  same = dict(a=tf.constant(1.0), b=['x', np.int64(2)])
  digest = private_rounds.compute_digest(value)
  assert private_rounds.compute_digest(same) == digest
  assert private_rounds.compute_digest(other) != digest


def test_exact_metrics_of_clients_are_not_in_the_digest_that_is_written(
  tmp_path, monkeypatch
):
  """The digest is in a file: few possible values could be searched for."""
  _set_environment(monkeypatch, 'here')
  plan = _plan()
  lines = []
  for name, num_examples in (('a', 10), ('b', 11)):

    def next_fn(state, cohort, num_examples=num_examples):
      metrics = collections.OrderedDict(
        client_work=collections.OrderedDict(num_examples=num_examples),
        aggregator=collections.OrderedDict(clipping_norm=np.float32(1)),
      )
      return tff.learning.templates.LearningProcessOutput(state, metrics)

    with privacy.PrivacyLedger(tmp_path / name, plan) as ledger:
      private_rounds.run_private_round(
        next_fn,
        build_private_sampler(plan, _IDS, seed=3),
        ledger,
        state=np.float32(1),
        round_num=1,
      )
    lines.append(read_releases(tmp_path / name))
  assert lines[0] == lines[1]


def test_exact_figures_are_in_no_digest(tmp_path, monkeypatch):
  _set_environment(monkeypatch, 'here')
  counts = iter([3, 4, 5])

  def next_fn(state, cohort):
    del cohort
    count = np.int32(next(counts))
    return tff.learning.templates.LearningProcessOutput(
      state,
      {
        'client_work': {'num_examples': count},
        'aggregator': {'clipping_norm': np.float32(1), 'clipped_count': count},
        'finalizer': {'update_non_finite': np.int32(0)},
      },
    )

  sampler = build_private_sampler(_plan(), _IDS, seed=3)
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', _plan()) as ledger:
    for _ in range(3):
      private_rounds.run_private_round(
        next_fn, sampler, ledger, state=np.float32(0), round_num=1
      )
    # The same bits are released, whatever else was measured.
    assert ledger.num_releases == 1


@pytest.mark.parametrize('noise_key', ['drawn', None])
def test_the_state_of_another_round_is_refused_where_its_noise_repeats(
  tmp_path, noise_key
):
  plan = _plan()
  process = _build_process(plan, noise_key)
  sampler = build_private_sampler(plan, _IDS, seed=3)

  def next_fn(state, cohort):
    return process.next(state, [np.float32(c == '0') for c in cohort])

  first = process.initialize()
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:

    def run(state, round_num):
      _, output = private_rounds.run_private_round(
        next_fn, sampler, ledger, state=state, round_num=round_num
      )
      return output.state

    second = run(first, 1)
    if noise_key is None:
      run(first, 2)
      return
    # The noise of round 1, and of round 2, on the results of another one.
    for state, round_num in ((first, 2), (second, 1), (second, 3)):
      with pytest.raises(
        ValueError, match=f'`state` must be that before round {round_num}'
      ):
        run(state, round_num)
    assert ledger.rounds == [1]
    run(second, 2)


def test_the_same_state_has_other_noise_under_another_ledger(tmp_path):
  plan = _plan()
  process = _build_process(plan, 'drawn')
  state = process.initialize()
  sampler = build_private_sampler(plan, _IDS, seed=3)
  weights = []
  for name in ('a', 'a', 'b'):
    with privacy.PrivacyLedger(tmp_path / name, plan) as ledger:
      _, output = private_rounds.run_private_round(
        lambda state, cohort: process.next(state, [0.0] * len(cohort)),
        sampler,
        ledger,
        state=state,
        round_num=1,
      )
    weights.append(process.get_model_weights(output.state).trainable[0])
  assert weights[0] == weights[1]
  # With the same noise, nothing would hide the difference of other updates.
  assert abs(weights[0] - weights[2]) > 1e-6


@pytest.mark.parametrize('noise_key', [(1, 2), 'drawn', None])
def test_the_ledger_says_that_a_key_was_given(tmp_path, noise_key):
  plan = _plan()
  process = _build_process(plan, noise_key)
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    private_rounds.run_private_round(
      lambda state, cohort: process.next(state, [0.0] * len(cohort)),
      build_private_sampler(plan, _IDS, seed=3),
      ledger,
      state=process.initialize(),
      round_num=1,
    )
    is_given = isinstance(noise_key, tuple)
    assert ledger.caveats == (private_rounds.GIVEN_NOISE,) * is_given


def test_a_state_of_another_ledger_is_refused(tmp_path):
  plan = _plan()
  process = _build_process(plan, 'drawn')
  sampler = build_private_sampler(plan, _IDS, seed=3)
  states = {}
  for name in ('a', 'b'):
    states[name] = process.initialize()
    with privacy.PrivacyLedger(tmp_path / name, plan) as ledger:
      for round_num in (1, 2):
        # In the end, of b's ledger, and the state of a.
        state = states['a'] if (name, round_num) == ('b', 2) else states[name]

        def run(state=state, ledger=ledger, round_num=round_num):
          _, output = private_rounds.run_private_round(
            lambda state, cohort: process.next(state, [0.0] * len(cohort)),
            sampler,
            ledger,
            state=state,
            round_num=round_num,
          )
          return output.state

        if (name, round_num) == ('b', 2):
          with pytest.raises(ValueError, match='of a run that began with this'):
            run()
        elif (name, round_num) != ('a', 2):
          states[name] = run()


def test_a_ledger_that_lacks_the_rounds_of_a_state_is_refused(tmp_path):
  plan = _plan()
  process = _build_process(plan, 'drawn')
  sampler = build_private_sampler(plan, _IDS, seed=3)

  def next_fn(state, cohort):
    return process.next(state, [np.float32(0)] * len(cohort))

  state = process.initialize()
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    for round_num in (1, 2):
      _, output = private_rounds.run_private_round(
        next_fn, sampler, ledger, state=state, round_num=round_num
      )
      state = output.state
  with (
    privacy.PrivacyLedger(tmp_path / 'elsewhere.jsonl', plan) as ledger,
    pytest.raises(StorageError, match='has no release of round 1'),
  ):
    private_rounds.run_private_round(
      next_fn, sampler, ledger, state=state, round_num=3
    )
  assert ledger.num_releases == 0


def test_references_of_an_asynchronous_context_are_refused(tmp_path):
  plan = _plan()
  process = _build_process(plan, 'drawn')
  reference = object()

  def next_fn(state, cohort):
    output = process.next(state, [np.float32(0.0)] * len(cohort))
    metrics = {**output.metrics, 'noise_stddev': reference}
    return tff.learning.templates.LearningProcessOutput(output.state, metrics)

  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    with pytest.raises(TypeError, match='`next_fn` must return values, found '):
      private_rounds.run_private_round(
        next_fn,
        build_private_sampler(plan, _IDS, seed=3),
        ledger,
        state=process.initialize(),
        round_num=1,
      )
    assert ledger.num_releases == 0
  with pytest.raises(TypeError, match='`value` must have arrays'):
    private_rounds.compute_digest([reference])


def test_strings_in_a_round_are_values(tmp_path):
  plan = _plan()
  process = _build_process(plan, 'drawn')
  # As TFF returns a tensor of strings.
  names = np.array([b'a', b'b'], object)

  def next_fn(state, cohort):
    output = process.next(state, [np.float32(0.0)] * len(cohort))
    return tff.learning.templates.LearningProcessOutput(
      output.state, {**output.metrics, 'names': names, 'name': b'c'}
    )

  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    private_rounds.run_private_round(
      next_fn,
      build_private_sampler(plan, _IDS, seed=3),
      ledger,
      state=process.initialize(),
      round_num=1,
    )
    assert ledger.num_releases == 1
