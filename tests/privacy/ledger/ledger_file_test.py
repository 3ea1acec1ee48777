"""Tests of privacy.ledger.ledger_file, by the ledger that it is for."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.privacy.ledgers import (
  PLAN,
  ROOT,
  SETTING,
  charge,
  correlated_plan,
  new_id,
)
from tff_clipping import privacy


def test_line_is_synced_before_charge_returns(path, monkeypatch):
  events = []
  fsync, replace = os.fsync, os.replace

  def record_fsync(descriptor):
    fsync(descriptor)
    events.append('sync')

  def record_replace(source, target):
    replace(source, target)
    events.append('seal')

  with privacy.PrivacyLedger(path, PLAN) as ledger:
    monkeypatch.setattr(os, 'fsync', record_fsync)
    monkeypatch.setattr(os, 'replace', record_replace)
    ledger.charge(0, new_id())
  # The line; the new seal; after its renaming, the folder.
  assert events == ['sync', 'sync', 'seal', 'sync']


def damage_line(path, number, change):
  """Applies `change` to the bytes of one line."""
  lines = path.read_bytes().splitlines(keepends=True)
  lines[number - 1] = change(lines[number - 1])
  path.write_bytes(b''.join(lines))


DAMAGE = {
  'a digit': lambda line: line.replace(b'"round_num":1', b'"round_num":9'),
  'epsilon': lambda line: line.replace(b'"epsilon":', b'"epsilon":0'),
  'a space': lambda line: line.replace(b':', b': ', 1),
  'not JSON': lambda line: b'#' + line,
  'empty': lambda line: b'\n',
  'removed': lambda line: b'',
  'doubled': lambda line: line + line,
  'NaN': lambda line: b'NaN\n',
  'list': lambda line: b'[]\n',
  'deep': lambda line: b'[' * 100_000 + b'\n',
  'binary': lambda line: b'\xff\x00\n',
  'no end': lambda line: line[:-1],
}


def open_ledger(path):
  privacy.PrivacyLedger(path, PLAN)


READERS = [privacy.read_ledger, open_ledger]


@pytest.mark.parametrize(
  ('damage', 'number'), [*((each, 3) for each in DAMAGE), ('list', 1)]
)
def test_damaged_line_is_refused_with_its_number(path, damage, number):
  charge(path, [0, 1, 2])
  damage_line(path, number, DAMAGE[damage])
  # A whole line that is another one is told by the next, which has its digest.
  number += damage in ('a digit', 'doubled')
  for read in READERS:
    with pytest.raises(privacy.DamagedLedgerError, match=f'^Line {number} of '):
      read(path)


@pytest.mark.parametrize('read', READERS)
def test_every_truncation_is_refused_with_the_line_that_is_missing(path, read):
  charge(path, [0, 1])
  data = path.read_bytes()
  ends = [place + 1 for place, byte in enumerate(data) if byte == ord('\n')]
  for size in [*range(0, len(data), 97), *ends[:-1], len(data) - 1]:
    path.write_bytes(data[:size])
    line = 1 + data[:size].count(b'\n')
    with pytest.raises(privacy.DamagedLedgerError, match=f'^Line {line} of '):
      read(path)
  path.write_bytes(data)
  charge(path, [2])


def test_a_long_first_line_that_was_cut_short_starts_anew(path):
  # Of a plan whose strategy has many coefficients.
  privacy.PrivacyLedger(path, PLAN).close()
  seal = path.with_name('ledger.jsonl.seal')
  path.write_bytes(b'{"line":1,' + 70_000 * b' ')
  seal.write_text('{"lines":0,"digest":""}')
  charge(path, [1])
  assert privacy.read_ledger(path).num_releases == 1


def restore_seal(path, seal, older):
  # A line that is whole and one that was cut short, of which one is sealed.
  seal.write_bytes(older[1])
  path.write_bytes(path.read_bytes() + b'{"line":5')


def put_another_run(path, seal, older):
  other = path.with_name('other.jsonl')
  charge(other, [0, 1, 2])
  path.write_bytes(other.read_bytes())


@pytest.mark.parametrize('read', READERS)
@pytest.mark.parametrize(
  ('change', 'message'),
  [
    *(
      (
        lambda path, seal, older, damaged=damaged: seal.write_bytes(damaged),
        'Line 1 of .*seal',
      )
      for damaged in (b'', b'{}', b'{"lines":-1,"digest":""}', b'9')
    ),
    (lambda path, seal, older: seal.unlink(), 'seal .* is missing'),
    (
      lambda path, seal, older: path.write_bytes(older[0]),
      '4 lines were written',
    ),
    (restore_seal, 'never sealed'),
    (put_another_run, 'Line 4 of .* not the line that was sealed'),
    (
      lambda path, seal, older: path.write_bytes(
        path.read_bytes() + b'{' * 70_000
      ),
      '70000 bytes and no end',
    ),
  ],
)
def test_a_file_that_is_damaged_or_older_or_has_no_seal_is_refused(
  path, change, message, read
):
  seal = path.with_name('ledger.jsonl.seal')
  charge(path, [0, 1])
  older = path.read_bytes(), seal.read_bytes()
  charge(path, [2])
  change(path, seal, older)
  with pytest.raises(privacy.DamagedLedgerError, match=message):
    read(path)


def test_a_ledger_that_was_removed_is_not_begun_anew(path):
  charge(path, [0, 1])
  path.unlink()
  with pytest.raises(FileNotFoundError):
    privacy.read_ledger(path)
  for read in (open_ledger, *READERS):
    # The first one leaves an empty file.
    with pytest.raises(privacy.DamagedLedgerError, match='3 lines were writte'):
      read(path)


def test_file_that_is_no_ledger_is_refused_and_left_alone(path):
  path.write_text('my notes, in one line')
  with pytest.raises(privacy.DamagedLedgerError):
    privacy.PrivacyLedger(path, PLAN)
  assert path.read_text() == 'my notes, in one line'


@pytest.mark.parametrize('torn', [b'{', b'{"line":4,"kind":"rel', b'\x00\xff'])
def test_line_cut_short_counts_as_a_release(path, torn):
  charge(path, [0, 1])
  with open(path, 'ab') as file:
    file.write(torn)
  for _ in range(2):  # The second time, the file is whole again.
    with privacy.PrivacyLedger(path, PLAN) as ledger:
      assert ledger.num_releases == 3
      assert ledger.epsilon == PLAN.epsilon_after(3)
      assert ledger.rounds == [0, 1, None]
  charge(path, [2])
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.rounds == [0, 1, None, 2]


def test_line_cut_short_after_the_last_round_there_is_charges_nothing(path):
  plan = correlated_plan(3)
  charge(path, [1, 2, 3], plan)
  with open(path, 'ab') as file:
    file.write(b'{"line":5,"kind":"cave')
  assert privacy.read_ledger(path).num_releases == 3
  with privacy.PrivacyLedger(path, plan) as ledger:
    assert ledger.rounds == [1, 2, 3]
    assert ledger.epsilon == plan.epsilon
  assert privacy.read_ledger(path).caveats == ()


def test_line_cut_short_counts_by_the_plan_of_the_ledger(path):
  charge(path, [0, 1])
  with open(path, 'ab') as file:
    file.write(b'{"line":4')
  other = correlated_plan(2)
  # It has no third release, but the ledger's own plan does.
  with pytest.raises(ValueError):
    privacy.PrivacyLedger(path, other)
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.rounds == [0, 1, None]


def test_every_cut_of_the_last_write_counts_as_a_release(path):
  charge(path, [0])
  seal_path = path.with_name('ledger.jsonl.seal')
  seal, size = seal_path.read_bytes(), path.stat().st_size
  charge(path, [1])
  data = path.read_bytes()
  # The last one is between the line and its seal.
  for cut in [*range(size + 1, len(data), 23), len(data) - 1, len(data)]:
    path.write_bytes(data[:cut])
    seal_path.write_bytes(seal)
    # Who reads it leaves it as it is.
    assert privacy.read_ledger(path).num_releases == 2
    assert (path.read_bytes(), seal_path.read_bytes()) == (data[:cut], seal)
    with privacy.PrivacyLedger(path, PLAN) as ledger:
      assert ledger.num_releases == 2


def test_run_that_died_before_its_first_line_was_whole_starts_anew(path):
  charge(path, [])
  seal_path = path.with_name('ledger.jsonl.seal')
  seal_path.write_bytes(b'{"lines":0,"digest":""}\n')
  header = path.read_bytes()
  for size in (0, 1, 100, len(header) - 1, len(header)):
    path.write_bytes(header[:size])
    seal_path.write_bytes(b'{"lines":0,"digest":""}\n')
    with privacy.PrivacyLedger(path, PLAN) as ledger:
      assert ledger.num_releases == 0
    # Another run: its id alone differs.
    first, other = (json.loads(x) for x in (header, path.read_bytes()))
    assert first.pop('run_id') != other.pop('run_id') or size == len(header)
    assert first == other


def add_line(path):
  path.write_bytes(path.read_bytes() + b'{"line":3}\n')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda path: path.unlink(), 'Line 1 of .*removed or replaced'),
    (add_line, 'Line 3 of '),
  ],
)
def test_change_while_in_use_is_refused(path, change, message):
  ledger = privacy.PrivacyLedger(path, PLAN)
  ledger.charge(0, new_id())
  change(path)
  with pytest.raises(privacy.DamagedLedgerError, match=message):
    ledger.charge(1, new_id())
  with pytest.raises(ValueError, match='is closed'):
    ledger.charge(1, new_id())


def test_a_line_that_was_changed_in_place_is_found_at_the_next_opening(path):
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    ledger.charge(0, new_id())
    damage_line(
      path, 2, lambda x: x.replace(b'"round_num":0', b'"round_num":9')
    )
    # Of the same length, in the same file.
    ledger.charge(1, new_id())
  with pytest.raises(privacy.DamagedLedgerError, match='^Line 3 of '):
    privacy.PrivacyLedger(path, PLAN)


def test_threads_charge_one_after_the_other(path):
  ledger = privacy.PrivacyLedger(path, PLAN)
  append, entered, go_on = ledger._file.append, [], threading.Event()

  def wait_and_append(content):
    entered.append(content['round_num'])
    go_on.wait(60)
    append(content)

  ledger._file.append = wait_and_append
  threads = [
    threading.Thread(target=ledger.charge, args=(t, new_id())) for t in (0, 1)
  ]
  for thread in threads:
    thread.start()
  # Without a guard the second one comes as well, in far less than this.
  threads[1].join(1.0)
  assert len(entered) == 1
  go_on.set()
  for thread in threads:
    thread.join()
  assert len(entered) == 2
  ledger.close()
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.num_releases == 2


def test_full_disk_raises_and_the_line_counts(path, monkeypatch):
  ledger = privacy.PrivacyLedger(path, PLAN)
  ledger.charge(0, new_id())

  def fail(descriptor):
    del descriptor
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match='No space'):
      ledger.charge(1, new_id())
  with pytest.raises(ValueError, match='is closed'):
    ledger.charge(1, new_id())
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.num_releases == 2


@pytest.mark.parametrize('code', [errno.ENOLCK, errno.ENOSYS])
def test_a_disk_without_locks_is_named(path, monkeypatch, code):
  def fail(*args):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr(fcntl, 'flock', fail)
  with pytest.raises(OSError, match='the disk has no file locks, .*jsonl'):
    privacy.PrivacyLedger(path, PLAN)


# In a process of its own: a fork of this one, with TensorFlow's threads in it,
# may crash whatever it does.
FORK = """
import os
import sys
from tff_clipping import privacy
from tests.privacy import ledgers
with privacy.PrivacyLedger(sys.argv[1], ledgers.PLAN) as ledger:
  ledger.charge(0, ledgers.new_id())
  child = os.fork()
  if child == 0:
    try:
      ledger.charge(1, ledgers.new_id())
    except privacy.LedgerInUseError:
      os._exit(42)
    os._exit(1)
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
  ledger.charge(1, ledgers.new_id())
"""


def test_child_of_a_fork_cannot_charge(path):
  ended = subprocess.run(
    [sys.executable, '-c', FORK, str(path)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert ended.stdout == '42\n'
  with privacy.PrivacyLedger(path, PLAN) as ledger:
    assert ledger.epsilon == PLAN.epsilon_after(2)


# Charges round after round; says which, after each charge has returned.
RUN = """
import sys
from tests.privacy import ledgers
from tff_clipping import privacy
plan = privacy.PrivacyPlan(**{**ledgers.SETTING, 'num_rounds': 10**6})
ledger = privacy.PrivacyLedger(sys.argv[1], plan)
print('open', flush=True)
number = ledger.num_releases
while True:
  ledger.charge(number, ledgers.new_id(), draw=ledger.next_draw(number))
  print(number, flush=True)
  number += 1
"""


LONG_PLAN = privacy.PrivacyPlan(**{**SETTING, 'num_rounds': 10**6})


def start_run(path):
  """Starts a process that charges rounds until it is killed."""
  return subprocess.Popen(
    [sys.executable, '-c', RUN, str(path)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )


def test_killed_runs_never_count_for_less_than_they_released(path):
  released = 0
  for lines in (2, 5, 11):
    run = start_run(path)
    for _ in range(lines):
      run.stdout.readline()
    os.kill(run.pid, signal.SIGKILL)
    # What it had said before it died was released, and nothing else.
    said, _ = run.communicate()
    assert run.returncode == -signal.SIGKILL
    released += lines - 1 + len(said.splitlines())
    with privacy.PrivacyLedger(path, LONG_PLAN) as ledger:
      # The one charge in flight may count as well.
      assert released <= ledger.num_releases <= released + 1
      released = ledger.num_releases


def test_running_process_keeps_others_out(path):
  run = start_run(path)
  try:
    assert run.stdout.readline() == 'open\n'
    with pytest.raises(privacy.LedgerInUseError, match='cannot share one'):
      privacy.PrivacyLedger(path, LONG_PLAN)
  finally:
    run.kill()
    run.communicate()
