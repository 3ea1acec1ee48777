import math

import pytest

from analysis import results, run_files
from tests.analysis import run_folders


def test_reads_every_file_of_a_run(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.5, 0.75),
    privacy=run_folders.PRIVACY,
    updates={0: [('a', 2.0, '', 0.5)], 16: [('a', 1.0, 60.0, 1.0)]},
    metrics={'clipped_fraction': 0.25},
  )
  run = results.read_run(folder)
  assert run.name == 'run'
  assert run.final_accuracy == 75.0
  assert run.best_accuracy == 75.0
  assert run.clipped_fraction == 0.25
  assert run.median_round_seconds == 0.5
  assert run.is_complete
  assert sorted(run.updates) == [0, 16]
  assert math.isnan(run.updates[0]['angle_degrees'][0])
  assert run.notes == ()


def test_final_accuracy_is_the_last_evaluated_and_best_the_highest(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', accuracies=(0.1, 0.9, 0.8, '')
  )
  run = results.read_run(folder)
  assert run.final_accuracy == 80.0
  assert run.best_accuracy == 90.0
  assert run.rounds_done == 3


@pytest.mark.parametrize(
  ('files', 'reason'),
  [
    ({}, 'no config.json'),
    ({'config.json': '{"experiment": '}, 'cannot be read'),
    ({'config.json': '[]'}, 'one JSON object'),
    ({'config.json': '{"experiment": {}}'}, 'no `algorithm`'),
    (
      {'config.json': '{"experiment": {}, "algorithm": "x", "model": {}}'},
      'no `experiment.task`',
    ),
  ],
)
def test_folder_that_is_no_run_is_refused_with_the_reason(
  tmp_path, files, reason
):
  for name, text in files.items():
    (tmp_path / name).write_text(text)
  with pytest.raises(run_files.NotARunError, match=reason):
    results.read_run(tmp_path)


def test_absent_folder_is_refused(tmp_path):
  with pytest.raises(run_files.NotARunError, match='no such folder'):
    results.read_run(tmp_path / 'absent')


def test_cut_off_metrics_lose_their_last_line_and_say_so(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5, 0.9))
  path = folder / 'metrics.csv'
  path.write_text(path.read_text()[:-9])
  run = results.read_run(folder)
  assert run.rounds_done == 1
  assert run.final_accuracy == 50.0
  assert not run.is_complete
  assert run.notes == ('metrics.csv is cut off: its last line was left out',)


def test_line_that_only_lacks_its_end_is_not_trusted(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5))
  path = folder / 'metrics.csv'
  path.write_text(path.read_text().rstrip())
  assert results.read_run(folder).rounds_done == 0


def test_broken_line_inside_the_metrics_is_refused_with_its_number(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  path = folder / 'metrics.csv'
  lines = path.read_text().splitlines()
  lines[2] = lines[2].rsplit(',', 3)[0]
  path.write_text('\n'.join(lines) + '\n')
  with pytest.raises(run_files.NotARunError, match='line 3: 10 values'):
    results.read_run(folder)


def test_text_in_place_of_a_number_is_refused_with_its_line(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 'high'))
  with pytest.raises(
    run_files.NotARunError, match="line 3: `test_accuracy` .* found 'high'"
  ):
    results.read_run(folder)


def test_accuracy_in_percent_is_refused(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 93.0))
  with pytest.raises(run_files.NotARunError, match='between 0 and 1, found 93'):
    results.read_run(folder)


def test_round_that_was_written_twice_counts_once_and_is_named(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5))
  path = folder / 'metrics.csv'
  last = path.read_text().splitlines()[-1]
  with path.open('a') as file:
    file.write(last.replace('0.5', '0.6', 2) + '\n')
  run = results.read_run(folder)
  assert run.final_accuracy == 60.0
  assert 'twice' in run.notes[0]


def test_missing_metrics_give_a_run_without_rounds(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  (folder / 'metrics.csv').unlink()
  run = results.read_run(folder)
  assert run.rounds_done == 0
  assert math.isnan(run.final_accuracy)
  assert 'metrics.csv is missing' in run.notes[0]


def test_private_run_without_privacy_file_is_named(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', algorithm='dp_fed_avg')
  assert 'privacy.json is missing' in results.read_run(folder).notes[0]


def test_missing_keys_of_the_privacy_file_are_named(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run',
    algorithm='dp_fed_avg',
    privacy={'epsilon': 1.5, 'sampling': 'poisson', 'accountant': 'rdp'},
  )
  assert results.read_run(folder).notes == (
    'privacy.json does not say noise_multiplier, target_delta, actual_epsilon',
  )


def test_damaged_update_file_is_left_out_by_name(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', updates={2: [('a', 2.0, 60.0, 0.5)]}
  )
  (folder / 'updates' / 'round_00008.csv').write_text('client_id\na\n')
  (folder / 'updates' / 'notes.csv').write_text('x\n')
  run = results.read_run(folder)
  assert list(run.updates) == [2]
  assert run.notes == (
    'updates/notes.csv is no round_XXXXX.csv: left out',
    'updates/round_00008.csv has no column `update_norm`: left out',
  )


def test_folders_that_are_no_runs_are_left_out_by_name(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  empty = tmp_path / 'empty'
  empty.mkdir()
  runs, left_out = results.read_runs([empty, folder, folder])
  assert [run.name for run in runs] == ['run']
  assert left_out == [
    (str(empty), 'not a run folder: it has no config.json'),
    (str(folder), 'given twice, read once'),
  ]


def test_runs_of_one_name_get_their_parents_names(tmp_path):
  first = run_folders.write_run(tmp_path / 'a' / 'run')
  second = run_folders.write_run(tmp_path / 'b' / 'run')
  runs, _ = results.read_runs([first, second])
  assert [run.name for run in runs] == ['a/run', 'b/run']


@pytest.mark.parametrize(
  'difference',
  [
    {'seed': 1},
    {'task': 'cifar10'},
    {'partition': 'iid'},
    {'num_rounds': 9},
    {'client_learning_rate': 0.2},
  ],
)
def test_runs_of_different_settings_are_not_in_one_group(tmp_path, difference):
  runs, _ = results.read_runs(
    [
      run_folders.write_run(tmp_path / 'a'),
      run_folders.write_run(tmp_path / 'b', algorithm='ce_fed_avg'),
      run_folders.write_run(tmp_path / 'c', **difference),
    ]
  )
  groups = results.group_by_setting(runs)
  assert [[run.name for run in group] for group in groups] == [
    ['a', 'b'],
    ['c'],
  ]
  (key,) = difference
  (text,) = results.differing_settings(runs[0], runs[2])
  assert text.startswith(f'{key}: ')


@pytest.mark.parametrize(
  ('experiment', 'is_iid'),
  [
    ({'partition': 'iid'}, True),
    ({'partition': 'label_skew'}, False),
    ({'partition': 'class_balanced', 'examples_per_client': 500}, True),
    ({'partition': 'class_balanced', 'examples_per_client': 50}, False),
  ],
)
def test_iid_is_what_the_paper_calls_so(tmp_path, experiment, is_iid):
  folder = run_folders.write_run(tmp_path / 'run', **experiment)
  assert results.read_run(folder).is_iid is is_iid
