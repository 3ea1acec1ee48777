"""Tests of what watches the rounds of a training program."""

import pandas as pd
import pytest

from tests.programs import small_program
from tff_clipping import privacy
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  RoundError,
)
from tff_clipping.programs.training.watchers import AfterRounds, RoundWatcher


class _Watcher(RoundWatcher):
  """Notes what it is shown, and when."""

  def __init__(self, sees_clients=False):
    self.sees_clients = sees_clients
    self.seen = []

  def measure(self, done):
    self.seen.append(('measure', done))
    return {'share': done.round_num / 2}

  def record(self, done):
    self.seen.append(('record', done))

  def after(self, done):
    self.seen.append(('after', done))


def _program(folder, *watchers, **kwargs):
  files = MetricsFiles(folder / 'metrics.csv')
  return small_program.program(folder, watchers=[*watchers, files], **kwargs)


def test_a_watcher_is_shown_each_moment_of_each_round(tmp_path):
  watcher, checkpoints = _Watcher(), Checkpoints(tmp_path / 'c', keep=9)
  saved = []
  _program(
    tmp_path,
    watcher,
    AfterRounds(lambda metrics: saved.append(max(checkpoints.rounds()))),
    num_rounds=2,
    checkpoints=checkpoints,
    rounds_per_checkpoint=1,
  ).run()
  assert [(moment, done.round_num) for moment, done in watcher.seen] == [
    ('record', 0),
    *((moment, n) for n in (1, 2) for moment in ('measure', 'record', 'after')),
  ]
  # What is called after a round is called after its checkpoint.
  assert saved == [1, 2]
  for _, done in watcher.seen:
    expected = small_program.expected_weight(done.round_num)
    assert done.model.trainable[0] == expected
    assert done.metrics['test_accuracy'] == expected
  # What it measured is in the metrics, which others wrote.
  table = pd.read_csv(tmp_path / 'metrics.csv')
  assert table['share'].tolist()[1:] == [0.5, 1.0]


def test_all_is_synced_before_each_checkpoint(tmp_path):
  checkpoints = Checkpoints(tmp_path / 'c', keep=9)
  latest = []

  class _Syncs(RoundWatcher):
    def sync(self):
      latest.append(max(checkpoints.rounds(), default=None))

  _program(
    tmp_path,
    _Syncs(),
    num_rounds=3,
    checkpoints=checkpoints,
    rounds_per_checkpoint=2,
  ).run()
  assert latest == [None, 0, 2]


def test_clients_are_shown_to_those_alone_that_say_so(tmp_path):
  blind, seeing = _Watcher(), _Watcher(sees_clients=True)
  _program(tmp_path, blind, seeing, num_rounds=2).run()
  assert all(done.work is None for _, done in blind.seen)
  initial, *rest = [done for _, done in seeing.seen]
  assert initial.work is None
  for done in rest:
    total = sum(map(float, done.work.cohort))
    assert done.work.measured == total
    before = done.model_before().trainable[0]
    assert before == small_program.expected_weight(done.round_num - 1)
    assert done.model.trainable[0] == before + total


def test_who_sees_clients_takes_a_ledger_that_says_so(tmp_path):
  plan = small_program.plan('poisson')
  sampler = build_private_sampler(plan, small_program.IDS, seed=0)
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    _program(tmp_path, _Watcher(), ledger=ledger, sampler=sampler)
    with pytest.raises(ValueError, match='`_Watcher` must be left out, or the'):
      _program(tmp_path, _Watcher(True), ledger=ledger, sampler=sampler)
  with privacy.PrivacyLedger(
    tmp_path / 'other.jsonl', plan, caveats=['clients are in the files']
  ) as ledger:
    _program(tmp_path, _Watcher(True), ledger=ledger, sampler=sampler)


def test_a_round_is_recorded_again_when_its_model_was_the_last(tmp_path):
  watcher = _Watcher(sees_clients=True)
  _program(
    tmp_path,
    watcher,
    rounds_per_evaluation=2,
    should_stop=lambda metrics: metrics['round_num'] == 3,
  ).run()
  (_, first), _, (_, again) = watcher.seen[-3:]
  assert (first.round_num, again.round_num) == (3, 3)
  assert first.work is not None
  assert again.work is None
  assert again.metrics['test_accuracy'] == small_program.expected_weight(3)


@pytest.mark.parametrize(
  ('found', 'message'),
  [
    (5, 'must return a dict of numbers, found 5 after round 1'),
    ({'test_loss': 0.0}, 'must not return `test_loss`'),
    ({'epsilon': 0.0}, 'must not return `epsilon`'),
  ],
)
def test_what_a_watcher_must_not_measure_is_refused(tmp_path, found, message):
  class Wrong(RoundWatcher):
    def measure(self, done):
      return found

  with pytest.raises(RoundError, match=f'`Wrong.measure` {message}'):
    _program(tmp_path, Wrong()).run()


def test_the_rounds_before_a_measurement_that_fails_are_kept(tmp_path):
  class Failing(RoundWatcher):
    def measure(self, done):
      return {'x': 1 / (3 - done.round_num)}

  with pytest.raises(
    RoundError, match='`Failing.measure` failed after round 3: division'
  ):
    _program(tmp_path, Failing(), rounds_per_checkpoint=100).run()
  assert Checkpoints(tmp_path / 'checkpoints', keep=2).rounds()[-1] == 2


def test_only_a_function_is_called_after_rounds():
  with pytest.raises(TypeError, match='`function` must be a function of met'):
    AfterRounds(5)
