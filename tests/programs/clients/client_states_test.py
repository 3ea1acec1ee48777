"""Tests of the store of what clients keep."""

import hashlib
import re
import shutil

import numpy as np
import pytest

from tests.programs import keeping
from tff_clipping.programs.clients import client_states

_IDS = ('a', 'b/../c', 'd')


def _open(folder, ids=_IDS):
  return client_states.ClientStates(folder, keeping.process(), ids)


def _kept(*numbers):
  return [
    np.array([[n, -n] for n in numbers], np.float32),
    np.array(numbers, np.int64),
  ]


def _numbers(states, round_num):
  found = []
  for each in _IDS:
    vector, number = states.read(each, round_num)
    assert vector.dtype == np.float32
    assert number.dtype == np.int64
    np.testing.assert_array_equal(vector, [number, -number])
    found.append(int(number))
  return found


@pytest.fixture
def states(tmp_path):
  states = _open(tmp_path / 'states')
  states.begin('start')
  states.write(1, 'one', ['a', 'd'], _kept(11, 14))
  states.write(2, 'two', ['b/../c'], _kept(22))
  states.write(3, 'three', ['a'], _kept(31))
  return states


def test_a_round_reads_the_versions_before_it(states):
  assert _numbers(states, 1) == [0, 0, 0]
  assert _numbers(states, 2) == [11, 0, 14]
  assert _numbers(states, 3) == [11, 22, 14]
  assert _numbers(states, 4) == [31, 22, 14]


@pytest.mark.parametrize(('round_num', 'digest'), [(0, 'start'), (2, 'two')])
def test_a_run_goes_on_from_a_checkpoint(states, tmp_path, round_num, digest):
  expected = _numbers(states, round_num + 1)
  again = _open(tmp_path / 'states')
  again.resume(round_num, digest)
  assert _numbers(again, round_num + 1) == expected
  # What a killed program wrote of later rounds goes with the next one.
  again.write(round_num + 1, 'other', ['d'], _kept(99))
  assert _numbers(again, round_num + 2) == [*expected[:2], 99]
  third = _open(tmp_path / 'states')
  third.resume(round_num + 1, 'other')
  assert _numbers(third, 10) == [*expected[:2], 99]


def test_what_no_checkpoint_needs_is_dropped(states, tmp_path):
  states.drop_before(2)
  assert _numbers(states, 3) == [11, 22, 14]
  assert _numbers(states, 4) == [31, 22, 14]
  states.drop_before(3)
  assert _numbers(states, 4) == [31, 22, 14]
  # Of round 1, the version of 'd' is the newest still.
  files = list((tmp_path / 'states').glob('round_*/*'))
  assert len([f for f in files if f.name != 'round.json']) == 3
  states.write(4, 'four', list(_IDS), _kept(41, 42, 43))
  states.drop_before(4)
  assert [p.name for p in (tmp_path / 'states').glob('round_*')] == ['round_4']
  again = _open(tmp_path / 'states')
  again.resume(4, 'four')
  assert _numbers(again, 5) == [41, 42, 43]


@pytest.mark.parametrize('dropped', [0, 3])
@pytest.mark.parametrize('round_num', [1, 2, 3])
def test_a_version_that_a_restored_disk_lacks_is_named(
  states, tmp_path, round_num, dropped
):
  if dropped:
    states.drop_before(dropped)
  _open(tmp_path / 'states').resume(3, 'three')
  folder = tmp_path / 'states' / f'round_{round_num}'
  # Of round 1, the version of 'a' may have been dropped.
  client_id = {1: 'd', 2: 'b/../c', 3: 'a'}[round_num]
  path = folder / hashlib.sha256(client_id.encode()).hexdigest()
  path.unlink()
  with pytest.raises(client_states.DamagedStatesError) as raised:
    _open(tmp_path / 'states').resume(3, 'three')
  assert str(raised.value).startswith(f'{path} is lost: restore')


def test_a_copy_that_somebody_put_there_is_left_alone(states, tmp_path):
  expected = _numbers(states, 4)
  copy = tmp_path / 'states' / 'round_3 (copy)'
  shutil.copytree(tmp_path / 'states' / 'round_3', copy)
  again = _open(tmp_path / 'states')
  again.resume(3, 'three')
  assert _numbers(again, 4) == expected
  again.begin('start')
  assert copy.exists()


def test_states_that_are_newer_than_a_restored_checkpoint_are_refused(
  states, tmp_path
):
  states.drop_before(2)
  _open(tmp_path / 'states').resume(2, 'two')
  # The version of 'a' of round 1 is gone, and zeros are not it.
  states.drop_before(3)
  with pytest.raises(
    client_states.DamagedStatesError, match='those before round 3 were dropped'
  ):
    _open(tmp_path / 'states').resume(2, 'two')
  _open(tmp_path / 'states').resume(3, 'three')


def test_a_round_without_clients_is_one(states, tmp_path):
  states.write(4, 'four', [], [np.zeros([0, 2]), np.zeros(0)])
  again = _open(tmp_path / 'states')
  again.resume(4, 'four')
  assert _numbers(again, 5) == [31, 22, 14]


def test_a_run_that_was_killed_before_its_first_outcome_begins_anew(
  states, tmp_path
):
  again = _open(tmp_path / 'states')
  again.begin('start')
  assert _numbers(again, 4) == [0, 0, 0]
  assert [*(tmp_path / 'states').glob('round_*')] == []


def test_a_store_of_another_run_is_refused(states, tmp_path):
  for round_num, digest in ((0, 'two'), (2, 'start'), (5, 'five')):
    with pytest.raises(
      client_states.DamagedStatesError, match='not those that were written with'
    ):
      _open(tmp_path / 'states').resume(round_num, digest)
  with pytest.raises(client_states.DamagedStatesError, match='are of another'):
    _open(tmp_path / 'states').begin('other')
  with pytest.raises(client_states.DamagedStatesError, match='other client'):
    _open(tmp_path / 'states', ids=('a', 'b'))
  with pytest.raises(
    client_states.DamagedStatesError, match='or another model'
  ):
    client_states.ClientStates(
      tmp_path / 'states',
      keeping.process([('client', np.str_), ('kept', [np.float32])]),
      _IDS,
    )


def test_what_is_not_as_it_was_written_is_refused(states, tmp_path):
  (path,) = (
    p
    for p in (tmp_path / 'states' / 'round_3').iterdir()
    if p.name != 'round.json'
  )
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  with pytest.raises(
    client_states.DamagedStatesError, match='not as it was wr'
  ):
    states.read('a', 4)
  path.unlink()
  with pytest.raises(client_states.DamagedStatesError, match='cannot be read'):
    states.read('a', 4)


def test_a_begun_store_without_rounds_begins_anew(tmp_path):
  _open(tmp_path / 'states').begin('start')
  states = _open(tmp_path / 'states')
  states.begin('other')
  states.resume(0, 'other')
  assert _numbers(states, 1) == [0, 0, 0]


def test_others_cannot_read_it(states, tmp_path):
  folder = tmp_path / 'states'
  for path in (folder, *folder.glob('round_*')):
    assert path.stat().st_mode & 0o077 == 0
  # No id stands in it.
  files = [path for path in folder.rglob('*') if path.is_file()]
  assert not any(b'b/../c' in path.read_bytes() for path in files)
  versions = {path.name for path in files} - {'states.json', 'round.json'}
  assert len(versions) == 3
  assert all(re.fullmatch('[0-9a-f]{64}', name) for name in versions)


def test_bad_arguments_are_refused(states, tmp_path):
  with pytest.raises(KeyError, match='`client_id` must be one of the store'):
    states.read('e', 1)
  for client_id in (5, b'a'):
    with pytest.raises(TypeError, match=f'must be strings, found {client_id}'):
      _open(tmp_path / 'other', [client_id])
  with pytest.raises(ValueError, match='`process` must be one whose clients'):
    client_states.ClientStates(
      tmp_path / 'other', keeping.process([('client', np.str_)]), _IDS
    )
