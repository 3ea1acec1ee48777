"""Tests of runs that are killed and go on, with the exact cost of the releases.

In the runs here client 0 sends the clipping norm and all others send zeros, so
the exact privacy loss of what a program released is known: it is that of
Poisson-sampled Gaussians, one for each cohort that was looked at, whose noise
is divided by the root of the number of looks.
"""

import collections
import signal

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from dp_accounting import pld

from tests.privacy.ledgers import read_releases
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


class _Killed(BaseException):  # noqa: N818
  """Stands for a kill: nothing is saved on the way out."""


class _Run:
  """A run in a folder, killed and started again, and all that it released."""

  def __init__(self, folder, plan, noise_key='drawn'):
    self._folder = folder
    self.plan = plan
    self._process = noised_scalar.build_process(plan, noise_key)
    # The weights that left the trusted side, by the cohort they came from.
    self.released = collections.defaultdict(set)

  def run(self, kill_after=None, num_rounds=None, noise_key=None):
    """Runs until the end, or until a round has released its weights."""
    sampler = _Recorded(
      build_private_sampler(self.plan, noised_scalar.IDS, seed=3)
    )
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
      process = noised_scalar.build_process(self.plan, noise_key)
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
        watchers=[
          MetricsFiles(
            self._folder / 'metrics.csv',
            tensorboard_dir=self._folder / 'tensorboard',
          )
        ],
        ledger=ledger,
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
    return accountant.get_epsilon(noised_scalar.DELTA)


class _Recorded:
  """A sampler that knows what it drew last."""

  def __init__(self, sampler):
    self._sampler = sampler
    self.charged_as = sampler.charged_as
    self.digest = sampler.digest
    self.last = None

  def sample(self, round_num, *draw):
    # Earlier rounds are asked for to check who came in them.
    self.last = max(self.last or (0, 0), (round_num, *(draw or (0,))))
    return self._sampler.sample(round_num, *draw)


def _assert_charged(run):
  """Every release is charged, and the charge is at least its exact cost."""
  assert sum(len(looks) for looks in run.released.values()) == len(run.charged)
  assert run.exact_epsilon() <= run.epsilon * (1 + 1e-3)


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_never_stopped_at_the_same_cost(tmp_path):
  plan, key = noised_scalar.plan(), (1, 2)
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


@pytest.mark.slow
def test_a_stopped_run_ends_at_its_last_round_with_every_row_evaluated(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, noised_scalar.plan())
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


@pytest.mark.slow
def test_the_key_is_that_of_the_checkpoint_not_of_the_new_program(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
  run.run(kill_after=7)
  result = run.run(noise_key='drawn')
  assert result.reason is StopReason.FINISHED
  assert run.charged == list(range(1, 13))
  _assert_charged(run)


@pytest.mark.slow
def test_kills_show_no_round_of_random_allocation_twice(tmp_path):
  plan = noised_scalar.plan(sampling='random_allocation')
  run = _Run(tmp_path, plan, (1, 2))
  for kill_after in (1, 4, 4, 7, 9, 12):
    assert run.run(kill_after) is None
  assert run.run().reason is StopReason.FINISHED
  # One look at each round, of the first draw: the epochs that are charged.
  assert run.released.keys() == {(t, 0) for t in range(1, 13)}
  assert all(len(looks) == 1 for looks in run.released.values())
  assert run.charged == list(range(1, 13))
  assert run.epsilon == plan.epsilon <= 2.0


@pytest.mark.slow
def test_fresh_noise_ends_a_run_of_random_allocation_where_it_repeats(tmp_path):
  # With round 7 drawn anew, client 0 might come a second time in its epoch.
  plan = noised_scalar.plan(sampling='random_allocation')
  run = _Run(tmp_path, plan, noise_key=None)
  run.run(kill_after=7)
  with pytest.raises(RoundError, match='cannot be drawn anew'):
    run.run()
  assert run.charged == list(range(1, 8))
  assert run.released.keys() == {(t, 0) for t in range(1, 8)}
  assert all(len(looks) == 1 for looks in run.released.values())


@pytest.mark.slow
def test_fresh_noise_makes_a_repeated_round_a_new_draw_that_is_charged(
  tmp_path,
):
  run = _Run(tmp_path, noised_scalar.plan(), noise_key=None)
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


@pytest.mark.slow
def test_what_the_first_draw_of_a_round_was_is_never_released_again(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan(num_rounds=20), noise_key=None)
  for kill_after in (7, 6, 7, 6):
    run.run(kill_after)
  result = run.run()
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_nothing_either(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
  run.run(num_rounds=11)
  path = tmp_path / 'checkpoints' / 'round_11' / 'sha256.json'
  path.write_text('{}')
  assert run.run().reason is StopReason.FINISHED
  assert run.charged == list(range(1, 13))
  _assert_charged(run)


@pytest.mark.slow
def test_without_any_checkpoint_all_rounds_are_drawn_anew(tmp_path):
  run = _Run(tmp_path, noised_scalar.plan())
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


@pytest.mark.slow
def test_one_cohort_looked_at_twice_would_cost_more_than_two_draws(tmp_path):
  """The cost that the rules above are for; it also shows that it is seen."""
  run = _Run(tmp_path, noised_scalar.plan())
  for round_num in range(1, 7):
    run.released[round_num, 0] = {b'1', b'2'}
  assert run.exact_epsilon() > 1.1 * run.plan.epsilon_after(12)


@pytest.mark.slow
def test_moves_back_and_forth_are_charged_and_tell_nothing(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, noised_scalar.plan(num_rounds=20))
  for name, kill_after in (('a', 7), ('b', 6), ('a', 7), ('a', None)):
    noised_scalar.set_environment(monkeypatch, name)
    result = run.run(kill_after)
  # Round 6 in b, and again in a; round 7 from another state than before.
  assert run.charged[5:10] == [6, 7, 6, 6, 7]
  assert run.charged[10:12] == [8, 9]
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert not run.caveats
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)


@pytest.mark.slow
def test_a_run_that_goes_on_elsewhere_is_charged_for_what_it_repeats(
  tmp_path, monkeypatch
):
  run = _Run(tmp_path, noised_scalar.plan())
  noised_scalar.set_environment(monkeypatch, 'a')
  run.run(kill_after=7)
  noised_scalar.set_environment(monkeypatch, 'b')
  run.run(kill_after=8)
  # From the checkpoint of round 5 again, where its rounds were charged last.
  result = run.run()
  assert run.charged == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10]
  assert not run.caveats
  assert result.reason is StopReason.BUDGET_EXHAUSTED
  assert all(len(looks) == 1 for looks in run.released.values())
  _assert_charged(run)
