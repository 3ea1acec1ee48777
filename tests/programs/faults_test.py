"""Tests of runs that are really killed, and of disks that are full or odd.

The runs are processes of their own, whose clients keep something; see
`fault_program`.
"""

import errno
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest

from tests import processes
from tests.programs import fault_program
from tff_clipping import atomic_files, privacy, programs
from tff_clipping.privacy.ledger import ledger_contents, ledger_file

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

  def run(self, folder, num_rounds, **settings):
    """Returns the status of a run, and what it wrote down."""
    self._log.unlink(missing_ok=True)
    run = dict(
      folder=str(folder), num_rounds=num_rounds, log=str(self._log), **settings
    )
    self._process.stdin.write(json.dumps(run) + '\n')
    self._process.stdin.flush()
    status = json.loads(self._process.stdout.readline())
    events = []
    if self._log.exists():
      events = [json.loads(x) for x in self._log.read_text().splitlines()]
    last = events[-1] if events else [None]
    return types.SimpleNamespace(
      status=status,
      end=last[1:] if last[0] == 'end' else None,
      error=last[1] if last[0] == 'storage error' else None,
      released=[e[1] for e in events if e[0] == 'release'],
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
  """Model and states of clients after some rounds of a run without kills."""
  folder = tmp_path_factory.mktemp('expected') / 'run'
  ends = {t: server.run(folder, t).end[1] for t in (1, 3, 4, 40)}
  assert len(set(ends.values())) == 4
  return ends


def _charged(folder):
  """The rounds of the releases that a ledger has charged."""
  path = folder / 'ledger.jsonl'
  lines, _ = ledger_file.read_lines(path)
  return [
    each.round_num for each in ledger_contents.parse(path, lines).releases
  ]


def _assert_charged_before_released(run, folder):
  """Checks a run that was killed, before anything mends its ledger."""
  path = folder / 'ledger.jsonl'
  lines = path.read_text().splitlines(keepends=True) if path.exists() else []
  charged = {json.loads(x).get('round_num') for x in lines if x.endswith('\n')}
  assert set(run.released) <= charged


def _assert_in_order(run, folder, num_rounds, expected):
  """Checks a run that has ended, and its files."""
  assert run.status == 0
  assert run.end[:2] == [num_rounds, expected[num_rounds]]
  assert _charged(folder) == list(range(1, num_rounds + 1))
  metrics = pd.read_csv(folder / 'metrics.csv')
  assert metrics['round_num'].tolist() == list(range(num_rounds + 1))
  rounds = [max(1, num_rounds - 1), num_rounds]
  # A kill may leave one more, which the next round removes.
  found = programs.Checkpoints(folder / 'checkpoints').rounds()
  assert found[-2:] == rounds[-num_rounds:]
  names = {'ledger.jsonl', 'ledger.jsonl.seal', 'metrics.csv', 'states'}
  assert {p.name for p in folder.iterdir()} == {*names, 'checkpoints'}


@pytest.mark.slow
@pytest.mark.parametrize('begun', [0, 3])
def test_killed_at_every_change_of_the_file_system(
  server, expected, tmp_path, begun
):
  """Of the first round, from the empty folder on, and of a later one."""
  before = tmp_path / 'before'
  if begun:
    assert server.run(before, begun).status == 0
  else:
    before.mkdir()
  shutil.copytree(before, tmp_path / 'all')
  steps = server.run(tmp_path / 'all', begun + 1, kill_at=0).end[2]
  assert steps > 20
  for kill_at in range(1, steps + 1):
    folder = tmp_path / str(kill_at)
    shutil.copytree(before, folder)
    killed = server.run(folder, begun + 1, kill_at=kill_at)
    assert killed.status == _KILLED, kill_at
    _assert_charged_before_released(killed, folder)
    run = server.run(folder, begun + 1)
    _assert_in_order(run, folder, begun + 1, expected)


@pytest.mark.slow
def test_killed_twenty_times_at_random(server, expected, tmp_path):
  rng = random.Random(0)
  kills, finished = 0, 0
  while kills < 20:
    folder = tmp_path / f'run_{finished}'
    run = server.run(folder, 40, kill_after=rng.uniform(0.05, 0.6))
    if run.status == _KILLED:
      _assert_charged_before_released(run, folder)
      kills += 1
      continue
    _assert_in_order(run, folder, 40, expected)
    finished += 1
  folder = tmp_path / f'run_{finished}'
  _assert_in_order(server.run(folder, 40), folder, 40, expected)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_run_goes_on(
  server, expected, tmp_path
):
  with processes.mounted(tmp_path / 'disk', 'size=2m') as disk:
    assert server.run(disk / 'run', 2).status == 0
    for but in (0, 4096, 8192, 12288):
      free = os.statvfs(disk)
      with open(disk / 'filler', 'wb') as file:
        file.write(bytes(max(free.f_bavail * free.f_frsize - but, 0)))
      run = server.run(disk / 'run', 40)
      (disk / 'filler').unlink()
      assert run.status == 5, but
      assert 'could not be written: ' in run.error
      assert 'No space left on device' in run.error
      assert '\n' not in run.error
      # What is there is whole, and nothing else is there.
      pd.read_csv(disk / 'run' / 'metrics.csv')
      left = {p.name for p in (disk / 'run' / 'checkpoints').iterdir()}
      assert all(name.endswith('.state') for name in left)
    run = server.run(disk / 'run', 40)
    assert run.status == 0
    assert run.end[:2] == [40, expected[40]]


@pytest.mark.slow
def test_a_cut_ledger_line_counts_and_a_changed_one_is_refused(
  server, expected, tmp_path
):
  folder = tmp_path / 'run'
  assert server.run(folder, 2).status == 0
  ledger = folder / 'ledger.jsonl'
  whole = ledger.read_bytes()
  # As a crash leaves it: the next line was begun.
  ledger.write_bytes(whole + whole.splitlines(keepends=True)[-1][:30])
  run = server.run(folder, 3)
  # The line may have been of round 3: its cohort is another one.
  assert run.end[0] == 3
  assert run.end[1] != expected[3]
  assert _charged(folder) == [1, 2, None, 3]
  flipped = bytearray(ledger.read_bytes())
  flipped[100] ^= 1
  for damaged in (bytes(flipped), whole):
    ledger.write_bytes(damaged)
    with pytest.raises(privacy.DamagedLedgerError, match='Line .* is damaged'):
      privacy.PrivacyLedger(ledger, fault_program.plan())
  # Nor can it be left out.
  for file in folder.glob('ledger.jsonl*'):
    file.unlink()
  run = server.run(folder, 4)
  assert run.status == 5
  assert 'is of another ledger' in run.error


def _fail(monkeypatch, is_failing, code):
  """Lets the syncs of some paths fail with an error of the file system."""
  fsync = os.fsync

  def failing(descriptor):
    path = pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}'))
    if is_failing(path):
      raise OSError(code, os.strerror(code))
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', failing)
  monkeypatch.setattr(atomic_files, '_WARNED', set())


@pytest.mark.parametrize('code', [errno.EINVAL, errno.ENOTSUP])
def test_a_disk_that_cannot_sync_folders_is_named_once(
  tmp_path, monkeypatch, code
):
  _fail(monkeypatch, pathlib.Path.is_dir, code)

  def save_and_charge():
    store = programs.Checkpoints(tmp_path / 'outcomes')
    store.save(np.float32(1), 1)
    with privacy.PrivacyLedger(
      tmp_path / 'ledger.jsonl', fault_program.plan()
    ) as ledger:
      ledger.charge(1, 'an id')

  with pytest.warns(UserWarning, match='cannot sync folders: after') as caught:
    save_and_charge()
  assert len(caught) == 1
  assert str(tmp_path) in str(caught[0].message)


def test_a_file_that_cannot_be_synced_is_named(tmp_path, monkeypatch):
  _fail(monkeypatch, pathlib.Path.is_file, errno.EINVAL)
  with pytest.raises(OSError, match='metrics.csv'):
    (tmp_path / 'metrics.csv').write_text('')
    atomic_files.sync(tmp_path / 'metrics.csv')
  store = programs.Checkpoints(tmp_path / 'outcomes')
  with pytest.raises(programs.StorageError, match='round 1 could not be writt'):
    store.save(np.float32(1), 1)
  assert store.rounds() == []
