"""Tests of what the paper says of the norms of updates."""

import pytest

from analysis import norm_findings
from tests.analysis import run_folders


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
        accuracies=(0.1,) * 18,
        metrics={
          'update_norm_mean': 10.0 if partition == 'iid' else 1.0,
          'update_norm_std': std,
        },
        examples_per_client=500,
      )
  table = norm_findings.spread_table(run_folders.paper_rows(tmp_path))
  counts = table.drop(columns='the norms spread, in the paper').to_numpy()
  assert counts.tolist() == [['0'] * 3, ['1', '1', '0'], ['0'] * 3]


def test_rows_stand_by_the_spread_of_their_norms(tmp_path):
  for model, spread in (('mlp', 0.5), ('alexnet', 0.25)):
    for algorithm, accuracy in (('fed_avg', 0.9), ('ce_fed_avg', 0.8)):
      run_folders.write_run(
        tmp_path / f'{model}_{algorithm}',
        algorithm=algorithm,
        model=model,
        accuracies=(0.1, accuracy),
        metrics={'update_norm_mean': 2.0, 'update_norm_std': 2.0 * spread},
        examples_per_client=125,
      )
  table = norm_findings.concentration_table(run_folders.paper_rows(tmp_path))
  assert table['row'].str.contains('AlexNet').tolist() == [True, False]
  column = 'std / mean of the norms (%)'
  assert table[column].tolist() == ['25.0', '50.0']


_TABLE_3 = dict(task='emnist_digits', examples_per_client=125)
_TABLE_4 = dict(
  task='cifar10', partition='class_balanced', examples_per_client=500
)


def _spread_rows(root, drops, cohort=80, first=1, table=_TABLE_3):
  """Rows of a table by rising spread of the norms of FedAvg, with two seeds."""
  for number, (model, drop) in enumerate(drops.items(), start=first):
    for seed in (0, 1):
      for algorithm, accuracy in (('fed_avg', 0.9), ('ce_fed_avg', 0.9 - drop)):
        run_folders.write_run(
          root / f'{model}_{algorithm}_{cohort}_{seed}_{table["task"]}',
          algorithm=algorithm,
          model=model,
          seed=seed,
          accuracies=(0.1, accuracy),
          metrics={'update_norm_mean': 1.0, 'update_norm_std': 0.1 * number},
          clients_per_round=cohort,
          **table,
        )


@pytest.mark.parametrize(
  ('sign', 'verdict'), [(1, 'holds'), (-1, 'does not hold')]
)
def test_correlation_over_the_rows_decides_concentration(
  tmp_path, sign, verdict
):
  models = ('mlp', 'alexnet', 'mobilenet_v2', 'resnet18')
  drops = {m: 0.5 + sign * 0.01 * place for place, m in enumerate(models)}
  _spread_rows(tmp_path, drops)
  _spread_rows(tmp_path, drops, cohort=20)
  drops = {m: 0.5 + sign * 0.02 * place for place, m in enumerate(models)}
  del drops['mobilenet_v2']
  _spread_rows(tmp_path, drops, first=3, table=_TABLE_4)
  table = norm_findings.concentration_verdicts(run_folders.paper_rows(tmp_path))
  scales = ['80, 32, 64, 1', '20, 32, 64, 1']
  assert sorted(table['P, Q, batch, T'], reverse=True) == scales
  table = table.set_index('P, Q, batch, T').loc[scales]
  # Eight pairs of runs of a scale, which are four rows: 2 / 4! is too much.
  assert table['rows'].tolist() == ['7', '4']
  assert table['verdict'].tolist() == [verdict, 'not decided']
  assert table['p'].iloc[1] == '0.083'


def test_each_scale_has_its_own_correlation(tmp_path):
  up = {'mlp': 0.01, 'alexnet': 0.02, 'resnet18': 0.03}
  _spread_rows(tmp_path, up)
  _spread_rows(tmp_path, dict(zip(up, (0.3, 0.2, 0.1), strict=True)), cohort=20)
  table = norm_findings.concentration_verdicts(run_folders.paper_rows(tmp_path))
  assert sorted(table['Spearman ρ']) == ['-1.00', '1.00']


def test_two_rows_decide_nothing_on_concentration(tmp_path):
  _spread_rows(tmp_path, {'mlp': 0.01, 'alexnet': 0.02})
  assert (
    len(norm_findings.concentration_verdicts(run_folders.paper_rows(tmp_path)))
    == 0
  )
