"""What the files of a run say, and which folder is no run."""

import json
import math
import re

import pytest

from analysis import runs, stats
from tests.analysis import run_folders
from tests.privacy.ledgers import PLAN
from tff_clipping.privacy import PrivacyLedger

_HEAD = 'round_num,test_accuracy\n'


def test_reads_every_file_of_a_run(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run',
    accuracies=(0.1, 0.5, 0.75),
    audit=run_folders.AUDIT,
    updates={
      # Ids that pandas and spreadsheets take for something else.
      0: [('Miller, Anna', 2.0, '', 0.5), ('NA', 2.0, '', 0.5)],
      16: [('mean', 1.0, 60.0, 1.0), ('mean', 1.0, 60.0, '')],
    },
    **run_folders.PRIVATE,
  )
  run = runs.read_folder(folder)
  assert run.notes == ()
  assert run.settings['clients_per_round'] == 80
  assert run.privacy['noise_multiplier'] == 1.5
  assert run.scores.to_dict() == {0: 10.0, 1: 50.0, 2: 75.0}
  assert run.updates['t'].to_list() == [0, 0, 16, 16]
  assert run.updates['client_id'].to_list()[:2] == ['Miller, Anna', 'NA']
  assert math.isnan(run.updates['angle_degrees'][0])
  assert run.updates['is_mean'].to_list() == [False, False, False, True]
  assert [each['num_canaries_in'] for each in run.audits] == [98]


def test_the_noise_of_a_simulation_is_as_it_was_measured(tmp_path):
  # A float of TensorFlow has 7 digits.
  measured = {
    'aggregator/noise_stddev': 0.012347943,
    'aggregator/clipping_norm': 0.064564832,
  }
  for name, metrics in (('told', measured), ('silent', None)):
    run_folders.write_run(
      tmp_path / name,
      algorithm='dp_fed_avg',
      noise_clients_per_round=80,
      metrics=metrics,
    )
  told, silent = (
    runs.read_folder(tmp_path / name).privacy for name in ('told', 'silent')
  )
  assert told == {'noise_multiplier': pytest.approx(1.53 / 8, rel=1e-4)}
  assert silent == {}


def test_a_line_ends_where_a_csv_file_says(tmp_path):
  # Some separators of Unicode are no line ends.
  client_id = 'a\x85b\u2028c'
  folder = run_folders.write_run(
    tmp_path / 'run', updates={0: [(client_id, 2.0, '', 0.5)]}
  )
  run = runs.read_folder(folder)
  assert run.notes == ()
  assert run.updates['client_id'].to_list() == [client_id]


def test_data_that_were_not_split_have_their_own_clients(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', partition=None)
  assert runs.read_folder(folder).settings['partition'] == 'natural'


@pytest.mark.parametrize(
  ('file', 'text', 'reason'),
  [
    ('notes.txt', '', 'no config.json'),
    ('a/config.json', '{}', 'but folders in it have one; give '),
    ('config.json', '{"experiment": ', 'cannot be read'),
    ('config.json', '[]', 'one JSON object'),
    ('config.json', '{}', "KeyError\\('algorithm'\\)"),
    (
      'config.json',
      '{"experiment": {}, "algorithm": "x", "model": {}}',
      "KeyError\\('name'\\)",
    ),
    ('metrics.csv', 'round_num,test_auc\n0,1\n', 'no column `test_loss`'),
    ('metrics.csv', 'round,test_accuracy\n0,1\n', 'no column `round_num`'),
    ('metrics.csv', f'{_HEAD}0,0.1\n0.5,0.5\n', 'without a valid `round_num`'),
    ('metrics.csv', f'{_HEAD}0,high\n', "must hold numbers: .* 'high'"),
    ('metrics.csv', f'{_HEAD}0,93.0\n', 'between 0 and 1, found 93'),
    # Of too few, pandas would fill in the rest.
    ('metrics.csv', f'{_HEAD}0,0.1\n1\n', 'different numbers of values'),
    ('metrics.csv', f'{_HEAD}0,0.1,7\n', 'different numbers of values'),
  ],
)
def test_folder_that_is_no_run_is_left_out_with_the_reason(
  tmp_path, file, text, reason
):
  (tmp_path / file).parent.mkdir(exist_ok=True)
  (tmp_path / file).write_text(text)
  found = stats.read_folders([tmp_path])
  assert found.table.empty
  ((_, told),) = found.left_out
  assert re.search(reason, told)


def test_folders_are_read_once_under_names_of_their_own(tmp_path):
  first = run_folders.write_run(tmp_path / 'a' / 'run')
  second = run_folders.write_run(tmp_path / 'b' / 'run')
  absent = tmp_path / 'absent'
  found = stats.read_folders([absent, first, second, first])
  assert [*found.table.index] == [str(first), str(second)]
  assert [*stats.read_folders([first]).table.index] == ['run']
  assert found.left_out == (
    (str(absent), 'no such folder'),
    (str(first), 'given twice, read once'),
  )


_LINES = ['0,0.1', '1,0.5', '2,0.9']


@pytest.mark.parametrize(
  ('lines', 'scores', 'note'),
  [
    (None, {}, 'metrics.csv is missing: no round has finished yet'),
    # A line with all of its commas may still have lost the end of a number.
    ([*_LINES[:2], '2,'], {0: 10.0, 1: 50.0}, 'its last line was left out'),
    (_LINES, {0: 10.0, 1: 50.0}, 'its last line was left out'),
    (
      [*_LINES, '2,0.6', ''],
      {0: 10.0, 1: 50.0, 2: 60.0},
      'holds 1 round(s) twice: the later row counts',
    ),
  ],
)
def test_damage_that_leaves_rounds_is_named(tmp_path, lines, scores, note):
  folder = run_folders.write_run(tmp_path / 'run')
  path = folder / 'metrics.csv'
  path.unlink()
  if lines is not None:
    path.write_text(_HEAD + '\n'.join(lines))
  run = runs.read_folder(folder)
  assert run.scores.to_dict() == scores
  assert len(run.notes) == 1
  assert note in run.notes[0]


@pytest.mark.parametrize(
  ('algorithm', 'privacy', 'note'),
  [
    ('local_dp_fed_avg', None, 'privacy.json is missing'),
    ('dp_of_tomorrow', None, 'privacy.json is missing'),
    (
      'local_dp_fed_avg',
      {'epsilon': 1.5, 'sampling': 'poisson'},
      'privacy.json does not say noise_multiplier, target_delta',
    ),
  ],
)
def test_what_is_not_known_of_its_privacy_is_named(
  tmp_path, algorithm, privacy, note
):
  folder = run_folders.write_run(
    tmp_path / 'run', algorithm=algorithm, privacy=privacy
  )
  assert note in runs.read_folder(folder).notes[0]


def test_a_caveat_of_the_ledger_alone_takes_the_guarantee_away(tmp_path):
  # That of a run that was killed before it wrote privacy.json again.
  privacy = run_folders.PRIVACY | {'description': 'A promise.'}
  folder = run_folders.write_run(
    tmp_path / 'run', algorithm='dp_fed_avg', privacy=privacy
  )
  with PrivacyLedger(folder / 'ledger.jsonl', PLAN) as ledger:
    ledger.add_caveats(['the data changed'])
  run = runs.read_folder(folder)
  assert run.privacy['caveats'] == ['the data changed']
  assert run.privacy['description'].startswith(
    'No guarantee as it was run: the data changed. The plan: Training for 20 '
  )
  # Whatever else the file says.
  changed = privacy | {'noise_multiplier': 9.0, 'target_delta': 1e-9}
  (folder / 'privacy.json').write_text(json.dumps(changed))
  run = runs.read_folder(folder)
  assert run.privacy['caveats'] == ['the data changed']
  assert run.privacy['noise_multiplier'] == PLAN.noise_multiplier
  assert run.privacy['epsilon'] == PLAN.epsilon
  assert run.notes == (
    'privacy.json has another noise_multiplier, target_delta than the ledger, '
    'which counts',
  )
  for is_there in (True, False):
    (folder / 'ledger.jsonl').write_text('damaged\n')
    run = runs.read_folder(folder)
    assert 'what was charged is not known' in run.privacy['description']
    assert 'the ledger cannot be read' in run.notes[0]
    assert run.is_private
    if is_there:
      (folder / 'privacy.json').unlink()


@pytest.mark.parametrize('privacy', [run_folders.PRIVACY, None])
def test_a_private_run_without_its_ledger_promises_nothing(tmp_path, privacy):
  folder = run_folders.write_run(
    tmp_path / 'run',
    algorithm='dp_fed_avg',
    privacy=privacy,
    described={'drawn_seeds': {}},
  )
  assert runs.read_folder(folder).privacy['caveats'] == [
    'what was charged is not known: the ledger is missing'
  ]


def test_damaged_update_and_audit_files_are_left_out_by_name(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run',
    updates={2: [('a', 2.0, 60.0, 0.5)]},
    audit={'attacks': {'all_releases': {}}},
  )
  (folder / 'updates' / 'round_00008.csv').write_text('client_id\na\n')
  (folder / 'updates' / 'notes.csv').write_text('x\n')
  run = runs.read_folder(folder)
  assert set(run.updates['t']) == {2}
  assert run.audits == []
  assert run.notes[:2] == (
    'updates/notes.csv is no round_XXXXX.csv: left out',
    'updates/round_00008.csv has no column `update_norm`: left out',
  )
  assert run.notes[2].startswith('audit.json cannot be used')


def test_a_program_of_ones_own_is_a_run_by_its_metrics(tmp_path):
  for name, column in (('a', 'test_accuracy'), ('b', 'test_loss')):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'metrics.csv').write_text(
      f'round_num,{column},epsilon\n0,0.1,\n1,0.5,0.25\n'
    )
  with PrivacyLedger(tmp_path / 'a' / 'ledger.jsonl', PLAN):
    pass
  private, plain = (runs.read_folder(tmp_path / name) for name in 'ab')
  assert private.metric == runs.Metric()
  assert private.scores.to_dict() == {0: 10.0, 1: 50.0}
  assert private.is_private
  assert private.privacy['noise_multiplier'] == PLAN.noise_multiplier
  assert plain.metric == runs.Metric('loss', 'min')
  assert not plain.is_private


def test_a_metric_of_which_less_is_better_keeps_its_name(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', metric=('mean_absolute_error', 'min'), accuracies=(8, 2)
  )
  metric = runs.read_folder(folder).metric
  assert metric.heading == 'Test mean absolute error'
  assert metric.lost(2.0, 5.0) == 3.0
  assert metric.decimals([123.456]) == 1


def test_a_folder_of_results_without_runs_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`directory` .* found none'):
    stats.read_results(tmp_path)
  (tmp_path / runs.RESULT_FILES[0]).write_text('')
  with pytest.raises(ValueError, match='found in .*rounds.csv'):
    stats.read_results(tmp_path)
