"""Tests of tff_clipping.privacy.ledger.ledger_contents."""

import math

import pytest

from tests.privacy.ledgers import PLAN, SETTING, charge, new_id
from tff_clipping import privacy
from tff_clipping.privacy.ledger import ledger_contents, ledger_file


def read_files(folder):
  return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_tells_what_was_charged_and_leaves_the_ledger_alone(path):
  with privacy.PrivacyLedger(path, PLAN, caveats=['a seed is known']) as ledger:
    ledger.charge(1, new_id())
    ledger.charge(2, new_id())
    epsilon = ledger.epsilon
  before = read_files(path.parent)
  for name in (path, path.parent, str(path)):
    contents = privacy.read_ledger(name)
    assert contents.path == path
    assert contents.plan == PLAN
    assert contents.caveats == ('a seed is known',)
    assert contents.num_releases == 2
    assert contents.epsilon == epsilon
  assert read_files(path.parent) == before


def test_reads_again_what_was_written_in_between(path, monkeypatch):
  read_seal, calls = ledger_file._read_seal, []

  with privacy.PrivacyLedger(path, PLAN) as ledger:

    def write_after_the_first_look(of):
      seal = read_seal(of)
      calls.append(of)
      if len(calls) == 1:
        ledger.charge(1, new_id())
        ledger.charge(2, new_id())
      return seal

    monkeypatch.setattr(ledger_file, '_read_seal', write_after_the_first_look)
    assert privacy.read_ledger(path).num_releases == 2
  assert len(calls) == 4


def test_the_plan_of_a_run_that_goes_on_is_read(path):
  settings = {**SETTING, 'target_epsilon': 4.0}
  del settings['noise_multiplier']
  assert privacy.read_plan(path, **settings) is None
  assert privacy.read_plan(path.parent, **settings) is None
  plan = privacy.PrivacyPlan.from_target_epsilon(**settings)
  charge(path, [1], plan)
  for where in (path, path.parent):
    assert privacy.read_plan(where, **settings) == plan
    # A setting that was computed, and one that asks for nothing.
    settings['target_delta'] = math.nextafter(1e-5, 1)
    settings['min_separation'] = None
  for name, other in (('target_epsilon', 8.0), ('num_rounds', 21)):
    with pytest.raises(ValueError, match=f'`{name}` is {other} and was '):
      privacy.read_plan(path, **settings | {name: other})
  with pytest.raises(ValueError, match='`min_separation` is 4 and was None'):
    privacy.read_plan(path, min_separation=4)


def test_a_run_that_was_killed_before_its_first_line_has_no_plan_yet(path):
  path.touch()
  assert privacy.read_plan(path) is None
  path.write_bytes(b'{"line":1,"kind":"pl')
  path.with_name('ledger.jsonl.seal').write_text('{"lines":0,"digest":""}\n')
  assert privacy.read_plan(path) is None
  charge(path, [1])
  path.write_bytes(b'')
  with pytest.raises(privacy.DamagedLedgerError):
    privacy.read_plan(path)


@pytest.mark.parametrize(
  'change', [{'num_releases': 3}, {'draw': 1}, {'kind': 'named'}]
)
def test_a_line_that_is_not_the_next_release_is_damage(path, change):
  # Its digest is right, as that of another program's may be.
  charge(path, [1])
  line = {'kind': 'release', 'id': 'two', 'round_num': 2, 'draw': 0}
  number = 1 if 'kind' in change else 2
  file = ledger_file.LedgerFile(path)
  file.append({**line, 'num_releases': number, **change})
  file.close()
  message = f'^Line 3 of .* is not release {number}'
  with pytest.raises(privacy.DamagedLedgerError, match=message):
    privacy.read_ledger(path)


def test_nothing_there_is_no_ledger(path):
  with pytest.raises(FileNotFoundError):
    privacy.read_ledger(path)
  charge(path, [])
  path.write_bytes(b'')
  path.with_name('ledger.jsonl.seal').write_text('{"lines":0,"digest":""}\n')
  with pytest.raises(ValueError, match='is empty: nothing was charged'):
    privacy.read_ledger(path)


def test_a_plan_of_a_kind_that_went_is_refused_by_its_name(path):
  header = {
    'kind': 'plan',
    'format': ledger_contents.FORMAT,
    'run_id': 'a',
    'plan': {**privacy.plan_to_json(PLAN), 'threshold': {'num_rounds': 10}},
  }
  file = ledger_file.LedgerFile(path)
  file.append(header)
  file.close()
  # Of a line that was cut short nothing is made either.
  path.write_bytes(path.read_bytes() + b'{"line":2')
  before = read_files(path.parent)
  for read in (
    privacy.read_ledger,
    privacy.read_plan,
    lambda path: privacy.PrivacyLedger(path, PLAN),
  ):
    with pytest.raises(ValueError, match=f'{path} .*`threshold` .* went') as e:
      read(path)
    assert not isinstance(e.value, privacy.DamagedLedgerError)
  assert read_files(path.parent) == before
