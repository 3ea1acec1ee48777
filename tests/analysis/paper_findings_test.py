"""Tests of the verdicts on the paper's findings."""

import math

import pytest

from analysis import norm_findings, paper_findings, rows
from tests.analysis import run_folders


def _table_2(root, *, iid_drop, skew_drop, seeds=(0,)):
  for seed in seeds:
    for partition, drop in (('iid', iid_drop), ('label_skew', skew_drop)):
      run_folders.write_row(
        root,
        {'fed_avg': 0.9, 'ce_fed_avg': 0.9 - drop + 0.001 * seed},
        task='mnist',
        model='alexnet',
        partition=partition,
        examples_per_client=500,
        seed=seed,
      )


@pytest.mark.parametrize(
  ('iid_drop', 'skew_drop', 'verdict'),
  [(0.01, 0.05, 'holds'), (0.05, 0.01, 'does not hold')],
)
def test_clear_difference_over_seeds_is_decided(
  tmp_path, iid_drop, skew_drop, verdict
):
  _table_2(tmp_path, iid_drop=iid_drop, skew_drop=skew_drop, seeds=(0, 1))
  finding = paper_findings.iid_finding(run_folders.paper_rows(tmp_path))
  assert [c.verdict for c in finding.comparisons] == [verdict]
  assert finding.verdict == f'Of 1 comparison, it {verdict} in 1.'
  assert finding.comparisons[0].published == (0.19, 3.60)


def test_difference_below_two_standard_errors_is_left_open(tmp_path):
  _table_2(tmp_path, iid_drop=0.01, skew_drop=0.0105, seeds=(0, 8))
  finding = paper_findings.iid_finding(run_folders.paper_rows(tmp_path))
  assert [c.verdict for c in finding.comparisons] == ['not decided']
  assert finding.verdict == 'Of 1 comparison, it is not decided in 1.'


def test_pair_with_one_half_alone_is_named_as_not_tested(tmp_path):
  run_folders.write_row(
    tmp_path,
    {'fed_avg': 0.9, 'ce_fed_avg': 0.8},
    task='mnist',
    model='alexnet',
    partition='iid',
    examples_per_client=500,
  )
  finding = paper_findings.iid_finding(run_folders.paper_rows(tmp_path))
  assert finding.comparisons == ()
  assert finding.verdict.startswith('Not tested')
  assert len(finding.not_tested) == 4


def test_error_of_seeds_is_that_of_their_mean():
  found = rows.estimate([1.0, 2.0, 3.0], [[]] * 3, [0.0] * 3)
  assert (found.value, found.num_seeds) == (2.0, 3)
  assert found.error == pytest.approx(1.0 / math.sqrt(3.0))


def test_margin_of_few_seeds_is_students():
  two = rows.estimate([1.0, 3.0], [[]] * 2, [0.0] * 2)
  # 12.706 times the error of 1.
  assert str(two) == '2.00 ± 12.71'
  assert not two.is_clear
  # Welch: equal errors of 1 and 2 degrees.
  three = rows.Estimate(30.0, 1.0, 3, 2)
  difference = three.minus(two)
  assert difference.error == pytest.approx(math.sqrt(2.0))
  assert difference.degrees == pytest.approx(4.0 / (1.0 + 0.5))
  assert difference.num_seeds == 2
  assert difference.is_clear


def test_all_seeds_share_the_test_images():
  found = rows.estimate([1.0, 1.0, 1.0], [[]] * 3, [2.0] * 3)
  # 1.96 × 2, however many seeds.
  assert found.margin == pytest.approx(3.92, abs=1e-3)
  assert found.minus(found).margin == pytest.approx(math.sqrt(2) * 3.92, 1e-3)


def test_error_of_one_seed_has_the_test_set_in_it(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', accuracies=(0.1, 0.9, 0.9, 0.9), examples_per_client=125
  )
  text = (folder / 'config.json').read_text()
  (folder / 'config.json').write_text(
    text.replace('"task": {"name"', '"task": {"num_test_examples": 400, "name"')
  )
  row = next(r for r in run_folders.paper_rows(tmp_path) if r.groups)
  # 100 √(0.9 · 0.1 / 400) points.
  assert row.accuracy().test_error == pytest.approx(1.5)
  assert str(row.accuracy()) == '90.00 ± 2.94'


@pytest.mark.parametrize(
  ('clipped', 'error'),
  [((0.1, 0.35, 0.55, 0.75), 0.0), ((0.1, 0.35, 0.52, 0.75), math.sqrt(3.0))],
)
def test_accuracy_that_rises_is_no_error_of_the_drop(tmp_path, clipped, error):
  for algorithm, accuracies in (
    ('fed_avg', (0.1, 0.4, 0.6, 0.8)),
    ('ce_fed_avg', clipped),
  ):
    run_folders.write_run(
      tmp_path / algorithm,
      algorithm=algorithm,
      accuracies=accuracies,
      examples_per_client=125,
    )
  row = next(r for r in run_folders.paper_rows(tmp_path) if r.groups)
  drop = row.drop('ce_fed_avg')
  assert drop.value == pytest.approx(5.0)
  # Drops of 5, 5 or 8, and 5 points.
  assert drop.error == pytest.approx(error, abs=1e-9)


def test_larger_models_are_compared_by_their_drop_from_ce_fed_avg(tmp_path):
  for model, dp in (('mlp', 0.79), ('mobilenet_v2', 0.60)):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.8, 'dp_fed_avg': dp},
      task='mnist',
      model=model,
      examples_per_client=125,
    )
  finding = paper_findings.size_finding(run_folders.paper_rows(tmp_path))
  (comparison,) = finding.comparisons
  assert comparison.smaller == 'Table 3: MLP, EMNIST, non-IID'
  assert comparison.larger == 'Table 3: MobileNetV2, EMNIST, non-IID'
  assert [round(e.value, 6) for e in comparison.ours] == [1.0, 20.0]
  assert comparison.verdict == 'seems to hold'


def test_harder_data_are_compared_in_table_2_alone(tmp_path):
  for task, partition, size, drop in (
    ('mnist', 'iid', 500, 0.02),
    ('cifar10', 'class_balanced', 500, 0.01),
    ('mnist', 'label_skew', 125, 0.5),
  ):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.9 - drop},
      task=task,
      model='alexnet',
      partition=partition,
      examples_per_client=size,
    )
  finding = paper_findings.data_finding(run_folders.paper_rows(tmp_path))
  (comparison,) = finding.comparisons
  assert comparison.verdict == 'seems not to hold'
  assert comparison.published == (0.19, 4.83)


def test_rows_of_different_scales_decide_nothing(tmp_path):
  for model, dp, cohort in (('mlp', 0.79, 80), ('alexnet', 0.10, 20)):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.8, 'dp_fed_avg': dp},
      task='mnist',
      model=model,
      examples_per_client=125,
      clients_per_round=cohort,
    )
  finding = paper_findings.size_finding(run_folders.paper_rows(tmp_path))
  assert [c.verdict for c in finding.comparisons] == ['scales differ']
  assert finding.verdict.startswith('Of 1 comparison, it is not tested in 1')


def test_rows_are_compared_at_each_scale_that_both_have(tmp_path):
  for model, dp, cohort in (
    ('mlp', 0.79, 80),
    ('mlp', 0.77, 40),
    ('mlp', 0.70, 20),
    ('alexnet', 0.75, 40),
    ('alexnet', 0.40, 20),
  ):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.8, 'dp_fed_avg': dp},
      task='mnist',
      model=model,
      examples_per_client=125,
      clients_per_round=cohort,
    )
  found = run_folders.paper_rows(tmp_path)
  finding = paper_findings.size_finding(found)
  # MLP and AlexNet lose 0.29 and 0.16 points in the paper's Table 3.
  assert finding.verdict == (
    'Of 2 comparisons, it is not tested in 2, in which the paper’s own two '
    'drops are in the other order.'
  )
  drops = [[round(d.value) for d in c.ours] for c in finding.comparisons]
  assert drops == [[3, 5], [10, 40]]
  verdicts = {c.verdict for c in finding.comparisons}
  assert verdicts == {'contrary in the paper'}
  scales = finding.table()['P, Q, batch, T'].tolist()
  assert scales == ['40, 32, 64, 3', '20, 32, 64, 3']
  # The row itself is that of the larger scale alone.
  (mlp,) = [r for r in found if r.name == 'Table 3: MLP, EMNIST, non-IID']
  assert mlp.drop('dp_fed_avg').value == pytest.approx(1.0)


@pytest.mark.parametrize(
  ('size', 'table', 'clients_per_round'), [(500, 2, 10), (125, 3, 80)]
)
def test_row_of_clipping_alone_is_the_one_of_most_rounds(
  tmp_path, size, table, clients_per_round
):
  for cohort, rounds in ((80, 2), (10, 4)):
    for algorithm in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg'):
      run_folders.write_run(
        tmp_path / f'{algorithm}_{cohort}',
        algorithm=algorithm,
        model='alexnet',
        accuracies=(0.1,) * (rounds + 1),
        task='mnist',
        examples_per_client=size,
        clients_per_round=cohort,
      )
  (row,) = [
    row
    for row in run_folders.paper_rows(tmp_path)
    if row.groups and row.published.table == table
  ]
  assert row.scale[0] == clients_per_round
  assert [other.scale[0] for other in row.others] == [90 - clients_per_round]


@pytest.mark.parametrize(('plain', 'private'), [(0.9, 0.12), (0.29, 0.21)])
def test_models_that_guess_decide_nothing(tmp_path, plain, private):
  for model, fed_avg, dp in (
    ('alexnet', 0.9, 0.70),
    ('mobilenet_v2', plain, private),
  ):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': fed_avg, 'ce_fed_avg': fed_avg - 0.05, 'dp_fed_avg': dp},
      task='mnist',
      model=model,
      examples_per_client=125,
    )
  finding = paper_findings.size_finding(run_folders.paper_rows(tmp_path))
  assert [c.verdict for c in finding.comparisons] == ['near chance']
  assert 'near chance' in finding.verdict


@pytest.mark.parametrize(
  ('seeds', 'counts'), [((0,), '001000'), ((0, 1), '100000')]
)
def test_summary_counts_the_verdicts_of_each_finding(tmp_path, seeds, counts):
  _table_2(tmp_path, iid_drop=0.01, skew_drop=0.05, seeds=seeds)
  found = run_folders.paper_rows(tmp_path)
  findings = paper_findings.of_drops(found)
  table = paper_findings.summary_table(
    findings, norm_findings.concentration_verdicts(found)
  )
  first, *others = table.drop(columns='finding of the paper').to_numpy()
  assert ''.join(first) == counts
  assert len(others) == 4
  assert all(list(other) == ['0'] * 6 for other in others)
  assert table['finding of the paper'][0].startswith('The drop by clipping')
  assert findings[0].table()['seeds'].tolist() == [str(len(seeds))]
