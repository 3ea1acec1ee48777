"""Tests of run folders."""

import dataclasses
import os
import shutil
import tempfile

import pytest

from tasks.algorithms.experiment import ExperimentConfig
from tasks.running.run_folder import RunFolder, RunFolderError

_PUBLIC = ExperimentConfig(
  task='embedded_digits',
  partition='iid',
  model='mlp',
  algorithm='fed_avg',
  num_clients=20,
  clients_per_round=2,
  num_rounds=3,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
)
_PRIVATE = dataclasses.replace(
  _PUBLIC,
  algorithm='dp_fed_avg',
  sampling_seed=None,
  clipping_norm=1.0,
  target_epsilon=1.0,
  target_delta=1e-3,
)


def _begin(folder, config, drawn_seeds=()):
  folder.path.mkdir()
  folder.write_json(
    folder.config,
    dict(experiment=config.to_json(), drawn_seeds=dict(drawn_seeds)),
  )


def test_cohorts_of_a_run_without_privacy_can_be_repeated(tmp_path):
  assert _PUBLIC.sampling_seed == 0
  assert RunFolder(tmp_path).draw_seeds(_PUBLIC) == {}


def test_cohorts_of_a_private_run_come_from_fresh_entropy(tmp_path):
  assert _PRIVATE.sampling_seed is None
  seeds = {
    RunFolder(tmp_path / name).draw_seeds(_PRIVATE)['sampling_seed']
    for name in 'abc'
  }
  assert len(seeds) == 3
  assert min(seeds) > 2**64


def test_a_private_run_keeps_the_seed_of_its_cohorts(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  drawn = folder.draw_seeds(_PRIVATE)
  _begin(folder, _PRIVATE, drawn)
  folder.ledger.touch()
  assert RunFolder(folder.path).draw_seeds(_PRIVATE) == drawn
  with folder.open(_PRIVATE, resume=True):
    pass


def test_a_run_whose_ledger_was_moved_away_keeps_its_seeds(tmp_path):
  # It is refused, and goes on once the ledger is there again.
  folder = RunFolder(tmp_path / 'run')
  drawn = folder.draw_seeds(_PRIVATE)
  _begin(folder, _PRIVATE, drawn)
  folder.metrics.touch()
  assert folder.draw_seeds(_PRIVATE) == drawn


def test_a_copy_of_the_settings_alone_has_cohorts_of_its_own(tmp_path):
  folder, copy = RunFolder(tmp_path / 'run'), RunFolder(tmp_path / 'copy')
  drawn = folder.draw_seeds(_PRIVATE)
  _begin(folder, _PRIVATE, drawn)
  folder.ledger.touch()
  copy.path.mkdir()
  shutil.copy(folder.config, copy.config)
  others = copy.draw_seeds(_PRIVATE)
  assert others['sampling_seed'] != drawn['sampling_seed']
  copy.check_unchanged(
    dict(
      drawn_seeds=others, task=dict(digest=None), model=dict(num_parameters=1)
    )
  )


def test_a_given_seed_stays_and_must_be_that_of_the_run(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  given = dataclasses.replace(_PRIVATE, sampling_seed=7)
  assert folder.draw_seeds(given) == {}
  _begin(folder, given)
  assert folder.read_result(given) is None
  # A seed of the run's own would be secret, and 7 is not.
  for other in (8, None):
    with (
      pytest.raises(RunFolderError, match=f'seed was 7 and is {other}'),
      folder.open(
        dataclasses.replace(_PRIVATE, sampling_seed=other), resume=True
      ),
    ):
      pass


def test_a_norm_of_other_last_digits_is_that_of_the_run(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  begun = dataclasses.replace(_PRIVATE, clipping_norm=0.1 + 0.2)
  assert folder.kept_settings(begun) == begun
  _begin(folder, begun, folder.draw_seeds(begun))
  # The mean of the same norms, added up in another order.
  now = dataclasses.replace(_PRIVATE, clipping_norm=0.3)
  assert now != begun
  with folder.open(now, resume=True):
    assert folder.kept_settings(now) == begun
  other = dataclasses.replace(_PRIVATE, clipping_norm=0.3001)
  with pytest.raises(RunFolderError, match='clipping_norm was 0.3'):
    folder.check(other, resume=True)


def test_a_check_leaves_no_folder_behind(tmp_path):
  folder = RunFolder(tmp_path / 'runs' / 'run')
  folder.check(_PUBLIC, resume=True)
  assert not folder.path.parent.exists()
  folder.path.parent.mkdir()
  folder.check(_PUBLIC, resume=True)
  assert list(folder.path.parent.iterdir()) == []


def test_a_run_that_is_refused_leaves_no_folder_behind(tmp_path):
  folder = RunFolder(tmp_path / 'runs' / 'run')
  with pytest.raises(ValueError, match='of another kind'):
    with folder.open(_PUBLIC, resume=True), folder.temporary_files():
      raise ValueError('of another kind')
  assert not folder.path.parent.exists()
  # One that has begun stays, and one that was there.
  with folder.open(_PUBLIC, resume=True):
    folder.config.touch()
  assert folder.config.exists()
  empty = RunFolder(tmp_path / 'empty')
  empty.path.mkdir()
  with empty.open(_PUBLIC, resume=True):
    pass
  assert empty.path.exists()


def test_a_check_finds_what_opening_would_find(tmp_path):
  (tmp_path / 'file').touch()
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PUBLIC)
  other = dataclasses.replace(_PUBLIC, seed=1)
  for path, config, message in (
    (tmp_path, _PUBLIC, 'must be empty or hold a run, found file'),
    (tmp_path / 'file', _PUBLIC, 'must be a folder, found the file'),
    (tmp_path / 'file' / 'run', _PUBLIC, 'must be a folder'),
    (folder.path, other, 'seed was 0 and is 1'),
  ):
    with pytest.raises(RunFolderError, match=message):
      RunFolder(path).check(config, resume=True)
  with pytest.raises(RunFolderError, match='must be empty with --noresume'):
    folder.check(_PUBLIC, resume=False)
  folder.check(_PUBLIC, resume=True)


def test_temporary_files_of_a_killed_program_are_deleted_by_the_next(tmp_path):
  folder = RunFolder(tmp_path)
  before = tempfile.gettempdir()
  (tmp_path / '.tmp').mkdir()
  (tmp_path / '.tmp' / 'left').touch()
  with folder.temporary_files():
    with tempfile.NamedTemporaryFile() as file:
      assert os.path.dirname(file.name) == str(tmp_path / '.tmp')
    assert os.listdir(tmp_path / '.tmp') == []
    assert os.stat(tmp_path / '.tmp').st_mode & 0o077 == 0
  assert tempfile.gettempdir() == before
  assert os.listdir(tmp_path) == []


def test_a_run_of_an_earlier_version_is_refused_without_its_seed(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  folder.path.mkdir()
  drawn = dataclasses.replace(_PRIVATE, sampling_seed=2718281828)
  folder.write_json(folder.config, dict(experiment=drawn.to_json()))
  with (
    pytest.raises(RunFolderError, match='of an earlier version') as refused,
    folder.open(_PRIVATE, resume=True),
  ):
    pass
  assert '2718281828' not in str(refused.value)


def test_a_run_that_another_program_began_meanwhile_is_not_mixed_up(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  mine = folder.draw_seeds(_PRIVATE)
  _begin(folder, _PRIVATE, {'sampling_seed': 1})
  folder.ledger.touch()
  description = dict(
    drawn_seeds=mine, task=dict(digest=None), model=dict(num_parameters=1)
  )
  with (
    folder.open(_PRIVATE, resume=True),
    pytest.raises(RunFolderError, match='began a run in .* meanwhile'),
  ):
    folder.check_unchanged(description)
  folder.check_unchanged(description | dict(drawn_seeds={'sampling_seed': 1}))


@pytest.mark.parametrize(
  ('changed', 'message'),
  [(dict(threshold_rounds=24), '`threshold_rounds` 24 .a first phase')],
)
def test_a_run_of_a_kind_that_went_is_refused_by_its_name(
  tmp_path, changed, message
):
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PRIVATE)
  saved = dict(experiment=_PRIVATE.to_json() | changed, drawn_seeds={})
  folder.write_json(folder.config, saved)
  before = folder.config.read_bytes()
  for read in (
    folder.read_config,
    lambda: folder.check(_PRIVATE, resume=True),
    lambda: folder.read_result(_PRIVATE),
  ):
    with pytest.raises(RunFolderError, match=message):
      read()
  assert [each.name for each in folder.path.iterdir()] == ['config.json']
  assert folder.config.read_bytes() == before


def test_a_run_that_had_none_of_what_went_is_read(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PRIVATE)
  none = dict(threshold_rounds=None, threshold_factor=None)
  saved = dict(experiment=_PRIVATE.to_json() | none, drawn_seeds={})
  folder.write_json(folder.config, saved)
  assert folder.read_config() == _PRIVATE
  folder.check(_PRIVATE, resume=True)
