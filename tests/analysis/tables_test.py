"""The tables of the paper's rows: which runs count, cells, and comparisons."""

import shutil

import pytest

from analysis import stats, tables
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_ALEXNET = dict(task='mnist', model='alexnet', examples_per_client=500)


def _lines(root):
  return tables.paper_rows(run_folders.read(root))


def test_seeds_make_one_line_of_paired_drops(tmp_path):
  for seed, (plain, clipped) in enumerate(
    [(0.90, 0.89), (0.94, 0.92), (0.98, 0.95)]
  ):
    run_folders.write_three(
      tmp_path, (plain, clipped, clipped - 0.01), seed=seed
    )
  (line,) = _lines(tmp_path).to_dict('records')
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
  (line,) = _lines(tmp_path).to_dict('records')
  assert str(line['fed_avg']) == '94.00'


def test_several_budgets_of_a_seed_are_not_averaged(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_run(
    tmp_path / 'dp5',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.9, 0.9, 0.918),
    privacy=run_folders.PRIVACY | {'epsilon': 5.0},
    **run_folders.TABLE_3,
  )
  (line,) = _lines(tmp_path).to_dict('records')
  assert line['dp_drop'] == 'several'


def test_of_several_samplings_that_of_poisson_counts(tmp_path):
  run_folders.write_three(tmp_path)
  run_folders.write_run(
    tmp_path / 'fixed',
    algorithm='dp_fed_avg',
    accuracies=(0.1, 0.8, 0.8, 0.8),
    privacy=run_folders.PRIVACY | {'sampling': 'fixed_size'},
    **run_folders.TABLE_3,
  )
  (line,) = _lines(tmp_path).to_dict('records')
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
  (line,) = _lines(tmp_path).to_dict('records')
  assert str(line['dp_fed_avg']) == '91.00'


@pytest.mark.parametrize(
  'settings', [{'partition': 'iid'}, {'examples_per_client': 60}]
)
def test_other_splits_are_beside_no_row(tmp_path, settings):
  run_folders.write_three(tmp_path, **settings)
  assert _lines(tmp_path).empty


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
  lines = _lines(tmp_path)
  assert lines['row'].to_list() == [
    'table2_alexnet_cifar10_iid',
    'table2_alexnet_cifar10_noniid',
    'table4_alexnet_cifar10_iid',
  ]
  # The first and the last share their runs.
  assert len(tables.clipping(run_folders.read_evidence(tmp_path))) == 2


def test_a_scale_that_is_being_run_takes_no_seeds_from_one_that_is(tmp_path):
  for seed in range(3):
    run_folders.write_three(tmp_path, clients_per_round=40, seed=seed)
    run_folders.write_row(
      tmp_path, {'fed_avg': 0.94}, seed=seed, **run_folders.TABLE_3
    )
  best = tables.best_scale(_lines(tmp_path))
  assert best[['P', 'num_seeds']].to_numpy().tolist() == [[40, 3]]
  run_folders.write_row(tmp_path, {'ce_fed_avg': 0.92}, **run_folders.TABLE_3)
  lines = _lines(tmp_path)
  assert lines['P'].to_list() == [40, 80]
  # One of CE-FedAvg, three of FedAvg.
  assert lines['num_seeds'].to_list() == [3, 1]


def test_headline_has_the_most_seeds_and_then_the_largest_scale(tmp_path):
  for cohort, seeds in ((80, (0,)), (40, (0, 1)), (20, (0, 1))):
    for seed in seeds:
      run_folders.write_three(tmp_path, clients_per_round=cohort, seed=seed)
  lines = _lines(tmp_path)
  assert lines['P'].to_list() == [40, 20, 80]
  assert tables.best_scale(lines)['P'].to_list() == [40]


def test_cosine_is_that_of_vectors_with_these_norms_and_this_mean(tmp_path):
  # (2, 0), (0, 1) and (1, 1): the mean is (1, 2 / 3).
  clients = {'a': 2.0, 'b': 1.0, 'c': 2.0**0.5}
  run_folders.write_run(
    tmp_path / 'run',
    **run_folders.TABLE_3,
    updates={
      16: [
        *((name, norm, 60.0, 1.0) for name, norm in clients.items()),
        ('mean', 13.0**0.5 / 3, 60.0, ''),
      ]
    },
  )
  (found,) = _lines(tmp_path)['cosine_at']
  # Inner products 0, 2 and 1, over products of norms 2, 2 √2 and √2.
  assert found == pytest.approx(3 / (2 + 3 * 2.0**0.5))


def test_noise_of_the_papers_cohort_takes_the_place_of_its_own(tmp_path):
  row, scale = 'table3_mlp_mnist_noniid', 'reduced'
  run_folders.write_named_runs(
    tmp_path,
    (row, scale),
    dict(zip(run_folders.THREE, (0.9, 0.85, 0.2), strict=True)),
  )
  assert run_folders.read_evidence(tmp_path).noisy.empty
  run_folders.write_named_runs(
    tmp_path, (row, scale), {'dp_fed_avg': 0.84}, names=('noise_0.147',)
  )
  (line,) = run_folders.read_evidence(tmp_path).noisy.to_dict('records')
  assert line['scale'] == 'reduced, the noise of P = 80'
  assert str(line['dp_drop']) == '1.00'
  # Or with the flag that says so.
  (path,) = tmp_path.glob('*noise*/config.json')
  text = path.read_text().replace('["noise_0.147"]', '[]')
  path.write_text(
    text.replace(
      '"local_steps"', '"noise_clients_per_round": 80, "local_steps"'
    )
  )
  (line,) = run_folders.read_evidence(tmp_path).noisy.to_dict('records')
  assert str(line['dp_drop']) == '1.00'
  # And counts nowhere else.
  (line,) = _lines(tmp_path).to_dict('records')
  assert str(line['dp_drop']) == '65.00'


def test_published_figures_stand_beside_ours(tmp_path):
  run_folders.write_three(tmp_path)
  (line,) = tables.published_rows(_lines(tmp_path)).to_dict('records')
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
  table = tables.published(found, 3)
  assert table['clipping drop, ours'].to_list() == ['10.00 ± 0.00']
  assert table['DP drop, ours'].to_list() == [
    '2.00 (seeds 1) (at 20, 32, 64, 3)'
  ]
  # A study of noise at the row's own scale comes first.
  lines = found.lines
  noisy = lines[lines['P'] == 20].assign(size='80, 32, 64, 3')
  found.noisy = noisy
  table = tables.published(found, 3)
  assert table['DP drop, ours'].to_list() == ['2.00 (seeds 1) *']
  assert table['ε, ours'].to_list() == ['as P = 80']


def test_drop_near_chance_gives_way_to_the_noise_of_the_papers_cohort(tmp_path):
  run_folders.write_three(tmp_path, (0.9, 0.8, 0.12))
  found = run_folders.read_evidence(tmp_path)
  (shown,) = tables.published(found, 3)['DP drop, ours']
  assert shown == 'near chance'
  noisy = found.lines.assign(dp_drop=[stats.Estimate((3.0,))])
  noisy = noisy.assign(dp_fed_avg=[stats.Estimate((77.0,))])
  found.noisy = noisy
  (shown,) = tables.published(found, 3)['DP drop, ours']
  assert shown == '3.00 *'


def test_noise_is_compared_with_the_threshold(tmp_path):
  run_folders.write_three(tmp_path, clients_per_round=20)
  found = run_folders.read_evidence(tmp_path)
  (line,) = tables.noise(found).to_dict('records')
  # 1.5 √159,010 / 20 = 29.9, and / √3 for three rounds.
  assert line['noise / c'] == '30'
  assert line['noise / signal'] == '17.3'


def test_mechanisms_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  run_folders.write_named_runs(tmp_path, _MNIST, {'dp_fed_avg': 0.92})
  assert tables.mechanisms(run_folders.read_evidence(tmp_path)).empty
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
  table = tables.mechanisms(found)
  assert table['ε'].to_list() == ['1.5', '1.5', '1.5', '5']
  assert table['drop from CE-FedAvg'].to_list() == [
    '1.00',
    '1.00',
    '8.00',
    '0.50',
  ]


def _table_2(root, *, iid_drop, skew_drop, num_seeds=3, noise=0.001):
  for seed in range(num_seeds):
    for partition, drop in (('iid', iid_drop), ('label_skew', skew_drop)):
      run_folders.write_row(
        root,
        {'fed_avg': 0.9, 'ce_fed_avg': 0.9 - drop + noise * seed},
        partition=partition,
        **_ALEXNET,
        seed=seed,
      )


def _compared(root, finding):
  found = tables.comparisons(run_folders.read_evidence(root))
  return found[found['of'] == finding] if len(found) else found


@pytest.mark.parametrize(
  ('iid_drop', 'skew_drop', 'verdict'),
  [
    (0.01, 0.05, 'holds'),
    (0.05, 0.01, 'does not hold'),
    (0.01, 0.0105, 'not decided'),
  ],
)
def test_difference_over_three_seeds_is_decided_where_it_is_clear(
  tmp_path, iid_drop, skew_drop, verdict
):
  _table_2(tmp_path, iid_drop=iid_drop, skew_drop=skew_drop)
  (found,) = _compared(tmp_path, 'split').to_dict('records')
  assert found['verdict'] == verdict
  assert found['paper'] == '0.19 and 3.60'


def test_fewer_seeds_decide_nothing(tmp_path):
  _table_2(tmp_path, iid_drop=0.01, skew_drop=0.5, num_seeds=2)
  found = _compared(tmp_path, 'split')
  assert found['verdict'].to_list() == ['too few seeds']
  # No margin of one that says nothing.
  assert found['difference'].to_list() == ['49.00']


def _set_parameters(root, model, count):
  for path in root.glob(f'*{model}*/config.json'):
    path.write_text(path.read_text().replace('159010', str(count)))


def test_rows_are_compared_at_each_scale_that_both_have(tmp_path):
  for model, dp, cohort in (
    ('mlp', 0.79, 80),
    ('mlp', 0.77, 40),
    ('mlp', 0.70, 20),
    ('alexnet', 0.75, 40),
    ('alexnet', 0.40, 20),
    ('resnet18', 0.40, 10),
  ):
    run_folders.write_three(
      tmp_path, (0.9, 0.8, dp), model=model, clients_per_round=cohort
    )
  _set_parameters(tmp_path, 'alexnet', 3_000_000)
  found = _compared(tmp_path, 'size')
  assert found['ours'].to_list() == ['3.00 and 5.00', '10.00 and 40.00']
  # MLP and AlexNet lose 0.29 and 0.16 points in the paper's Table 3.
  assert set(found['verdict']) == {'contrary in the paper'}


@pytest.mark.parametrize(('plain', 'private'), [(0.9, 0.12), (0.29, 0.21)])
def test_models_that_guess_decide_nothing(tmp_path, plain, private):
  run_folders.write_three(tmp_path, (0.9, 0.85, 0.70), model='mlp')
  run_folders.write_three(
    tmp_path, (plain, plain - 0.05, private), model='mobilenet_v2'
  )
  _set_parameters(tmp_path, 'mobilenet_v2', 2_000_000)
  assert _compared(tmp_path, 'size').empty


def test_spread_of_norms_is_compared_as_in_the_paper(tmp_path):
  for partition, std in (('iid', 0.5), ('label_skew', 0.4)):
    for algorithm in ('fed_avg', 'ce_fed_avg'):
      run_folders.write_run(
        tmp_path / f'{partition}_{algorithm}',
        algorithm=algorithm,
        model='alexnet',
        task='mnist',
        partition=partition,
        # By std / mean the other way: 0.05 and 0.4, in all rounds.
        accuracies=(0.5,) * 18,
        metrics={
          'update_norm_mean': 10.0 if partition == 'iid' else 1.0,
          'update_norm_std': std,
        },
        examples_per_client=500,
      )
  table = tables.norms(run_folders.read_evidence(tmp_path))
  counts = table.drop(columns='the norms spread, in the paper').to_numpy()
  assert counts.tolist() == [[0] * 3, [1, 1, 0], [0] * 3]
  # Longer runs of the same rows may begin with the same rounds.
  for path in list(tmp_path.iterdir()):
    longer = tmp_path / f'{path.name}_longer'
    shutil.copytree(path, longer)
    config = longer / 'config.json'
    config.write_text(
      config.read_text().replace('"num_rounds": 17', '"num_rounds": 34')
    )
    metrics = longer / 'metrics.csv'
    metrics.write_text(metrics.read_text().replace('\n17,', '\n34,'))
  again = tables.norms(run_folders.read_evidence(tmp_path))
  assert again['pairs of rows'].to_list() == [0, 1, 0]


def test_of_several_scales_the_best_evidence_counts(tmp_path):
  # Three seeds count for more than a larger scale, and of two scales with as
  # many the larger one; near chance nothing is decided.
  for cohort, num_seeds, fed_avg in (
    (80, 2, 0.9),
    (40, 3, 0.25),
    (20, 3, 0.9),
    (10, 3, 0.9),
  ):
    for seed in range(num_seeds):
      for partition, drop in (('iid', 0.01), ('label_skew', 0.03)):
        run_folders.write_row(
          tmp_path,
          {'fed_avg': fed_avg, 'ce_fed_avg': fed_avg - drop},
          partition=partition,
          **_ALEXNET,
          clients_per_round=cohort,
          seed=seed,
        )
  found = _compared(tmp_path, 'split')
  # Near chance, nothing is compared.
  assert len(found) == 3
  (counts,) = found[found['counts'] == 'yes'].to_dict('records')
  assert counts['scale'].startswith('P = 20,')
  table = tables.findings(run_folders.read_evidence(tmp_path))
  assert table['can be tested'].to_list() == [1, 0, 0, 0]
  assert table['holds'].to_list() == [1, 0, 0, 0]
