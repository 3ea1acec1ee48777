"""Tests of checkpoints: each whole, or named as damaged and left alone."""

import errno
import os

import numpy as np
import pytest
import tensorflow as tf

from tff_clipping import storage_errors
from tff_clipping.programs.training.checkpoints import (
  Checkpoints,
  DamagedCheckpointError,
)


@pytest.fixture(name='checkpoints')
def _checkpoints(tmp_path):
  # Whose folder others may read.
  (tmp_path / 'c').mkdir(mode=0o755)
  return Checkpoints(tmp_path / 'c')


def _names(checkpoints):
  return sorted(path.name for path in checkpoints.folder.iterdir())


@pytest.mark.parametrize(
  'leaf',
  [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.zeros([0, 3], np.float64),
    np.int64(-1),
    True,
    tf.constant([1.5, 2.5], tf.bfloat16).numpy(),
    np.array([[1, 2], [3, 4]])[:, 1],
  ],
)
def test_a_state_is_read_as_it_was_written(checkpoints, leaf):
  state = {'a': leaf, 'b': [np.float32(1)]}
  found = checkpoints.load(checkpoints.save(state, 1), state)
  assert found['a'].dtype == np.asarray(leaf).dtype
  np.testing.assert_array_equal(found['a'], leaf)


@pytest.mark.parametrize(
  'texts',
  [b'text', b'\0\0', np.array([[b'a\0', b'b'], [b'', b'.']], object)],
)
def test_texts_are_read_with_all_of_their_bytes(checkpoints, texts):
  found = checkpoints.load(checkpoints.save([texts], 1), [texts])
  assert found[0].tolist() == np.asarray(texts, object).tolist()


def test_the_last_two_are_kept_and_are_their_owners_alone(checkpoints):
  # What a killed program left is removed.
  (checkpoints.folder / '.00000009_round_9.state.new').write_bytes(b'{')
  for round_num in (2, 4, 6):
    checkpoints.save([np.float32(1)], round_num)
  assert checkpoints.rounds() == [4, 6]
  files = list(checkpoints.folder.iterdir())
  assert len(files) == 2
  assert {path.stat().st_mode & 0o077 for path in files} == {0}


@pytest.mark.parametrize('name', ['round_1 (copy)', 'round_1_old', 'backup'])
def test_one_that_somebody_copied_is_named_and_kept(checkpoints, name):
  path = checkpoints.save([np.float32(1)], 1).path
  copy = path.with_name(f'00000001_{name}.state')
  copy.write_bytes(path.read_bytes())
  # A run that is under way goes on.
  for round_num in (2, 3):
    checkpoints.save([np.float32(1)], round_num)
  assert checkpoints.rounds() == [2, 3]
  assert copy.exists()
  for read in (checkpoints.outcomes, checkpoints.latest):
    with pytest.raises(storage_errors.StorageError) as raised:
      read()
    assert str(copy) in str(raised.value)


@pytest.mark.parametrize('damage', ['cut', 'flip', 'header'])
def test_a_damaged_one_is_set_aside_and_the_one_before_used(
  checkpoints, caplog, damage
):
  first, last = (checkpoints.save([np.float32(t)], t) for t in (1, 2))
  content = last.path.read_bytes()
  if damage == 'cut':
    last.path.write_bytes(content[:-1])
  elif damage == 'flip':
    # Of the last array.
    place = len(content) - 6
    flipped = bytes([content[place] ^ 1])
    last.path.write_bytes(content[:place] + flipped + content[place + 1 :])
  else:
    last.path.write_bytes(b'[]\n' + content)
  assert checkpoints.latest() == first
  assert f'The checkpoint {last.path.name} is damaged' in caplog.text
  assert len([*checkpoints.folder.glob('damaged_*round_2*')]) == 1
  with pytest.raises(DamagedCheckpointError):
    checkpoints.load(last, [np.float32(0)])


def test_nothing_is_moved_if_all_are_damaged(checkpoints):
  for round_num in (4, 6):
    checkpoints.save([np.float32(1)], round_num).path.write_bytes(b'{}')
  before = _names(checkpoints)
  with pytest.raises(
    DamagedCheckpointError, match='No checkpoint .*round_4.*round_6'
  ):
    checkpoints.latest()
  assert _names(checkpoints) == before


def test_one_of_another_process_is_refused(checkpoints):
  saved = checkpoints.save([np.zeros(3, np.float32)], 4)
  with pytest.raises(ValueError, match='round 4 is of another process'):
    checkpoints.load(saved, [np.zeros(2, np.float32)])


def test_one_that_cannot_be_written_leaves_the_others(checkpoints, monkeypatch):
  first = checkpoints.save([np.float32(1)], 1)

  def fail(*args, **kwargs):
    raise OSError(errno.ENOSPC, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', fail)
    with pytest.raises(
      storage_errors.StorageError, match='round 2 could not be .*: No space'
    ):
      checkpoints.save([np.float32(2)], 2)
  assert _names(checkpoints) == [first.path.name]
  assert checkpoints.load(first, [np.float32(0)]) == [np.float32(1)]


def test_checkpoints_of_an_earlier_version_are_named(tmp_path):
  (tmp_path / 'round_3').mkdir()
  with pytest.raises(storage_errors.StorageError, match='are of version 0.2'):
    Checkpoints(tmp_path)
  assert (tmp_path / 'round_3').is_dir()
