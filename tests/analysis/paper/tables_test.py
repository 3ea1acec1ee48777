"""Tests of the tables and numbers of the pages."""

import pandas as pd

from analysis.paper import evidence, numbers, pivots, tables
from analysis.runs import margins
from tests.analysis import run_folders


def _with_noise(found, noisy):
  return evidence.Evidence(found.frames, found.systems, found.lines, noisy)


def test_published_figures_stand_beside_ours(tmp_path):
  run_folders.write_three(tmp_path)
  (line,) = tables.published_rows(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  assert line['model'] == 'MLP'
  assert line['data'] == 'MNIST'
  assert line['FedAvg, paper (%)'] == '94.00'
  assert line['FedAvg, ours (%)'] == '94.00'
  assert line['clipping drop, paper'] == '1.84'
  assert line['clipping drop, ours'] == '2.00'
  assert line['DP drop, paper'] == '0.29'
  assert line['DP drop, ours'] == '1.00'
  assert line['ε, paper'] == '1.5'
  assert line['ε, ours'] == '1.5'


def test_missing_algorithm_is_shown_as_not_run(tmp_path):
  run_folders.write_row(tmp_path, {'fed_avg': 0.9}, **run_folders.TABLE_3)
  table = tables.published_rows(run_folders.paper_rows(tmp_path))
  assert table['clipping drop, ours'].to_list() == ['not run']
  assert table['DP drop, ours'].to_list() == ['not run']
  assert table['ε, ours'].to_list() == ['not run']


def test_drop_by_noise_of_another_scale_is_marked(tmp_path):
  for seed in (0, 1, 2):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.8},
      seed=seed,
      **run_folders.TABLE_3,
    )
  for cohort in (10, 20):
    run_folders.write_three(
      tmp_path, (0.9, 0.8, 0.8 - 0.001 * cohort), clients_per_round=cohort
    )
  found = run_folders.read_evidence(tmp_path)
  table = tables.published(found, '3')
  assert table['clipping drop, ours'].to_list() == ['10.00 ± 0.00']
  assert table['DP drop, ours'].to_list() == [
    '2.00 (seeds 1) (at 20, 32, 64, 3)'
  ]
  # A study of noise at the row's own scale comes first.
  lines = found.lines
  noisy = lines[lines['P'] == 20].assign(P=80, epsilon=170.5)
  table = tables.published(_with_noise(found, noisy), '3')
  assert table['DP drop, ours'].to_list() == ['2.00 (seeds 1) *']
  assert table['ε, ours'].to_list() == ['170.5']


def test_drop_near_chance_gives_way_to_the_noise_of_the_papers_cohort(tmp_path):
  run_folders.write_three(tmp_path, (0.9, 0.8, 0.12))
  found = run_folders.read_evidence(tmp_path)
  (shown,) = tables.published(found, '3')['DP drop, ours']
  assert shown == 'near chance'
  noisy = found.lines.assign(dp_drop=[margins.Estimate((3.0,))])
  noisy = noisy.assign(dp_fed_avg=[margins.Estimate((77.0,))])
  (shown,) = tables.published(_with_noise(found, noisy), '3')['DP drop, ours']
  assert shown == '3.00 *'


def test_noise_is_compared_with_the_threshold(tmp_path):
  run_folders.write_three(tmp_path, clients_per_round=20)
  found = run_folders.read_evidence(tmp_path)
  (line,) = tables.noise(found).to_dict('records')
  # 1.5 √159,010 / 20 = 29.9, and / √3 for three rounds.
  assert line['noise / c'] == '30'
  assert line['noise / signal'] == '17.3'


def test_drops_of_models_near_chance_are_not_shown(tmp_path):
  run_folders.write_row(
    tmp_path,
    {'fed_avg': 0.9, 'ce_fed_avg': 0.85, 'dp_fed_avg': 0.12},
    task='mnist',
    examples_per_client=125,
  )
  (line,) = tables.published_rows(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  assert line['clipping drop, ours'] == '5.00'
  assert line['DP drop, ours'] == 'near chance'


def test_rows_that_have_not_learned_are_not_shown_beside_the_paper(tmp_path):
  run_folders.write_three(tmp_path, (0.28, 0.25, 0.21))
  (line,) = tables.published_rows(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  assert line['FedAvg, ours (%)'] == 'near chance'
  assert line['clipping drop, ours'] == 'near chance'
  assert line['DP drop, ours'] == 'near chance'


_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')


def test_matched_steps_show_what_is_left_of_a_drop(tmp_path):
  for seed, left in enumerate((0.001, 0.002, 0.003)):
    run_folders.write_named_runs(
      tmp_path, _CIFAR10, {'fed_avg': 0.5, 'ce_fed_avg': 0.48}, seed
    )
    run_folders.write_named_runs(
      tmp_path,
      _CIFAR10,
      {'ce_fed_avg': 0.5 - left},
      seed,
      ('matched_steps',),
    )
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  found = run_folders.read_evidence(tmp_path)
  lines = found.lines.set_index('row')
  assert str(lines.at[_CIFAR10[0], 'clipping_drop']) == '2.00 ± 0.00'
  # Half of the interval is 4.30 · 0.1 / √3.
  assert str(lines.at[_CIFAR10[0], 'matched_drop']) == '0.20 ± 0.25'
  assert lines.at[_MNIST[0], 'matched_drop'] is None


def test_mechanisms_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  run_folders.write_named_runs(tmp_path, _MNIST, {'dp_fed_avg': 0.92})
  assert pivots.mechanisms(run_folders.read_evidence(tmp_path)).empty
  for names, accuracy, privacy in (
    (('fixed_size',), 0.85, {'relation': 'replace_one'}),
    (('paper_sampling',), 0.92, {'actual_epsilon': 5.88}),
    (('epsilon_5',), 0.925, {'epsilon': 5.0, 'actual_epsilon': 5.0}),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_MNIST,
      'dp_fed_avg',
      accuracy,
      variants=names,
      privacy=privacy,
    )
  found = run_folders.read_evidence(tmp_path)
  table = pivots.mechanisms(found)
  assert table['ε'].to_list() == ['1.5', '1.5', '1.5', '5']
  assert table['drop from CE-FedAvg'].to_list() == [
    '1.00',
    '1.00',
    '8.00',
    '0.50',
  ]
  assert numbers.papers_epsilon(found) == '5.88'


def test_explanations_stand_beside_what_they_explain(tmp_path):
  names = ('half_averaged_norm_cifar10',)
  three = dict(zip(run_folders.THREE, (0.5, 0.48, 0.4), strict=True))
  run_folders.write_named_runs(tmp_path, _CIFAR10, three)
  assert pivots.explanations(run_folders.read_evidence(tmp_path)).empty
  run_folders.write_named_runs(
    tmp_path, _CIFAR10, {'ce_fed_avg': 0.42, 'dp_fed_avg': 0.41}, names=names
  )
  table = pivots.explanations(run_folders.read_evidence(tmp_path))
  assert table['c'].to_list() == ['1.000', '0.162 *']
  assert table['clipping drop, ours'].to_list() == ['2.00', '8.00']
  assert table['DP drop, ours'].to_list() == ['8.00', '1.00']


def test_local_steps_stand_side_by_side(tmp_path):
  run_folders.write_named_run(tmp_path, *_MNIST, 'fed_avg', 0.95, seed=1)
  for names, accuracies in (
    ((), (0.95, 0.93, 0.92)),
    (('scaffold',), (0.96, 0.94, 0.85)),
    (('fed_prox_1.0',), (0.92,)),
  ):
    run_folders.write_named_runs(
      tmp_path,
      _MNIST,
      dict(zip(run_folders.THREE, accuracies, strict=False)),
      names=names,
    )
    if names != ('fed_prox_1.0',):
      run_folders.write_named_run(
        tmp_path,
        *_MNIST,
        'dp_fed_avg',
        accuracies[-1] + 0.005,
        variants=(*names, 'epsilon_5'),
      )
  found = run_folders.read_evidence(tmp_path)
  gains = [
    numbers.local_step_gain(found, 'scaffold', algorithm)
    for algorithm in run_folders.THREE
  ]
  assert gains == ['1.00', '1.00', '-7.00']
  table = pivots.local_steps(found)
  assert [*table] == [
    'local step',
    'no clip (%)',
    'c',
    'clip (%)',
    'clip and noise, ε = 5 (%)',
    'clip and noise, ε = 1.5 (%)',
    'seeds',
  ]
  assert table.to_numpy().tolist() == [
    ['SGD', '95.00', '1.000', '93.00', '92.50', '92.00', '1 to 2'],
    ['SCAFFOLD', '96.00', '1.000', '94.00', '85.50', '85.00', '1'],
    ['FedProx, μ = 1', '92.00', '–', 'not run', 'not run', 'not run', '1'],
  ]


def test_a_table_with_nothing_to_show_is_empty(tmp_path):
  run_folders.write_three(tmp_path)
  found = run_folders.read_evidence(tmp_path)
  for table in (
    tables.comparisons,
    pivots.mechanisms,
    pivots.explanations,
    pivots.local_steps,
  ):
    assert isinstance(table(found), pd.DataFrame)
    assert table(found).empty
