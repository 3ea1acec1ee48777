"""Tests of runs that are killed, on disks that are full, with damaged files.

The runs are processes of their own; see `fault_program`.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import types

import pandas as pd
import pytest

from tests import processes
from tests.privacy.ledgers import read_releases
from tff_clipping import privacy
from tff_clipping.privacy.ledger import ledger_contents, ledger_file
from tff_clipping.programs.training.checkpoints import Checkpoints

_ROOT = pathlib.Path(__file__).parent.parent.parent
_KILLED = -9


class _Server:
  """A process that starts runs."""

  def __init__(self, folder):
    self._log = folder / 'log'
    self._process = subprocess.Popen(
      [sys.executable, '-m', 'tests.programs.fault_program'],
      cwd=_ROOT,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'OMP_NUM_THREADS': '1'},
    )

  def run(self, kind, **settings):
    """Returns the status of a run, and what it wrote down."""
    self._log.unlink(missing_ok=True)
    run = dict(kind=kind, log=str(self._log), **settings)
    self._process.stdin.write(json.dumps(run) + '\n')
    self._process.stdin.flush()
    status = json.loads(self._process.stdout.readline())
    events = []
    if self._log.exists():
      events = [json.loads(x) for x in self._log.read_text().splitlines()]
    return types.SimpleNamespace(
      status=status,
      end=events[-1][1:] if events and events[-1][0] == 'end' else None,
      error=events[-1][1]
      if events and events[-1][0] == 'storage error'
      else None,
      released=[e[1] for e in events if e[0] == 'release'],
      saved={e[1]: e[2] for e in events if e[0] == 'save'},
    )

  def run_small(self, folder, num_rounds, **settings):
    return self.run(
      'small', folder=str(folder), num_rounds=num_rounds, **settings
    )

  def close(self):
    self._process.stdin.close()
    self._process.wait(timeout=60)


@pytest.fixture(scope='module')
def server(tmp_path_factory):
  server = _Server(tmp_path_factory.mktemp('server'))
  yield server
  server.close()


@pytest.fixture(scope='module')
def expected(server, tmp_path_factory):
  """The state after each round of a run that never stopped."""
  run = server.run_small(tmp_path_factory.mktemp('expected') / 'run', 40)
  assert run.status == 0
  assert sorted(run.saved) == list(range(1, 41))
  assert len(set(run.saved.values())) == 40
  return run.saved


def _charged(folder):
  """The rounds of the releases that a ledger has charged."""
  path = folder / 'ledger.jsonl'
  lines, _ = ledger_file.read_lines(path)
  return [each.round_num for each in ledger_contents.read_releases(path, lines)]


def _assert_charged_before_released(run, folder):
  """Checks a run that was killed, before anything mends its ledger."""
  path = folder / 'ledger.jsonl'
  lines = path.read_text().splitlines(keepends=True) if path.exists() else []
  charged = {json.loads(x).get('round_num') for x in lines if x.endswith('\n')}
  assert set(run.released) <= charged


def _assert_in_order(folder, num_rounds):
  """Checks the files of a run of `run_small` that has ended."""
  metrics = pd.read_csv(folder / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(num_rounds + 1))
  rounds = [max(1, num_rounds - 1), num_rounds]
  # A kill may leave one more, which the next round removes.
  found = Checkpoints(folder / 'checkpoints').rounds()
  assert found[-2:] == rounds[-num_rounds:]
  names = {'ledger.jsonl', 'ledger.jsonl.seal', 'metrics.csv', 'tb'}
  assert {p.name for p in folder.iterdir()} == {*names, 'checkpoints'}


def _fill(path, but):
  """Takes all the space of a disk, but for so many bytes."""
  free = os.statvfs(path)
  with open(path / 'filler', 'wb') as file:
    file.write(bytes(max(free.f_bavail * free.f_frsize - but, 0)))


@pytest.mark.slow
def test_a_killed_run_goes_on(server, expected, tmp_path):
  for kill_at in (20, 30, 45):
    run = server.run_small(tmp_path / 'run', 4, kill_at=kill_at)
    assert run.status == _KILLED
    _assert_charged_before_released(run, tmp_path / 'run')
  run = server.run_small(tmp_path / 'run', 4)
  assert run.status == 0
  assert run.end[:2] == [4, expected[4]]
  assert _charged(tmp_path / 'run') == [1, 2, 3, 4]
  _assert_in_order(tmp_path / 'run', 4)


@pytest.mark.slow
def test_a_killed_run_has_what_its_clients_keep(server, tmp_path):
  begun, folder = tmp_path / 'begun', tmp_path / 'run'
  assert server.run_small(begun, 2, keeps=True).status == 0
  shutil.copytree(begun, folder)
  whole = server.run_small(folder, 4, keeps=True)
  assert whole.end[0] == 4
  # At changes of the file system all over a round: before and after the
  # charge, in the midst of the states, between them and the checkpoint, and in
  # the midst of dropping what no checkpoint needs.
  num_changes = whole.end[2]
  for kill_at in range(num_changes // 20, num_changes, num_changes // 10):
    shutil.rmtree(folder)
    shutil.copytree(begun, folder)
    run = server.run_small(folder, 4, keeps=True, kill_at=kill_at)
    assert run.status == _KILLED
    _assert_charged_before_released(run, folder)
    run = server.run_small(folder, 4, keeps=True)
    # The model and what the clients keep, bit for bit.
    assert run.end[1] == whole.end[1], kill_at
    assert run.end[3] == whole.end[3], kill_at
    assert _charged(folder) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_run_goes_on(
  server, expected, tmp_path
):
  with processes.mounted(tmp_path / 'disk', 'size=2m') as disk:
    assert server.run_small(disk / 'run', 2).status == 0
    for but in (0, 4096, 8192, 12288):
      _fill(disk, but)
      run = server.run_small(disk / 'run', 40)
      (disk / 'filler').unlink()
      assert run.status == 5, but
      assert 'could not be written: ' in run.error
      assert 'No space left on device' in run.error
      assert '\n' not in run.error
      # What is there is whole, and nothing else is there.
      pd.read_csv(disk / 'run' / 'metrics.csv')
      left = {p.name for p in (disk / 'run').rglob('*')}
      assert not [name for name in left if '_temp' in name]
      assert '.unfinished' not in left
    run = server.run_small(disk / 'run', 40)
    assert run.status == 0
    assert run.end[:2] == [40, expected[40]]


@pytest.mark.slow
def test_killed_at_every_step_of_the_first_rounds(server, expected, tmp_path):
  """Every change of the file system, from the empty folder on."""
  steps = server.run_small(tmp_path / 'all', 1, kill_at=0).end[2]
  assert steps > 30
  for kill_at in range(1, steps + 1):
    folder = tmp_path / str(kill_at)
    _assert_goes_on(server, expected, folder, kill_at)


@pytest.mark.slow
def test_killed_at_every_step_of_a_later_round(server, expected, tmp_path):
  before = tmp_path / 'before'
  assert server.run_small(before, 3).status == 0
  shutil.copytree(before, tmp_path / 'all')
  steps = server.run_small(tmp_path / 'all', 4, kill_at=0).end[2]
  assert steps > 20
  for kill_at in range(1, steps + 1):
    folder = tmp_path / str(kill_at)
    shutil.copytree(before, folder)
    _assert_goes_on(server, expected, folder, kill_at, num_rounds=4)


def _assert_goes_on(server, expected, folder, kill_at, num_rounds=1):
  """Kills a run at a step and finishes it."""
  killed = server.run_small(folder, num_rounds, kill_at=kill_at)
  assert killed.status == _KILLED, kill_at
  _assert_charged_before_released(killed, folder)
  run = server.run_small(folder, num_rounds)
  assert run.status == 0, kill_at
  assert run.end[:2] == [num_rounds, expected[num_rounds]], kill_at
  # A line that the kill cut short counts as well; all others count once.
  charged = [t for t in _charged(folder) if t is not None]
  assert charged == list(range(1, num_rounds + 1)), kill_at
  assert len(_charged(folder)) <= num_rounds + 1, kill_at
  _assert_in_order(folder, num_rounds)


@pytest.mark.slow
def test_killed_twenty_times_at_random(server, expected, tmp_path):
  rng = random.Random(0)
  kills, finished = 0, 0
  while kills < 20:
    folder = tmp_path / f'run_{finished}'
    run = server.run_small(folder, 40, kill_after=rng.uniform(0.2, 1.5))
    if run.status == _KILLED:
      kills += 1
      continue
    assert run.status == 0
    finished += 1
    assert run.end[:2] == [40, expected[40]]
    charged = [t for t in _charged(folder) if t is not None]
    assert charged == list(range(1, 41))
    _assert_in_order(folder, 40)
  run = server.run_small(tmp_path / f'run_{finished}', 40)
  assert run.end[:2] == [40, expected[40]]


_CONFIG = dict(
  task='embedded_digits',
  partition='label_skew',
  num_clients=40,
  examples_per_client=10,
  model='mlp',
  algorithm='dp_fed_avg',
  clients_per_round=8,
  num_rounds=18,
  local_steps=2,
  batch_size=5,
  client_learning_rate=0.1,
  server_optimizer='adam',
  server_learning_rate=0.01,
  clipping_norm=1.0,
  target_epsilon=8.0,
  target_delta=1e-3,
  sampling='poisson',
  sampling_seed=5,
  update_rounds=list(range(18)),
  simulation_diagnostics=True,
)

_STAGES = (
  'before the outcome',
  'in the outcome',
  'before the charge',
  'after the charge',
  'after the round',
  'after the updates',
  'after the CSV file',
  'after all metrics',
)


@pytest.mark.slow
@pytest.mark.parametrize(
  'noise',
  [
    dict(mechanism='gaussian'),
    dict(mechanism='blt', sampling='min_separation', min_separation=5),
  ],
)
def test_an_experiment_killed_at_each_stage_of_a_round(server, tmp_path, noise):
  settings = dict(config=_CONFIG | noise, cache_dir=str(tmp_path / 'cache'))
  whole = server.run(
    'experiment', folder=str(tmp_path / 'whole'), noise_key=[7, 8], **settings
  )
  assert whole.end[0] == 18
  assert whole.end[2] == 'finished'
  folder = tmp_path / 'run'
  for round_num, stage in enumerate(_STAGES, start=1):
    run = server.run(
      'experiment',
      folder=str(folder),
      noise_key=[7, 8],
      stage=stage,
      round_num=round_num,
      **settings,
    )
    assert run.status == _KILLED, stage
  run = server.run(
    'experiment',
    folder=str(folder),
    noise_key=[7, 8],
    **settings,
  )
  # Nothing was charged twice, and the model is that of a run that never
  # stopped, bit for bit.
  assert run.end == whole.end
  for read, name in (
    (read_releases, 'ledger.jsonl'),
    (pathlib.Path.read_bytes, 'privacy.json'),
  ):
    assert read(folder / name) == read(tmp_path / 'whole' / name)
  metrics, expected = (
    pd.read_csv(f / 'metrics.csv') for f in (folder, tmp_path / 'whole')
  )
  # Of a round that is recorded again, what its clients did is not known.
  columns = ['round_num', 'epsilon', 'test_accuracy', 'test_loss']
  columns += [name for name in expected if name.startswith('aggregator/')]
  pd.testing.assert_frame_equal(metrics[columns], expected[columns])


@pytest.mark.slow
def test_a_cut_ledger_line_counts_and_a_changed_one_is_refused(
  server, expected, tmp_path
):
  folder = tmp_path / 'run'
  assert server.run_small(folder, 2).status == 0
  ledger = folder / 'ledger.jsonl'
  whole = ledger.read_bytes()
  # As a crash leaves it: the next line was begun.
  ledger.write_bytes(whole + whole.splitlines(keepends=True)[-1][:30])
  run = server.run_small(folder, 3)
  # The line may have been of round 3: its cohort is another one.
  assert run.end[0] == 3
  assert run.end[1] != expected[3]
  assert _charged(folder) == [1, 2, None, 3]

  for damaged in (_flip(ledger.read_bytes(), 100), whole):
    shutil.rmtree(tmp_path / 'copy', ignore_errors=True)
    shutil.copytree(folder, tmp_path / 'copy')
    (tmp_path / 'copy' / 'ledger.jsonl').write_bytes(damaged)
    with pytest.raises(privacy.DamagedLedgerError, match='Line .* is damaged'):
      _open_ledger(tmp_path / 'copy')

  # Nor can it be left out.
  for file in folder.glob('ledger.jsonl*'):
    file.unlink()
  run = server.run_small(folder, 4)
  assert run.status == 5
  assert 'is of another ledger' in run.error


def _open_ledger(folder):
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=8,
    clients_per_round=4,
    num_rounds=1000,
    noise_multiplier=1.0,
    target_delta=1e-3,
  )
  with privacy.PrivacyLedger(folder / 'ledger.jsonl', plan):
    pass


def _flip(data, place):
  return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
