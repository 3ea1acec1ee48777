"""Tests of the files of the published runs."""

import functools
import gzip
import pathlib
import re
import shutil

import pandas as pd
import pytest

from analysis import runs as run_files
from analysis import stats
from scripts.publish_runs import publish
from tests.analysis import run_folders

_ROOT = pathlib.Path(__file__).parents[2]
_UPDATES = {16: [('a', 1.0, 60.0, 1.0), ('mean', 3.25, 90.0, '')]}


_write_ended = functools.partial(run_folders.write_run, has_ended=True)


def _write(root):
  return [
    _write_ended(root / 'fed_avg', updates=_UPDATES, metrics={'epsilon': ''}),
    _write_ended(
      root / 'dp',
      algorithm='dp_fed_avg',
      privacy=run_folders.PRIVACY | {'caveats': ['the seed is known']},
      audit=run_folders.AUDIT,
    ),
  ]


def test_published_runs_are_those_of_the_folders(tmp_path):
  folders = _write(tmp_path / 'runs')
  assert publish(tmp_path / 'runs', tmp_path / 'out') == ['dp', 'fed_avg']
  found = stats.read_results(tmp_path / 'out')
  expected = stats.read_folders(sorted(folders))
  pd.testing.assert_frame_equal(
    *(runs.table.drop(columns='files') for runs in (found, expected)),
    check_dtype=False,
  )
  for name, run in expected.table['files'].items():
    again = found.table.at[name, 'files']
    assert again.audits == run.audits
    for table in ('rounds', 'updates'):
      of_folder = getattr(run, table)
      # The published updates have a column more, which nothing reads.
      shown = getattr(again, table)[[*of_folder]].reset_index(drop=True)
      pd.testing.assert_frame_equal(shown, of_folder, check_dtype=False)


def test_a_simulation_of_noise_has_no_guarantee_to_keep(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'runs' / 'simulated',
    algorithm='dp_fed_avg',
    noise_clients_per_round=80,
  )
  (folder / 'result.json').write_text('{}')
  assert publish(tmp_path / 'runs', tmp_path / 'out') == ['simulated']


def test_publishing_adds_and_replaces_and_gives_the_same_bytes(tmp_path):
  def published_bytes():
    return [path.read_bytes() for path in sorted((tmp_path / 'out').iterdir())]

  _write(tmp_path / 'runs')
  publish(tmp_path / 'runs', tmp_path / 'out')
  before = published_bytes()
  assert len(before) == 3
  publish(tmp_path / 'runs', tmp_path / 'out')
  assert published_bytes() == before
  other = run_folders.write_run(tmp_path / 'more' / 'other')
  # It is not finished.
  with pytest.raises(ValueError, match='finished runs, found none'):
    publish(tmp_path / 'more', tmp_path / 'out')
  assert published_bytes() == before
  (other / 'result.json').write_text('{}')
  publish(tmp_path / 'more', tmp_path / 'out')
  names = [*stats.read_results(tmp_path / 'out').table.index]
  assert names == ['dp', 'fed_avg', 'other']


def test_a_run_that_is_damaged_is_not_published(tmp_path):
  folder = _write(tmp_path / 'runs')[0]
  path = folder / 'metrics.csv'
  path.write_text(path.read_text()[:-5])
  with pytest.raises(ValueError, match='fed_avg: metrics.csv is cut off'):
    publish(tmp_path / 'runs', tmp_path / 'out')


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    # config.json has the secret seed of its cohorts.
    (run_folders.PRIVATE, 'run: its guarantee holds'),
    # The tables of the published runs have accuracies alone.
    (dict(metric=('perplexity', 'min')), 'run: perplexity decides'),
  ],
)
def test_what_the_published_files_may_not_or_cannot_hold_is_refused(
  tmp_path, settings, message
):
  _write_ended(tmp_path / 'runs' / 'run', **settings)
  with pytest.raises(ValueError, match=message):
    publish(tmp_path / 'runs', tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_runs_without_updates_are_published_and_name_no_folder(tmp_path):
  _write_ended(
    tmp_path / 'runs' / 'run',
    task='/home/a/b.npz',
    model='/home/a/b.py:create_model',
    asked_metrics=['accuracy', '/home/a/b.py:f1'],
    described={'clipping_norm_source': {'ledger': '/home/a/ledger.jsonl'}},
  )
  publish(tmp_path / 'runs', tmp_path / 'out')
  table = stats.read_results(tmp_path / 'out').table
  assert [*table.index] == ['run']
  assert not table['has_updates'].any()
  text = (tmp_path / 'out' / 'runs.jsonl').read_text()
  assert '/home' not in text
  assert '"model": "b.py:create_model"' in text


def test_published_files_name_no_folder_of_the_machine():
  for path in (_ROOT / 'results').rglob('*'):
    if path.is_dir():
      continue
    content = path.read_bytes()
    text = (
      gzip.decompress(content) if path.suffix == '.gz' else content
    ).decode()
    assert not re.search(r'/(home|tmp|work|root|Users)/', text), path


def test_names_of_digits_stay_names(tmp_path):
  updates = {16: [('007', 1.0, 60.0, 1.0), ('NA', 3.25, 90.0, '')]}
  for name in ('001', 'NA'):
    _write_ended(tmp_path / name / name, updates=updates)
    # The second time they are read and written again.
    publish(tmp_path / name, tmp_path / 'out')
  runs = run_files.read_published(tmp_path / 'out')
  assert [*runs] == ['001', 'NA']
  for run in runs.values():
    assert [*run.updates['client_id']] == ['007', 'NA']


@pytest.mark.parametrize(
  ('file', 'lacks'), [('runs.jsonl', 'config'), ('rounds.csv', 'dp')]
)
def test_published_files_that_lack_a_run_or_a_part_of_it_are_named(
  tmp_path, file, lacks
):
  _write(tmp_path / 'runs')
  publish(tmp_path / 'runs', tmp_path / 'out')
  path = tmp_path / 'out' / file
  path.write_text(path.read_text().replace('config', 'x').replace('dp,', 'x,'))
  with pytest.raises(ValueError, match=f"published runs, .*: no '{lacks}'"):
    stats.read_results(tmp_path / 'out')


def test_what_nothing_reads_is_kept_when_runs_are_added(tmp_path):
  for name in run_files.RESULT_FILES:
    shutil.copy(_ROOT / 'results' / name, tmp_path)
  _write_ended(tmp_path / 'runs' / 'zzz')
  publish(tmp_path / 'runs', tmp_path)
  before = (_ROOT / 'results' / 'runs.jsonl').read_bytes()
  assert (tmp_path / 'runs.jsonl').read_bytes().startswith(before)
  before = (_ROOT / 'results' / 'updates.csv.gz').read_bytes()
  assert (tmp_path / 'updates.csv.gz').read_bytes() == before
