"""Tests of runs that are killed and go on, with the exact cost of the releases.

In the runs here client 0 sends the clipping norm and all others send zeros, so
the exact privacy loss of what a program released is known: it is that of
Poisson-sampled Gaussians, one for each cohort that was looked at, whose noise
is divided by the root of the number of looks.
"""

import collections
import shutil
import signal

import dp_accounting
import numpy as np
import pandas as pd
import pytest
from dp_accounting import pld

from tests.programs import noised_scalar
from tff_clipping import privacy
from tff_clipping.programs.clients.client_sampling import (
  build_private_sampler,
)
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  RoundError,
  StopReason,
  TrainingProgram,
)
from tff_clipping.storage_errors import StorageError

# Where a program is killed: what is called, and whether it is done by then.
_STAGES = {
  'before the outcome': (Checkpoints, 'save', False),
  'before the charge': (Checkpoints, 'save', True),
  'before the release': (privacy.PrivacyLedger, 'charge', True),
}


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is saved on the way out."""


class _Run:
  """A run in a folder, killed and started again, and all that it released."""

  def __init__(self, folder, plan, noise_key=None):
    self.folder = folder
    self.plan = plan
    self._process = noised_scalar.build_process(plan, noise_key)
    # The weights that left the trusted side, by round and draw.
    self.released = collections.defaultdict(set)

  def run(self, kill_after=None, num_rounds=None):
    """Runs until the end, or until a round has released its weights."""
    sampler = build_private_sampler(self.plan, noised_scalar.IDS, seed=3)
    with privacy.PrivacyLedger(
      self.folder / 'ledger.jsonl', self.plan
    ) as ledger:

      def evaluate(weights):
        outcomes = program.checkpoints.outcomes()
        if outcomes:
          last = outcomes[-1]
          weight = np.float32(weights.trainable[0])
          draw = last.round_num, last.charge.draw
          self.released[draw].add(weight.tobytes())
          if last.round_num == kill_after:
            raise _Killed
        return dict(test_accuracy=0.0, test_loss=1.0)

      program = TrainingProgram(
        process=self._process,
        sampler=sampler,
        client_value=lambda c: np.float32(c == '0'),
        num_rounds=num_rounds or self.plan.num_rounds,
        evaluate=evaluate,
        checkpoints=Checkpoints(self.folder / 'checkpoints'),
        watchers=[MetricsFiles(self.folder / 'metrics.csv')],
        ledger=ledger,
      )
      try:
        return program.run()
      except _Killed:
        return None
      finally:
        self.charged = [tuple(draw) for _, *draw in ledger.releases]
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
    return accountant.get_epsilon(noised_scalar.DELTA)


def _kill_at(monkeypatch, run, stage, round_num):
  """Runs until a stage of a round, where the program is killed."""
  owner, name, is_done = _STAGES[stage]
  call = getattr(owner, name)

  def killing(self, *args, **kwargs):
    is_there = round_num in args
    if is_there and not is_done:
      raise _Killed
    result = call(self, *args, **kwargs)
    if is_there:
      raise _Killed
    return result

  with monkeypatch.context() as patch:
    patch.setattr(owner, name, killing)
    assert run.run() is None


def _assert_charged_once(run):
  """Every release is charged once, at its exact cost at least."""
  assert len(set(run.charged)) == len(run.charged)
  assert run.released.keys() <= set(run.charged)
  assert all(len(looks) == 1 for looks in run.released.values())
  if run.plan.sampling == 'poisson':
    assert run.exact_epsilon() <= run.epsilon * (1 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('sampling', ['poisson', 'random_allocation'])
def test_kills_at_each_stage_cost_no_round_and_no_epsilon(
  tmp_path, monkeypatch, sampling
):
  plan = noised_scalar.plan(sampling=sampling)
  run = _Run(tmp_path, plan)
  for round_num, stage in enumerate([*_STAGES, *_STAGES], start=1):
    # Twice at the same place, and once when the round was released.
    _kill_at(monkeypatch, run, stage, round_num)
    if stage == 'before the outcome':
      _kill_at(monkeypatch, run, stage, round_num)
    assert run.run(kill_after=round_num) is None
  assert run.run().reason is StopReason.FINISHED
  assert run.charged == [(t, 0) for t in range(1, 13)]
  assert run.released.keys() == {*run.charged}
  assert run.epsilon == plan.epsilon <= 2.0
  assert not run.caveats
  _assert_charged_once(run)
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(13))
  assert metrics['test_loss'].notna().all()
  assert metrics['epsilon'].is_monotonic_increasing


@pytest.mark.slow
def test_a_stopped_run_ends_at_its_last_round_with_every_row_evaluated(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, noised_scalar.plan())
  charge = privacy.PrivacyLedger.charge

  def stop(self, round_num, *args, **kwargs):
    epsilon = charge(self, round_num, *args, **kwargs)
    if round_num == 8:
      # Ctrl-C at the worst moment: charged, and nothing released yet.
      signal.raise_signal(signal.SIGTERM)
    return epsilon

  with monkeypatch.context() as patch:
    patch.setattr(privacy.PrivacyLedger, 'charge', stop)
    result = run.run()
  assert result.reason is StopReason.INTERRUPTED
  assert [draw[0] for draw in run.charged] == list(range(1, 9))
  assert run.run().reason is StopReason.FINISHED
  assert run.charged == [(t, 0) for t in range(1, 13)]
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(13))
  assert metrics['test_loss'].notna().all()
  _assert_charged_once(run)


@pytest.mark.slow
def test_a_restored_disk_makes_new_draws_that_are_charged(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
  run.run(num_rounds=5)
  shutil.copytree(tmp_path / 'checkpoints', tmp_path / 'backup')
  run.run(num_rounds=7)
  shutil.rmtree(tmp_path / 'checkpoints')
  shutil.copytree(tmp_path / 'backup', tmp_path / 'checkpoints')
  result = run.run()
  # Rounds 6 and 7 are drawn anew, and the plan has no release left for them.
  rounds = [*((t, 0) for t in range(1, 8)), (6, 1), (7, 1)]
  assert run.charged == [*rounds, (8, 0), (9, 0), (10, 0)]
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert result.round_num == 10
  _assert_charged_once(run)


@pytest.mark.slow
def test_a_restored_disk_ends_a_run_of_random_allocation(tmp_path):
  # With round 6 drawn anew, client 0 might come a second time in its epoch.
  plan = noised_scalar.plan(sampling='random_allocation')
  run = _Run(tmp_path, plan)
  run.run(num_rounds=5)
  shutil.copytree(tmp_path / 'checkpoints', tmp_path / 'backup')
  run.run(num_rounds=7)
  shutil.rmtree(tmp_path / 'checkpoints')
  shutil.copytree(tmp_path / 'backup', tmp_path / 'checkpoints')
  with pytest.raises(RoundError, match='cannot be drawn anew'):
    run.run()
  assert run.charged == [(t, 0) for t in range(1, 8)]
  assert all(len(looks) == 1 for looks in run.released.values())


@pytest.mark.slow
def test_a_damaged_outcome_is_a_new_draw(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
  run.run(num_rounds=11)
  (path,) = (tmp_path / 'checkpoints').glob('*round_11.state')
  path.write_bytes(b'{}')
  assert run.run().reason is StopReason.BUDGET_EXHAUSTED
  assert run.charged[-2:] == [(11, 0), (11, 1)]
  _assert_charged_once(run)


@pytest.mark.slow
def test_a_run_without_its_outcomes_is_refused_and_costs_nothing(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
  run.run(kill_after=3)
  shutil.rmtree(tmp_path / 'checkpoints')
  with pytest.raises(StorageError, match='no outcome is left'):
    run.run()
  assert [draw[0] for draw in run.charged] == [1, 2, 3]


@pytest.mark.slow
def test_one_cohort_looked_at_twice_would_cost_more_than_two_draws(tmp_path):
  """The cost that the rules above are for; it also shows that it is seen."""
  run = _Run(tmp_path, noised_scalar.plan())
  for round_num in range(1, 7):
    run.released[round_num, 0] = {b'1', b'2'}
  assert run.exact_epsilon() > 1.1 * run.plan.epsilon_after(12)
