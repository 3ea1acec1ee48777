import math

import pytest

from analysis import results, tables
from tests.analysis import run_folders

PRIVACY = {
  'noise_multiplier': 1.5301,
  'target_delta': 1e-5,
  'sampling': 'poisson',
  'accountant': 'rdp',
  'epsilon': 1.5,
  'actual_epsilon': 1.5,
}


def _write_three(root, *, final=(0.94, 0.92, 0.915), **experiment):
  """Folders of FedAvg, CE-FedAvg and DP-FedAvg of one setting."""
  algorithms = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
  return [
    run_folders.write_run(
      root / algorithm,
      algorithm=algorithm,
      accuracies=(0.1, accuracy),
      privacy=PRIVACY if algorithm == 'dp_fed_avg' else None,
      **experiment,
    )
    for algorithm, accuracy in zip(algorithms, final, strict=True)
  ]


def _read(folders):
  return results.read_runs(folders)[0]


def test_drop_is_in_points_below_fed_avg(tmp_path):
  table = tables.run_table(_read(_write_three(tmp_path)))
  assert table['algorithm'].to_list() == ['FedAvg', 'CE-FedAvg', 'DP-FedAvg']
  assert math.isnan(table['drop'][0])
  assert table['drop'][1:].to_list() == pytest.approx([2.0, 2.5])
  assert table['noise_multiplier'][2] == 1.5301
  assert table['epsilon'][2] == 1.5
  assert table['delta'][2] == 1e-5


def test_drop_of_dp_is_below_the_clipped_run_of_the_same_threshold(tmp_path):
  folders = _write_three(tmp_path)
  other = run_folders.write_run(
    tmp_path / 'other',
    algorithm='ce_fed_avg',
    accuracies=(0.1, 0.5),
    clipping_norm=0.1,
  )
  runs = _read([*folders, other])
  assert tables.accuracy_drop(runs[2], runs, 'ce_fed_avg') == pytest.approx(0.5)


def test_missing_baseline_gives_no_drop_and_a_reason(tmp_path):
  runs = _read(_write_three(tmp_path)[1:])
  baseline, reason = tables.find_baseline(runs[0], runs)
  assert baseline is None
  assert reason == 'no FedAvg run of the same setting'
  assert math.isnan(tables.accuracy_drop(runs[0], runs))


def test_two_baselines_are_named_and_not_averaged(tmp_path):
  folders = _write_three(tmp_path)
  again = run_folders.write_run(tmp_path / 'again', accuracies=(0.1, 0.96))
  runs = _read([*folders, again])
  baseline, reason = tables.find_baseline(runs[1], runs)
  assert baseline is None
  assert reason.endswith(
    'more than one FedAvg run of the same setting: again, fed_avg'
  )


def test_unfinished_run_is_not_compared(tmp_path):
  folders = _write_three(tmp_path, num_rounds=5)
  runs = _read(folders)
  assert tables.find_baseline(runs[1], runs)[1] == 'fed_avg is not finished'
  row = tables.format_run_table(tables.run_table(runs)).iloc[1]
  assert row['rounds'] == '1 of 5'
  assert row['drop (points)'] == tables.MISSING


def test_epsilon_is_that_of_the_rounds_that_were_run(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'dp',
    algorithm='dp_fed_avg',
    privacy=PRIVACY,
    metrics={'epsilon': 0.7},
  )
  assert tables.epsilon_spent(results.read_run(folder)) == 0.7


def test_epsilon_of_the_sampler_stands_beside_the_papers(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'dp',
    algorithm='dp_fed_avg',
    privacy=PRIVACY | {'sampling': 'paper', 'actual_epsilon': 6.5},
  )
  table = tables.format_run_table(tables.run_table([results.read_run(folder)]))
  assert table['ε'][0] == '1.5 (sampler: 6.5)'


def test_published_row_stands_beside_ours(tmp_path):
  groups = results.group_by_setting(_read(_write_three(tmp_path)))
  rows, not_run = tables.published_table(3, groups)
  row = rows.iloc[0]
  assert row['model'] == 'MLP'
  assert row['FedAvg, paper (%)'] == '94.00'
  assert row['FedAvg, ours (%)'] == '94.00'
  assert row['clipping drop, paper'] == '1.84'
  assert row['clipping drop, ours'] == '2.00'
  assert row['DP drop, paper'] == '0.29'
  assert row['DP drop, ours'] == '0.50'
  assert row['ε, ours'] == '1.5'
  assert row['reduced (paper)'] == 'none'
  assert not_run == [
    'AlexNet, EMNIST, non-IID',
    'MobileNetV2, EMNIST, non-IID',
    'ResNet-18, EMNIST, non-IID',
  ]


def test_reductions_are_named_with_the_papers_values(tmp_path):
  runs = _read(
    _write_three(
      tmp_path,
      task='embedded_digits',
      num_clients=40,
      clients_per_round=10,
      examples_per_client=100,
    )
  )
  rows, _ = tables.published_table(3, [runs])
  assert rows['reduced (paper)'][0] == (
    'embedded_digits in place of EMNIST, N = 40 (1920), P = 10 (80), '
    'examples a client = 100 (125)'
  )


def test_seeds_make_one_row_of_means_with_their_number(tmp_path):
  folders = _write_three(tmp_path / '0', final=(0.94, 0.92, 0.91), seed=0)
  folders += _write_three(tmp_path / '1', final=(0.96, 0.95, 0.93), seed=1)
  groups = results.group_by_setting(_read(folders))
  rows, _ = tables.published_table(3, groups)
  assert len(rows) == 1
  assert rows['seeds'][0] == '0, 1'
  assert rows['FedAvg, ours (%)'][0] == '95.00 ± 1.41 (n = 2)'
  assert rows['clipping drop, ours'][0] == '1.50 ± 0.71 (n = 2)'


def test_other_learning_rates_make_another_row(tmp_path):
  folders = _write_three(tmp_path / '0')
  folders += _write_three(tmp_path / '1', client_learning_rate=0.3)
  groups = results.group_by_setting(_read(folders))
  rows, _ = tables.published_table(3, groups)
  assert rows['FedAvg, ours (%)'].to_list() == ['94.00', '94.00']


def test_several_budgets_are_listed_and_not_averaged(tmp_path):
  folders = _write_three(tmp_path)
  folders.append(
    run_folders.write_run(
      tmp_path / 'dp5',
      algorithm='dp_fed_avg',
      accuracies=(0.1, 0.918),
      privacy=PRIVACY | {'epsilon': 5.0, 'actual_epsilon': 5.0},
    )
  )
  rows, _ = tables.published_table(3, [_read(folders)])
  assert rows['DP drop, ours'][0] == (
    '0.20 (ε = 5, poisson); 0.50 (ε = 1.5, poisson)'
  )


def test_missing_algorithm_is_shown_as_not_run(tmp_path):
  rows, _ = tables.published_table(3, [_read(_write_three(tmp_path)[:1])])
  assert rows['clipping drop, ours'][0] == 'not run'
  assert rows['DP drop, ours'][0] == 'not run'


def test_iid_run_is_not_beside_a_non_iid_row(tmp_path):
  runs = _read(_write_three(tmp_path, partition='iid'))
  assert len(tables.published_table(3, [runs])[0]) == 0


def test_cifar_rows_follow_the_size_of_the_clients(tmp_path):
  setting = {'task': 'cifar10', 'partition': 'class_balanced'}
  folders = [
    run_folders.write_run(
      tmp_path / str(size), model='alexnet', examples_per_client=size, **setting
    )
    for size in (500, 50)
  ]
  groups = results.group_by_setting(_read(folders))
  rows, _ = tables.published_table(2, groups)
  assert rows['clients'].to_list() == ['IID', 'non-IID']
  assert rows['FedAvg, paper (%)'].to_list() == ['66.01', '57.14']
