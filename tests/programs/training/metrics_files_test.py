"""Tests of the files of metrics, and of release managers of TFF."""

import asyncio
import collections
import dataclasses
import logging
import math
import os
import threading

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import storage_errors
from tff_clipping.programs.training import metrics_files, watchers

_METRICS = dict(epsilon=0.5, test_loss=math.nan, count=7)


@pytest.fixture(name='path')
def _path(tmp_path):
  return tmp_path / 'run' / 'metrics.csv'


def _round(round_num, **metrics):
  metrics = collections.OrderedDict(round_num=round_num, **metrics)
  return watchers.Round(round_num, metrics, model=None)


def _record(files, *rounds, **more):
  for round_num in rounds:
    files.record(_round(round_num, **_METRICS, **more))


def test_the_file_is_that_of_tff(tmp_path):
  ours = metrics_files.MetricsFiles(tmp_path / 'ours.csv')
  theirs = tff.program.CSVFileReleaseManager(
    str(tmp_path / 'theirs.csv'),
    save_mode=tff.program.CSVSaveMode.WRITE,
    key_fieldname='round_num',
  )
  # Rounds 2 and 3 are run again, with one more metric.
  more = {**_METRICS, 'accuracy': 0.25}
  for round_num, metrics in (*((t, _METRICS) for t in (0, 1, 2, 3)), (2, more)):
    ours.record(_round(round_num, **metrics))
    asyncio.run(theirs.release(metrics, round_num))
  text = (tmp_path / 'ours.csv').read_bytes()
  assert text == (tmp_path / 'theirs.csv').read_bytes()
  assert text.splitlines() == [
    b'round_num,count,epsilon,test_loss,accuracy',
    b'0,7,0.5,nan,',
    b'1,7,0.5,nan,',
    b'2,7,0.5,nan,0.25',
  ]


def test_a_new_program_goes_on_with_the_file(path):
  for round_num in (0, 1, 2):
    _record(metrics_files.MetricsFiles(path), round_num)
  # From round 1 on, by a version that has one more metric.
  _record(metrics_files.MetricsFiles(path), 1, later=0.25)
  assert path.read_text().split() == [
    'round_num,count,epsilon,test_loss,later',
    '0,7,0.5,nan,',
    '1,7,0.5,nan,0.25',
  ]


def test_a_round_that_is_recorded_again_keeps_what_is_not_measured_anew(path):
  measured = dict(accuracy=0.25, test_loss=1.0, norm=3.0)
  for round_num in (1, 2, 3):
    done = _round(round_num, **measured)
    files = metrics_files.MetricsFiles(path)
    files.record(dataclasses.replace(done, model_before=list))
  # The outcomes of round 3 are lost.
  again = _round(2, accuracy=0.5, test_loss=math.nan)
  metrics_files.MetricsFiles(path).record(again)
  lines = path.read_text().split()
  assert lines[1:] == ['1,0.25,3.0,1.0', '2,0.5,3.0,1.0']
  # A round that is run again is another one.
  files = metrics_files.MetricsFiles(path)
  files.record(dataclasses.replace(again, model_before=list))
  assert path.read_text().split()[1:] == [lines[1], '2,0.5,,nan']


def test_each_release_adds_a_line_and_leaves_the_others(path):
  files = metrics_files.MetricsFiles(path)
  _record(files, 0)
  file = path.stat().st_ino
  for round_num in (1, 2, 3):
    before = path.read_bytes()
    _record(files, round_num)
    assert path.read_bytes() == before + b'%d,7,0.5,nan\r\n' % round_num
  assert path.stat().st_ino == file


def test_what_a_crash_leaves_of_a_line_is_dropped(path, caplog):
  files = metrics_files.MetricsFiles(path)
  _record(files, 0, 1)
  whole = path.read_bytes()
  _record(files, 2)
  three = path.read_bytes()
  for end in range(len(whole) + 1, len(three)):
    path.write_bytes(three[:end])
    caplog.clear()
    _record(metrics_files.MetricsFiles(path), 2)
    assert path.read_bytes() == three
    assert 'was cut short' in caplog.text


@pytest.mark.parametrize('change', ['', 'note\n', None])
def test_a_file_that_somebody_changed_is_written_whole(path, change):
  files = metrics_files.MetricsFiles(path)
  _record(files, 0)
  if change is None:
    path.unlink()
  else:
    path.write_text(change)
  _record(files, 1)
  assert path.read_text().split()[1:] == ['0,7,0.5,nan', '1,7,0.5,nan']


@pytest.mark.parametrize(
  ('text', 'what'),
  [
    ('', 'there is no column round_num'),
    ('a,b\n1,2\n', 'there is no column round_num'),
    ('round_num,a\n0,1\nx,2\n', "invalid literal .* 'x'"),
    ('round_num,a\n0,1\n1\n', 'line 3 is not of its columns'),
    ('round_num,a\n0,1,2\n', 'line 2 is not of its columns'),
  ],
)
def test_another_file_is_refused_and_kept(tmp_path, text, what):
  path = tmp_path / 'metrics.csv'
  path.write_text(text)
  with pytest.raises(storage_errors.StorageError, match=what):
    metrics_files.MetricsFiles(path)
  assert path.read_text() == text


def test_a_release_that_fails_leaves_the_rows_before(path, monkeypatch):
  files = metrics_files.MetricsFiles(path)
  _record(files, 0)

  def fail(*args):
    raise OSError(28, 'No space left on device')

  def add_a_part(path, mode):
    with open(path, mode) as file:
      file.write(b'1,7')
    fail()

  # A new file for one more column, and a line more.
  for module, name, instead, more in (
    (os, 'replace', fail, dict(more=1)),
    (metrics_files, 'open', add_a_part, {}),
  ):
    with monkeypatch.context() as patch:
      patch.setattr(module, name, instead, raising=False)
      with pytest.raises(storage_errors.StorageError, match='No space left'):
        _record(files, 1, **more)
    assert path.read_text().split()[1:] == ['0,7,0.5,nan']
    assert list(path.parent.iterdir()) == [path]
  _record(files, 1)
  assert path.read_text().split()[1:] == ['0,7,0.5,nan', '1,7,0.5,nan']


def test_rows_are_synced_together(path, monkeypatch):
  synced = []
  fsync = os.fsync

  def record(descriptor):
    fsync(descriptor)
    synced.append(os.readlink(f'/proc/self/fd/{descriptor}'))

  files = metrics_files.MetricsFiles(path)
  _record(files, 0)
  monkeypatch.setattr(os, 'fsync', record)
  _record(files, 1, 2)
  assert len(path.read_text().splitlines()) == 4
  assert synced == []
  files.sync()
  assert synced == [str(path)]


def test_a_run_that_begins_anew_leaves_the_rows_of_another(path):
  _record(metrics_files.MetricsFiles(path), 0, 1, 2)
  before = path.read_text()
  files = metrics_files.MetricsFiles(path)
  with pytest.raises(
    storage_errors.StorageError, match='another run, up to round 2'
  ):
    _record(files, 0)
  assert path.read_text() == before
  # Rounds that are run again are those of the same run.
  _record(files, 2)


def test_the_log_shows_the_metrics(path, caplog):
  with caplog.at_level(logging.INFO):
    metrics_files.MetricsFiles(path).record(_round(1, loss=0.5))
  assert "Round 1: {'round_num': 1, 'loss': 0.5}" in caplog.text
  assert list(path.parent.iterdir()) == [path]


def test_tensorboard_reads_the_same_as_from_the_manager_of_tff(tmp_path):
  metrics = {'loss': 0.5, 'a/norm': math.nan, 'count': 3, 'is_private': True}
  theirs = tff.program.TensorBoardReleaseManager(tmp_path / 'theirs')
  ours = metrics_files.MetricsFiles(
    tmp_path / 'metrics.csv', tensorboard_dir=tmp_path / 'ours'
  )
  for round_num in (0, 7):
    asyncio.run(theirs.release(metrics, round_num))
    ours.record(_round(round_num, **metrics))
  # Only TFF's waits for more before it writes.
  del theirs
  read = [
    sorted(
      (
        value.tag,
        event.step,
        value.metadata.SerializeToString(),
        repr(float(tf.make_ndarray(value.tensor))),
      )
      for path in (tmp_path / name).iterdir()
      for event in tf.compat.v1.train.summary_iterator(str(path))
      for value in event.summary.value
    )
    for name in ('theirs', 'ours')
  ]
  assert read[0] == read[1]
  numbers = {(tag, step): number for tag, step, _, number in read[1]}
  assert len(numbers) == 8
  assert numbers['a/norm', 7] == 'nan'
  assert numbers['is_private', 0] == '1.0'


def test_metrics_go_to_release_managers_of_tff_alone():
  threads = []

  class Manager(tff.program.ReleaseManager):
    async def release(self, value, key):
      threads.append(await asyncio.to_thread(threading.get_ident))

  manager = tff.program.MemoryReleaseManager()
  watcher = metrics_files.ReleaseMetrics(manager, Manager())

  async def cell():
    # Where a loop is running, as in a notebook.
    for round_num in (1, 2):
      watcher.record(_round(round_num, loss=0.5))

  asyncio.run(cell())
  assert manager.values() == {1: {'loss': 0.5}, 2: {'loss': 0.5}}
  # One thread for all: the memory of each new one is kept.
  assert len(threads) == 2
  assert len(set(threads)) == 1
  with pytest.raises(TypeError, match='`managers` must be of .* found str'):
    metrics_files.ReleaseMetrics('metrics.csv')
