import math
import pathlib
import re

import pytest

from analysis.runs import drops, frame, published
from tests.analysis import run_folders


def _read(folder):
  """The row of the run in a folder, which is one."""
  frames = frame.read_frames([folder])
  assert frames.left_out == ()
  return frames.runs.iloc[0]


def _reason(folder):
  frames = frame.read_frames([folder])
  assert frames.runs.empty
  ((_, reason),) = frames.left_out
  return reason


@pytest.fixture
def read_run(read_runs):
  """As `read_runs`, for the row of one run."""
  return lambda **settings: read_runs(run=settings).runs.loc['run']


def test_reads_every_file_of_a_run(read_runs):
  frames = read_runs(
    run=dict(
      algorithm='dp_fed_avg',
      accuracies=(0.1, 0.5, 0.75),
      privacy=run_folders.PRIVACY,
      updates={0: [('a', 2.0, '', 0.5)], 16: [('a', 1.0, 60.0, 1.0)]},
      metrics={'clipped_fraction': 0.25},
    )
  )
  run = frames.runs.loc['run']
  assert run['final_score'] == 75.0
  assert run['best_score'] == 75.0
  assert run['clipped_fraction'] == 0.25
  assert run['median_round_seconds'] == 0.5
  assert run['clients_per_round'] == 80
  assert run['privacy_noise_multiplier'] == 1.5
  assert run['is_complete']
  assert run['notes'] == ()
  assert frames.rounds['score'].to_list() == [10.0, 50.0, 75.0]
  assert frames.updates['t'].to_list() == [0, 16]
  assert math.isnan(frames.updates['angle_degrees'][0])


def test_final_accuracy_is_the_last_evaluated_and_best_the_highest(read_run):
  run = read_run(accuracies=(0.1, 0.9, 0.8, ''))
  assert run['final_score'] == 80.0
  assert run['best_score'] == 90.0
  assert run['rounds_done'] == 3


@pytest.mark.parametrize(
  ('files', 'reason'),
  [
    (
      {'notes.txt': ''},
      'it has no config.json, which `tasks.train` and `own_run.train` write, '
      'and no metrics.csv of a program of your own',
    ),
    (
      {'metrics.csv': 'round_num,test_auc\n0,0.1\n'},
      'neither `test_accuracy` nor `test_loss`',
    ),
    (
      {
        'config.json': '{"metric_goal": "up", "algorithm": "x", "model": '
        '{"name": ""}, "experiment": {"task": "", "partition": "", '
        '"num_rounds": 1}}'
      },
      "`metric_goal` must be 'max' or 'min', found 'up'",
    ),
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
  assert reason in _reason(tmp_path)


def test_absent_folder_is_refused(tmp_path):
  assert _reason(tmp_path / 'absent') == 'no such folder'


def test_cut_off_metrics_lose_their_last_line_and_say_so(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5, 0.9))
  path = folder / 'metrics.csv'
  path.write_text(path.read_text()[:-9])
  run = _read(folder)
  assert run['rounds_done'] == 1
  assert run['final_score'] == 50.0
  assert not run['is_complete']
  assert run['notes'] == ('metrics.csv is cut off: its last line was left out',)


def test_line_that_only_lacks_its_end_is_not_trusted(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5))
  path = folder / 'metrics.csv'
  path.write_text(path.read_text().rstrip())
  assert _read(folder)['rounds_done'] == 0


def test_broken_line_inside_the_metrics_is_refused_with_its_number(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  path = folder / 'metrics.csv'
  lines = path.read_text().splitlines()
  lines[2] = lines[2].rsplit(',', 3)[0]
  path.write_text('\n'.join(lines) + '\n')
  assert 'line 3: 10 values' in _reason(folder)


@pytest.mark.parametrize(
  ('accuracy', 'reason'),
  [
    ('high', "line 3: `test_accuracy` must be a number, found 'high'"),
    (93.0, 'between 0 and 1, found 93'),
  ],
)
def test_what_is_no_accuracy_is_refused(tmp_path, accuracy, reason):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, accuracy))
  assert reason in _reason(folder)


def test_round_that_was_written_twice_counts_once_and_is_named(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run', accuracies=(0.1, 0.5))
  path = folder / 'metrics.csv'
  last = path.read_text().splitlines()[-1]
  with path.open('a') as file:
    file.write(last.replace('0.5', '0.6', 2) + '\n')
  run = _read(folder)
  assert run['final_score'] == 60.0
  assert 'twice' in run['notes'][0]


def test_missing_metrics_give_a_run_without_rounds(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  (folder / 'metrics.csv').unlink()
  run = _read(folder)
  assert run['rounds_done'] == 0
  assert math.isnan(run['final_score'])
  assert 'metrics.csv is missing' in run['notes'][0]


@pytest.mark.parametrize('algorithm', ['dp_fed_avg', 'local_dp_fed_avg'])
def test_private_run_without_privacy_file_is_named(read_run, algorithm):
  run = read_run(algorithm=algorithm)
  assert 'privacy.json is missing' in run['notes'][0]


def test_missing_keys_of_the_privacy_file_are_named(read_run):
  privacy = {'epsilon': 1.5, 'sampling': 'poisson', 'accountant': 'rdp'}
  run = read_run(algorithm='dp_fed_avg', privacy=privacy)
  assert run['notes'] == (
    'privacy.json does not say noise_multiplier, target_delta, actual_epsilon',
  )


def test_damaged_update_file_is_left_out_by_name(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', updates={2: [('a', 2.0, 60.0, 0.5)]}
  )
  (folder / 'updates' / 'round_00008.csv').write_text('client_id\na\n')
  (folder / 'updates' / 'notes.csv').write_text('x\n')
  run = _read(folder)
  assert set(frame.read_frames([folder]).updates['t']) == {2}
  assert run['notes'] == (
    'updates/notes.csv is no round_XXXXX.csv: left out',
    'updates/round_00008.csv has no column `update_norm`: left out',
  )


def test_folders_that_are_no_runs_are_left_out_by_name(tmp_path):
  folder = run_folders.write_run(tmp_path / 'run')
  empty = tmp_path / 'empty'
  empty.mkdir()
  frames = frame.read_frames([empty, folder, folder])
  assert frames.runs.index.to_list() == ['run']
  assert frames.left_out == (
    (str(empty), _reason(empty)),
    (str(folder), 'given twice, read once'),
  )
  assert _reason(tmp_path) == (
    'no run folder: it has no config.json, but folders in it have one; give '
    f'{tmp_path}/*/'
  )
  nothing = frame.read_frames([tmp_path / 'typo'])
  assert nothing.groups() == []
  assert nothing.left_out == ((str(tmp_path / 'typo'), 'no such folder'),)


def test_runs_of_one_name_get_their_parents_names(tmp_path):
  first = run_folders.write_run(tmp_path / 'a' / 'run')
  second = run_folders.write_run(tmp_path / 'b' / 'run')
  runs = frame.read_frames([first, second]).runs
  assert runs.index.to_list() == ['a/run', 'b/run']


def test_runs_whose_parents_share_names_get_their_paths(tmp_path):
  paths = [run_folders.write_run(tmp_path / x / 'a' / 'run') for x in 'bc']
  runs = frame.read_frames(paths).runs
  assert runs.index.to_list() == [str(path) for path in paths]


@pytest.mark.parametrize(
  'difference',
  [
    {'task': 'cifar10'},
    {'partition': 'iid'},
    {'num_rounds': 9},
    {'client_learning_rate': 0.2},
  ],
)
def test_runs_of_different_settings_are_not_in_one_group(read_runs, difference):
  frames = read_runs(a=dict(), b=dict(algorithm='ce_fed_avg'), c=difference)
  groups = [group.index.to_list() for group in frames.groups()]
  assert sorted(groups) == [['a', 'b'], ['c']]


def test_groups_hold_all_seeds_and_are_ordered_by_value(read_runs):
  # In the order of a shell, in which 10 comes before 9.
  groups = read_runs(
    **{
      f'{rate}_{seed}': dict(client_learning_rate=rate, seed=seed)
      for rate in (0.03, 10.0, 9.0)
      for seed in (1, 10, 2)
    }
  ).groups()
  assert [group.index.to_list() for group in groups] == [
    [f'{rate}_{seed}' for seed in (1, 2, 10)] for rate in (0.03, 9.0, 10.0)
  ]


def test_groups_are_ordered_by_model_and_split_and_size_of_clients(read_runs):
  few = dict(num_clients=1920, examples_per_client=100)
  many = dict(num_clients=480, examples_per_client=400)
  groups = read_runs(
    a=dict(model='mine.py:create_model', **few),
    b=dict(model='alexnet', partition='iid', **few),
    c=dict(model='mlp', **many),
    d=dict(model='mlp', **few),
    e=dict(model='mlp', partition='iid', **many),
  ).groups()
  assert [group.index[0] for group in groups] == list('edcba')


def test_runs_of_a_group_are_ordered_by_algorithm_and_value(read_runs):
  private = dict(algorithm='dp_fed_avg')
  (group,) = read_runs(
    a=dict(privacy=run_folders.PRIVACY, clipping_norm=0.5, **private),
    b=dict(privacy=run_folders.PRIVACY, clipping_norm=0.1, **private),
    c=dict(privacy=run_folders.PRIVACY | {'epsilon': 8.0}, **private),
    d=dict(algorithm='ce_fed_avg', clipping_norm=10.0),
    e=dict(algorithm='ce_fed_avg', clipping_norm=9.0),
    f=dict(aggregator='mine.py:half'),
    g=dict(),
  ).groups()
  assert group.index.to_list() == list('gfedcba')


@pytest.mark.parametrize(
  ('experiment', 'is_iid'),
  [
    ({'partition': 'iid'}, True),
    ({'partition': 'label_skew'}, False),
    ({'partition': 'class_balanced', 'examples_per_client': 500}, True),
    ({'partition': 'class_balanced', 'examples_per_client': 50}, False),
  ],
)
def test_iid_is_what_the_paper_calls_so(read_run, experiment, is_iid):
  assert read_run(**experiment)['is_iid'] == is_iid


@pytest.mark.slow
def test_every_column_of_published_runs_is_one_that_is_described():
  files, _ = published.read(pathlib.Path(__file__).parents[3] / 'results')
  text = frame.Frames.__doc__ + drops.with_drops.__doc__
  described = {
    *(name for run in files.values() for name in run.config['experiment']),
    *re.findall(r'`(\w+)`', text),
  }
  others = [
    column
    for column in frame.build(files).runs.columns
    if not column.startswith('privacy_')
  ]
  assert set(others) <= described


def test_folder_without_runs_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`results_dir` .* found none'):
    frame.read_results(tmp_path)


def _write_three(root, *, final=(0.94, 0.92, 0.915), **experiment):
  """Folders of FedAvg, CE-FedAvg and DP-FedAvg of one setting."""
  run_folders.write_row(
    root,
    dict(zip(('fed_avg', 'ce_fed_avg', 'dp_fed_avg'), final, strict=True)),
    **experiment,
  )


def _by_algorithm(root):
  return run_folders.read(root).runs.reset_index().set_index('algorithm')


def test_drops_are_in_points_below_the_runs_of_the_same_seed(tmp_path):
  _write_three(tmp_path, seed=0)
  _write_three(tmp_path, seed=1, final=(0.96, 0.91, 0.90))
  runs = _by_algorithm(tmp_path).sort_values('seed')
  assert runs['drop'].dropna().round(6).to_list() == [2.0, 2.5, 5.0, 6.0]
  assert runs['dp_drop'].dropna().round(6).to_list() == [0.5, 1.0]


def test_drop_of_dp_is_below_the_clipped_run_of_the_same_threshold(tmp_path):
  _write_three(tmp_path, seed=0)
  run_folders.write_run(
    tmp_path / 'other',
    algorithm='ce_fed_avg',
    accuracies=(0.1, 0.5, 0.5, 0.5),
    clipping_norm=0.1,
  )
  runs = _by_algorithm(tmp_path)
  assert runs.at['dp_fed_avg', 'dp_drop'] == pytest.approx(0.5)


def test_missing_baseline_gives_no_drop_and_a_reason(read_run):
  run = read_run(algorithm='ce_fed_avg')
  assert math.isnan(run['drop'])
  assert run['no_drop'] == 'no FedAvg run of the same setting'


def test_two_baselines_are_named_and_not_averaged(tmp_path):
  _write_three(tmp_path, seed=0)
  run_folders.write_run(tmp_path / 'again', accuracies=(0.1, 0.9, 0.9, 0.96))
  run = _by_algorithm(tmp_path).loc['ce_fed_avg']
  assert math.isnan(run['drop'])
  assert run['no_drop'] == (
    'more than one FedAvg run of the same setting: 0_fed_avg, again'
  )


def test_runs_with_an_own_aggregator_are_compared_and_are_no_baseline(
  tmp_path,
):
  _write_three(tmp_path, seed=0)
  for algorithm in ('fed_avg', 'ce_fed_avg'):
    run_folders.write_run(
      tmp_path / f'own_{algorithm}',
      algorithm=algorithm,
      accuracies=(0.1, 0.9, 0.9, 0.9),
      aggregator='mine.py:half',
    )
  runs = run_folders.read(tmp_path).runs
  assert runs['drop'].round(6).dropna().to_dict() == {
    '0_ce_fed_avg': 2.0,
    '0_dp_fed_avg': 2.5,
    'own_fed_avg': 4.0,
    'own_ce_fed_avg': 4.0,
  }
  assert runs.at['0_dp_fed_avg', 'dp_drop'] == pytest.approx(0.5)


def test_a_threshold_of_an_own_aggregator_is_that_of_no_other_run(read_runs):
  own = {'aggregator': 'mine.py:half'}
  clipped = dict(own, algorithm='ce_fed_avg', clipping_norm=7.0)
  norms = read_runs(fed_avg=dict(), own=clipped).runs['shown_norm']
  assert math.isnan(norms['fed_avg'])
  assert norms['own'] == 7.0
  norms = read_runs(
    plain=dict(), own_7=clipped, ce=dict(algorithm='ce_fed_avg'), own_plain=own
  ).runs['shown_norm']
  assert norms['plain'] == 1.0
  assert math.isnan(norms['own_plain'])


def test_unfinished_run_is_not_compared(tmp_path):
  _write_three(tmp_path, num_rounds=5)
  run = _by_algorithm(tmp_path).loc['ce_fed_avg']
  assert math.isnan(run['drop'])
  assert run['no_drop'] == '5_fed_avg is not finished'


def test_epsilon_is_that_of_the_rounds_that_were_run(read_run):
  run = read_run(
    algorithm='dp_fed_avg',
    privacy=run_folders.PRIVACY,
    metrics={'epsilon': 0.7},
  )
  assert run['epsilon_spent'] == 0.7


def test_relative_spread_is_the_mean_ratio_of_the_rounds(read_run):
  run = read_run(metrics={'update_norm_mean': 4.0, 'update_norm_std': 1.0})
  assert run['relative_spread'] == 0.25


def test_relative_spread_falls_back_to_the_recorded_updates(read_run):
  run = read_run(
    metrics={'update_norm_mean': '', 'update_norm_std': ''},
    updates={2: [('a', 1.0, 60, 1), ('b', 3.0, 60, 1), ('mean', 9.0, 60, '')]},
  )
  # Mean 2, standard deviation 1; the averaged update is no client.
  assert run['relative_spread'] == 0.5


def test_path_adds_up_the_steps_with_those_between_filled_in(read_runs):
  slow = dict(
    accuracies=(0.1, 0.5, 0.7, 0.8, 0.9),
    server_learning_rate=2.0,
    updates={
      t: [('a', 9.0, 60, 1), ('mean', norm, 60, '')]
      for t, norm in ((0, 4.0), (2, 1.0))
    },
  )
  # Steps of 2 · (4, 2, 1, 1).
  paths = read_runs(run=slow, bare=dict()).runs['path']
  assert paths['run'] == pytest.approx((0, 8, 12, 14, 16))
  assert paths['bare'] == ()
