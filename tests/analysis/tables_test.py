"""The tables of the paper's rows: which runs count, cells, and comparisons."""

import shutil

import pytest

from analysis import systems, tables
from tests.analysis import run_folders

_MLP = 'table3_mlp_mnist_noniid'
_ALEXNET = {
  'iid': dict(row='table2_alexnet_mnist_iid', model='alexnet', partition='iid'),
  'label_skew': dict(row='table2_alexnet_mnist_noniid', model='alexnet'),
}


def _lines(root):
  return run_folders.read_evidence(root).lines


def _dp(root, name, accuracy, **settings):
  """Writes a run of DP-FedAvg of Table 3."""
  return run_folders.write_run(
    root / name,
    algorithm='dp_fed_avg',
    accuracies=(0.1, accuracy, accuracy, accuracy),
    row=_MLP,
    **{'privacy': run_folders.PRIVACY, 'task': 'mnist'} | settings,
  )


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


def test_audited_runs_and_those_of_an_own_aggregator_do_not_count(tmp_path):
  run_folders.write_three(tmp_path)
  _dp(tmp_path, 'own', 0.80, aggregator='mine.py:half')
  _dp(tmp_path, 'audited', 0.80, audit_canaries=100)
  (line,) = _lines(tmp_path).to_dict('records')
  assert str(line['dp_drop']) == '1.00'


def test_runs_that_cannot_be_told_apart_are_refused(tmp_path):
  run_folders.write_three(tmp_path)
  _dp(tmp_path, 'other', 0.8, privacy=run_folders.PRIVACY | {'epsilon': 5.0})
  with pytest.raises(ValueError, match="one run of .*'other'"):
    _lines(tmp_path)


@pytest.mark.parametrize('row', ['', 'mlp_mnist_disjoint'])
def test_other_runs_are_beside_no_row(tmp_path, row):
  run_folders.write_three(tmp_path, row=row)
  with pytest.raises(ValueError, match='no finished run of a row of the paper'):
    _lines(tmp_path)


def test_rows_of_two_tables_share_their_runs(tmp_path):
  for row in ('table2_alexnet_cifar10_iid', 'table2_alexnet_cifar10_noniid'):
    run_folders.write_runs(
      tmp_path, {'fed_avg': 0.6, 'ce_fed_avg': 0.5}, row=row, task='cifar10'
    )
  found = run_folders.read_evidence(tmp_path)
  assert found.lines['row'].to_list() == [
    'table2_alexnet_cifar10_iid',
    'table2_alexnet_cifar10_noniid',
    'table4_alexnet_cifar10_iid',
  ]
  assert len(tables.clipping(found)) == 2


def test_the_best_scale_has_drops_the_most_seeds_and_is_the_largest(tmp_path):
  for cohort, seeds in ((80, (0,)), (40, (0, 1)), (20, (0, 1))):
    for seed in seeds:
      run_folders.write_three(tmp_path, clients_per_round=cohort, seed=seed)
  # One that is being run: three of FedAvg.
  for seed in (0, 1, 2):
    run_folders.write_runs(
      tmp_path, {'fed_avg': 0.94}, seed=seed, clients_per_round=160
    )
  lines = _lines(tmp_path)
  assert lines['P'].to_list() == [40, 20, 80, 160]
  assert tables.best_scale(lines)['P'].to_list() == [40]
  run_folders.write_runs(tmp_path, {'ce_fed_avg': 0.92}, clients_per_round=160)
  assert _lines(tmp_path)['P'].to_list() == [40, 20, 160, 80]


def test_noise_of_the_papers_cohort_takes_the_place_of_its_own(tmp_path):
  run_folders.write_three(tmp_path, (0.9, 0.85, 0.12))
  assert run_folders.read_evidence(tmp_path).noisy.empty
  run_folders.write_runs(
    tmp_path, {'dp_fed_avg': 0.84}, variants=['noise_0.147']
  )
  found = run_folders.read_evidence(tmp_path)
  (line,) = found.noisy.to_dict('records')
  assert line['scale'] == 'paper, the noise of P = 80'
  assert str(line['dp_drop']) == '1.00'
  # Its own is near chance.
  shown = tables.published(found, 3)
  assert shown[['DP drop, ours', 'ε, ours']].to_numpy().tolist() == [
    ['1.00 *', 'as P = 80']
  ]
  # Or with the flag that says so.
  (path,) = tmp_path.glob('*noise*/config.json')
  text = path.read_text().replace('["noise_0.147"]', '[]')
  path.write_text(
    text.replace(
      '"local_steps"', '"noise_clients_per_round": 80, "local_steps"'
    )
  )
  found = run_folders.read_evidence(tmp_path)
  (line,) = found.noisy.to_dict('records')
  assert str(line['dp_drop']) == '1.00'
  # And counts nowhere else.
  (line,) = found.lines.to_dict('records')
  assert str(line['dp_drop']) == '73.00'


def test_noise_is_compared_with_the_threshold(tmp_path):
  run_folders.write_three(tmp_path, clients_per_round=20)
  found = run_folders.read_evidence(tmp_path)
  (line,) = tables.noise(found).to_dict('records')
  # 1.5 √159,010 / 20 = 29.9, and / √3 for three rounds.
  assert line['noise / c'] == '30'
  assert line['noise / signal'] == '17.3'


def test_mechanisms_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_three(tmp_path, (0.95, 0.93, 0.92), target_epsilon=1.5)
  assert systems.mechanisms(run_folders.read_evidence(tmp_path)).empty
  for name, accuracy, epsilon in (
    ('fixed_size', 0.85, 1.5),
    ('paper_sampling', 0.92, 1.5),
    ('epsilon_5', 0.925, 5.0),
  ):
    run_folders.write_runs(
      tmp_path,
      {'dp_fed_avg': accuracy},
      variants=[name],
      target_epsilon=epsilon,
    )
  table = systems.mechanisms(run_folders.read_evidence(tmp_path))
  assert table['ε'].to_list() == ['1.5', '1.5', '1.5', '5']
  drops = table['drop from CE-FedAvg'].to_list()
  assert drops == ['1.00', '1.00', '8.00', '0.50']


def _compared(root, finding):
  found = tables.comparisons(run_folders.read_evidence(root))
  return found[found['of'] == finding] if len(found) else found


@pytest.mark.parametrize(
  ('iid_drop', 'skew_drop', 'num_seeds', 'verdict', 'difference'),
  [
    (0.01, 0.05, 3, 'holds', '4.00 ± 0.23'),
    (0.05, 0.01, 3, 'does not hold', '-4.00 ± 0.23'),
    (0.01, 0.0105, 3, 'not decided', '0.05 ± 0.23'),
    # No margin of one that says nothing.
    (0.01, 0.5, 2, 'too few seeds', '49.00'),
  ],
)
def test_a_difference_over_three_seeds_is_decided_where_it_is_clear(
  tmp_path, iid_drop, skew_drop, num_seeds, verdict, difference
):
  for seed in range(num_seeds):
    for partition, drop in (('iid', iid_drop), ('label_skew', skew_drop)):
      run_folders.write_runs(
        tmp_path,
        {'fed_avg': 0.9, 'ce_fed_avg': 0.9 - drop + 0.001 * seed},
        seed=seed,
        **_ALEXNET[partition],
      )
  (found,) = _compared(tmp_path, 'split').to_dict('records')
  assert (found['verdict'], found['difference']) == (verdict, difference)
  assert found['paper'] == '0.19 and 3.60'


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
      tmp_path,
      (0.9, 0.8, dp),
      row=f'table3_{model}_mnist_noniid',
      model=model,
      clients_per_round=cohort,
    )
  _set_parameters(tmp_path, 'alexnet', 3_000_000)
  found = _compared(tmp_path, 'size')
  assert found['ours'].to_list() == ['3.00 and 5.00', '10.00 and 40.00']
  # MLP and AlexNet lose 0.29 and 0.16 points in the paper's Table 3.
  assert set(found['verdict']) == {'contrary in the paper'}


@pytest.mark.parametrize(('plain', 'private'), [(0.9, 0.12), (0.29, 0.21)])
def test_models_that_guess_decide_nothing(tmp_path, plain, private):
  run_folders.write_three(tmp_path, (0.9, 0.85, 0.70))
  run_folders.write_three(
    tmp_path,
    (plain, plain - 0.05, private),
    row='table3_mobilenet_v2_mnist_noniid',
    model='mobilenet_v2',
  )
  _set_parameters(tmp_path, 'mobilenet_v2', 2_000_000)
  assert _compared(tmp_path, 'size').empty


def test_spread_of_norms_is_compared_as_in_the_paper(tmp_path):
  for partition, std in (('iid', 0.5), ('label_skew', 0.4)):
    for algorithm in ('fed_avg', 'ce_fed_avg'):
      run_folders.write_run(
        tmp_path / f'{partition}_{algorithm}',
        algorithm=algorithm,
        task='mnist',
        # By std / mean the other way: 0.05 and 0.4, in all rounds.
        accuracies=(0.5,) * 18,
        metrics={
          'update_norm_mean': 10.0 if partition == 'iid' else 1.0,
          'update_norm_std': std,
        },
        **_ALEXNET[partition],
      )
  table = tables.norms(run_folders.read_evidence(tmp_path))
  counts = table.drop(columns='the norms spread, in the paper').to_numpy()
  assert counts.tolist() == [[0] * 3, [1, 1, 0], [0] * 3]
  # Longer runs of the same rows may begin with the same rounds.
  for path in list(tmp_path.iterdir()):
    longer = shutil.copytree(path, tmp_path / f'{path.name}_longer')
    text = (longer / 'config.json').read_text()
    (longer / 'config.json').write_text(
      text.replace('"num_rounds": 17', '"num_rounds": 34')
    )
    metrics = (longer / 'metrics.csv').read_text()
    last = metrics.splitlines()[-1].removeprefix('17')
    (longer / 'metrics.csv').write_text(f'{metrics}34{last}\n')
  again = tables.norms(run_folders.read_evidence(tmp_path))
  assert again['pairs of rows'].to_list() == [0, 1, 0]
  # A pair without norms at t = 16 says nothing.
  for path in tmp_path.glob('iid_*/metrics.csv'):
    path.write_text(path.read_text().replace('\n17,', '\n18,'))
  without = tables.norms(run_folders.read_evidence(tmp_path))
  assert without['pairs of rows'].to_list() == [0, 0, 0]


def test_of_several_scales_the_best_evidence_counts(tmp_path):
  # Three seeds count for more than a larger scale, and of two scales with as
  # many the larger one; near chance nothing is compared.
  for cohort, num_seeds, fed_avg in (
    (80, 2, 0.9),
    (40, 3, 0.25),
    (20, 3, 0.9),
    (10, 3, 0.9),
  ):
    for seed in range(num_seeds):
      for partition, drop in (('iid', 0.01), ('label_skew', 0.03)):
        run_folders.write_runs(
          tmp_path,
          {'fed_avg': fed_avg, 'ce_fed_avg': fed_avg - drop},
          clients_per_round=cohort,
          seed=seed,
          scale=f'P = {cohort}',
          **_ALEXNET[partition],
        )
  found = _compared(tmp_path, 'split')
  assert len(found) == 3
  (counts,) = found[found['counts'] == 'yes'].to_dict('records')
  assert counts['scale'] == 'P = 20'
  table = tables.findings(run_folders.read_evidence(tmp_path))
  assert table['can be tested'].to_list() == [1, 0, 0, 0]
  assert table['holds'].to_list() == [1, 0, 0, 0]
