"""Tests of run folders: whose they are, and the seeds that they keep."""

import dataclasses
import shutil

import pytest

from tasks import config
from tasks.running.folder import RunFolder, locked
from tests.privacy.ledgers import charge
from tests.tasks.small_runs import (
  DP_FED_AVG,
  FED_AVG,
  read_json,
  run_small,
)

_PUBLIC = config.Config(**FED_AVG)
_PRIVATE = config.Config(**DP_FED_AVG)
_SEEDS = ('sampling_seed', 'audit_seed')


def _begin(folder, settings, drawn_seeds=(), source=None):
  folder.path.mkdir()
  saved = dict(
    experiment=settings.to_json(),
    drawn_seeds=dict(drawn_seeds),
    clipping_norm_source=source,
  )
  folder.write_json(folder.config, saved)


def test_secret_seeds_come_from_fresh_entropy_and_are_kept(tmp_path):
  drawn = [RunFolder(tmp_path / n).draw_seeds(_SEEDS) for n in 'abc']
  assert len({each['sampling_seed'] for each in drawn}) == 3
  assert min(each['sampling_seed'] for each in drawn) > 2**64
  folder = RunFolder(tmp_path / 'a')
  _begin(folder, _PRIVATE, drawn[0])
  folder.metrics.touch()
  assert RunFolder(folder.path).draw_seeds(_SEEDS) == drawn[0]
  # Once the metrics are moved away, a new ledger must not begin at an epsilon
  # of 0 with the cohorts of before.
  folder.metrics.unlink()
  folder.checkpoints.mkdir()
  charge(folder.ledger, [])
  assert folder.draw_seeds(_SEEDS) != drawn[0]
  charge(folder.ledger, [1])
  assert folder.draw_seeds(_SEEDS) == drawn[0]
  # A copy of the settings alone has cohorts of its own.
  copy = RunFolder(tmp_path / 'copy')
  copy.path.mkdir()
  shutil.copy(folder.config, copy.config)
  assert copy.draw_seeds(_SEEDS)['sampling_seed'] != drawn[0]['sampling_seed']


@pytest.mark.parametrize('sampling_seed', [None, 1])
@pytest.mark.parametrize(
  'left', ['metrics.csv', 'result.json', 'checkpoints/round_1.state']
)
def test_a_private_run_whose_ledger_is_lost_does_not_begin_again(
  tmp_path, cache_dir, left, sampling_seed
):
  settings = dataclasses.replace(_PRIVATE, sampling_seed=sampling_seed)
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, settings)
  (folder.path / left).parent.mkdir(exist_ok=True)
  (folder.path / left).touch()
  with pytest.raises(ValueError, match='`output_dir` must hold the ledger'):
    run_small(settings.to_json(), folder.path, cache_dir)
  assert not folder.ledger.exists()
  charge(folder.ledger, [])
  folder.check_ledger()
  # Nor by an empty one in its place.
  folder.metrics.write_text('round_num\n0\n1\n')
  with pytest.raises(ValueError, match='found metrics.csv and no release'):
    folder.check_ledger()
  charge(folder.ledger, [1])
  folder.check_ledger()


def test_a_given_seed_must_be_that_of_the_run(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, dataclasses.replace(_PRIVATE, sampling_seed=7))
  # A seed of the run's own would be secret, and 7 is not.
  for other in (8, None):
    changed = dataclasses.replace(_PRIVATE, sampling_seed=other)
    with pytest.raises(ValueError, match=f'seed was 7 and is {other}'):
      with folder.open(changed):
        pass


def test_a_norm_from_a_run_may_have_other_last_digits(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  begun = dataclasses.replace(_PRIVATE, clipping_norm=0.1 + 0.2)
  _begin(folder, begun, source={'exact': None, 'ledger': 'of a run'})
  # The mean of the same norms, added up in another order; and the run itself.
  for changes in (
    dict(clipping_norm=0.3),
    dict(clipping_norm=None, clipping_norm_from='somewhere'),
  ):
    with folder.open(dataclasses.replace(_PRIVATE, **changes)):
      pass
  number = RunFolder(tmp_path / 'number')
  _begin(number, begun)
  for each, changes in (
    (folder, dict(clipping_norm=0.3001)),
    # It began with a number, and would go on with another.
    (number, dict(clipping_norm=None, clipping_norm_from='somewhere')),
  ):
    with pytest.raises(ValueError, match='clipping_norm was 0.3'):
      with each.open(dataclasses.replace(_PRIVATE, **changes)):
        pass


def test_what_is_no_folder_of_this_run_is_refused(tmp_path):
  (tmp_path / 'file').touch()
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PUBLIC)
  before = folder.config.read_bytes()
  other = dataclasses.replace(_PUBLIC, seed=1)
  for path, settings, message in (
    (tmp_path, _PUBLIC, 'must be empty or hold a run, found file'),
    (tmp_path / 'file', _PUBLIC, 'must be a folder .*File exists'),
    (tmp_path / 'file' / 'run', _PUBLIC, 'must be a folder .*Not a directory'),
    (folder.path, other, 'seed was 0 and is 1'),
  ):
    with pytest.raises(ValueError, match=message):
      with RunFolder(path).open(settings):
        pass
  with folder.open(_PUBLIC), pytest.raises(ValueError, match='at a time'):
    with locked(folder.path):
      pass
  assert folder.config.read_bytes() == before


@pytest.mark.parametrize(
  ('changed', 'message'),
  [
    (dict(threshold_rounds=24), '`threshold_rounds` 24 .a first phase'),
    (dict(sampling_seed=271828, local_momentum=None), 'of an earlier version'),
  ],
)
def test_a_run_of_an_earlier_version_does_not_go_on(tmp_path, changed, message):
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PRIVATE)
  saved = read_json(folder.config)
  saved['experiment'] |= changed
  folder.write_json(folder.config, saved)
  before = folder.config.read_bytes()

  def open_it():
    with folder.open(_PRIVATE):
      pass

  for read in (
    folder.read_config,
    open_it,
    lambda: folder.check(_PRIVATE),
  ):
    with pytest.raises(ValueError, match=message) as refused:
      read()
    # Not a word of a seed that may be secret.
    assert '271828' not in str(refused.value)
  assert folder.config.read_bytes() == before


def test_a_run_that_had_none_of_what_went_is_read(tmp_path):
  folder = RunFolder(tmp_path / 'run')
  _begin(folder, _PRIVATE)
  saved = read_json(folder.config)
  saved['experiment'] |= dict(threshold_rounds=None, threshold_factor=None)
  folder.write_json(folder.config, saved)
  assert folder.read_config() == _PRIVATE
