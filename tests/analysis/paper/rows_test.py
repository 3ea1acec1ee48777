"""Tests of the paper's rows with our figures."""

import pytest

from analysis.paper import rows
from tests.analysis import run_folders


def test_seeds_make_one_line_of_paired_drops(tmp_path):
  for seed, (plain, clipped) in enumerate(
    [(0.90, 0.89), (0.94, 0.92), (0.98, 0.95)]
  ):
    run_folders.write_three(
      tmp_path, (plain, clipped, clipped - 0.01), seed=seed
    )
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert line['num_seeds'] == 3
  assert str(line['fed_avg']) == '94.00 ± 9.94'
  # Of 1, 2 and 3 points, whatever the accuracies are.
  assert str(line['clipping_drop']) == '2.00 ± 2.48'
  assert str(line['dp_drop']) == '1.00 ± 0.00'


def test_runs_with_an_own_aggregator_do_not_count(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_run(
    tmp_path / 'own',
    accuracies=(0.1, 0.5, 0.5, 0.5),
    aggregator='mine.py:half',
    **run_folders.TABLE_3,
  )
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert str(line['fed_avg']) == '94.00'


def test_other_learning_rates_are_another_line(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_three(tmp_path, client_learning_rate=0.3)
  assert len(run_folders.paper_rows(tmp_path)) == 2


def test_several_budgets_of_a_seed_are_not_averaged(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_run(
    tmp_path / 'dp5',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.9, 0.9, 0.918),
    privacy=run_folders.PRIVACY | {'epsilon': 5.0},
    **run_folders.TABLE_3,
  )
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert line['dp_drop'] == rows.SEVERAL


def test_of_several_samplings_that_of_poisson_counts(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_run(
    tmp_path / 'fixed',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.8, 0.8, 0.8),
    privacy=run_folders.PRIVACY | {'sampling': 'fixed_size'},
    **run_folders.TABLE_3,
  )
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert str(line['dp_drop']) == '1.00'


def test_of_several_budgets_that_of_the_row_counts(tmp_path):
  for epsilon, accuracy in ((1.5, 0.91), (5.0, 0.918)):
    run_folders.write_run(
      tmp_path / f'dp_{epsilon}',
      algorithm='dp_fed_avg',
      accuracies=(0.1, accuracy),
      privacy=run_folders.PRIVACY,
      target_epsilon=epsilon,
      **run_folders.TABLE_3,
    )
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert str(line['dp_fed_avg']) == '91.00'


@pytest.mark.parametrize(
  'settings', [{'partition': 'iid'}, {'examples_per_client': 60}]
)
def test_other_splits_are_beside_no_row(tmp_path, settings):
  run_folders.write_three(tmp_path, **settings)
  assert run_folders.paper_rows(tmp_path).empty


def test_rows_follow_the_size_of_the_clients(tmp_path):
  for size in (500, 50):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.6, 'ce_fed_avg': 0.5},
      task='cifar10',
      partition='class_balanced',
      model='alexnet',
      examples_per_client=size,
    )
  lines = run_folders.paper_rows(tmp_path)
  assert lines['row'].to_list() == [
    'table2_alexnet_cifar10_iid',
    'table2_alexnet_cifar10_noniid',
    'table4_alexnet_cifar10_iid',
  ]
  # The first and the last share their runs.
  assert len(rows.without_shared(lines)) == 2


def test_a_scale_that_is_being_run_takes_no_seeds_from_one_that_is(tmp_path):
  for seed in range(3):
    run_folders.write_three(tmp_path, clients_per_round=40, seed=seed)
    run_folders.write_row(
      tmp_path, {'fed_avg': 0.94}, seed=seed, **run_folders.TABLE_3
    )
  best = rows.best_scale(run_folders.paper_rows(tmp_path))
  assert best[['P', 'num_seeds']].to_numpy().tolist() == [[40, 3]]
  run_folders.write_row(tmp_path, {'ce_fed_avg': 0.92}, **run_folders.TABLE_3)
  lines = run_folders.paper_rows(tmp_path)
  assert lines['P'].to_list() == [40, 80]
  # One of CE-FedAvg, three of FedAvg.
  assert lines['num_seeds'].to_list() == [3, 1]


def test_headline_has_the_most_seeds_and_then_the_largest_scale(tmp_path):
  for cohort, seeds in ((80, (0,)), (40, (0, 1)), (20, (0, 1))):
    for seed in seeds:
      run_folders.write_three(tmp_path, clients_per_round=cohort, seed=seed)
  lines = run_folders.paper_rows(tmp_path)
  assert lines['P'].to_list() == [40, 20, 80]
  assert rows.best_scale(lines)['P'].to_list() == [40]


def test_cosine_is_that_of_vectors_with_these_norms_and_this_mean(tmp_path):
  # (2, 0), (0, 1) and (1, 1): the mean is (1, 2 / 3).
  clients = {'a': 2.0, 'b': 1.0, 'c': 2.0**0.5}
  run_folders.write_run(
    tmp_path / 'run',
    updates={
      16: [
        *((name, norm, 60.0, 1.0) for name, norm in clients.items()),
        ('mean', 13.0**0.5 / 3, 60.0, ''),
      ]
    },
  )
  found = rows.mean_cosines(run_folders.read(tmp_path).updates, 16)
  # Inner products 0, 2 and 1, over products of norms 2, 2 √2 and √2.
  assert found['run'] == pytest.approx(3 / (2 + 3 * 2.0**0.5))


def test_noise_of_the_papers_cohort_takes_the_place_of_its_own(tmp_path):
  row, scale = 'table3_mlp_mnist_noniid', 'reduced'
  run_folders.write_named_runs(
    tmp_path,
    (row, scale),
    dict(zip(run_folders.THREE, (0.9, 0.85, 0.2), strict=True)),
  )
  assert rows.noise_rows(run_folders.read(tmp_path)).empty
  run_folders.write_named_runs(
    tmp_path, (row, scale), {'dp_fed_avg': 0.84}, names=('noise_0.147',)
  )
  (line,) = rows.noise_rows(run_folders.read(tmp_path)).to_dict('records')
  assert line['scale'] == 'reduced, the noise of P = 80'
  assert str(line['dp_drop']) == '1.00'
  # And counts nowhere else.
  (line,) = run_folders.paper_rows(tmp_path).to_dict('records')
  assert str(line['dp_drop']) == '65.00'
