"""Tests of the tables on the paper's rows."""

from analysis import margins, tables
from tests.analysis import run_folders

_TABLE_3 = dict(task='mnist', examples_per_client=125)
_THREE = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def _write_three(root, final=(0.94, 0.92, 0.91), **settings):
  """Runs of the MLP of Table 3, or of what the settings say."""
  run_folders.write_row(
    root, dict(zip(_THREE, final, strict=True)), **_TABLE_3 | settings
  )


def test_published_figures_stand_beside_ours(tmp_path):
  _write_three(tmp_path)
  (line,) = tables.published_table(run_folders.paper_lines(tmp_path)).to_dict(
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
  run_folders.write_row(tmp_path, {'fed_avg': 0.9}, **_TABLE_3)
  table = tables.published_table(run_folders.paper_lines(tmp_path))
  assert table['clipping drop, ours'].to_list() == ['not run']
  assert table['DP drop, ours'].to_list() == ['not run']
  assert table['ε, ours'].to_list() == ['not run']


def test_drop_by_noise_of_another_scale_is_marked(tmp_path):
  for seed in (0, 1, 2):
    run_folders.write_row(
      tmp_path, {'fed_avg': 0.9, 'ce_fed_avg': 0.8}, seed=seed, **_TABLE_3
    )
  for cohort in (10, 20):
    _write_three(
      tmp_path, (0.9, 0.8, 0.8 - 0.001 * cohort), clients_per_round=cohort
    )
  lines = run_folders.paper_lines(tmp_path)
  table = tables.headline_table(3, lines, lines[:0])
  assert table['clipping drop, ours'].to_list() == ['10.00 ± 0.00']
  assert table['DP drop, ours'].to_list() == [
    '2.00 (seeds 1) (at 20, 32, 64, 3)'
  ]
  # A study of noise at the row's own scale comes first.
  noisy = lines[lines['P'] == 20].assign(
    scale=[lines.iloc[0]['scale']], epsilon=[170.5]
  )
  table = tables.headline_table(3, lines, noisy)
  assert table['DP drop, ours'].to_list() == [
    '2.00 (seeds 1) (the noise of P = 80)'
  ]
  assert table['ε, ours'].to_list() == ['170.5']


def test_drop_near_chance_gives_way_to_the_noise_of_the_papers_cohort(tmp_path):
  _write_three(tmp_path, (0.9, 0.8, 0.12))
  lines = run_folders.paper_lines(tmp_path)
  (shown,) = tables.headline_table(3, lines, lines[:0])['DP drop, ours']
  assert shown == 'near chance'
  noisy = lines.assign(dp_drop=[margins.Estimate((3.0,))])
  noisy = noisy.assign(dp_fed_avg=[margins.Estimate((77.0,))])
  (shown,) = tables.headline_table(3, lines, noisy)['DP drop, ours']
  assert shown == '3.00 (the noise of P = 80)'


def test_noise_is_compared_with_the_threshold(tmp_path):
  _write_three(tmp_path, clients_per_round=20)
  (line,) = tables.noise_table(run_folders.paper_lines(tmp_path)).to_dict(
    'records'
  )
  # 1.5 √159,010 / 20 = 29.9, and / √3 for three rounds.
  assert line['noise / c'] == '30'
  assert line['noise / signal'] == '17.3'


def _write_paths(root, final):
  """CE-FedAvg's steps are half as long, so that it has FedAvg's way at T / 2.

  Args:
    root: The folder.
    final: The final accuracies of CE-FedAvg, one a seed.
  """
  for seed, last in enumerate(final):
    for algorithm, norm, accuracies in (
      ('fed_avg', 1.0, (0.1, 0.5, 0.7, 0.8, 0.9)),
      ('ce_fed_avg', 0.5, (0.1, 0.2, 0.3, 0.4, last)),
    ):
      run_folders.write_run(
        root / f'{algorithm}_{seed}',
        algorithm=algorithm,
        accuracies=accuracies,
        seed=seed,
        updates={0: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]},
        **_TABLE_3,
      )


def test_equal_path_is_by_seeds_that_have_both_and_counted(tmp_path):
  _write_paths(tmp_path, (0.75, 0.751, 0.752))
  lines = run_folders.paper_lines(tmp_path)
  (line,) = tables.clipping_table(lines).to_dict('records')
  assert line['FedAvg at equal path (%)'] == '70.00 ± 0.00'
  assert line['CE-FedAvg above that'] == '5.10 ± 0.25'
  counts = tables.equal_path_counts(lines)
  assert counts['equal_path_tested'] == counts['equal_path_above'] == 1
  assert counts['equal_path_corrected_above'] == 1
  assert counts['equal_path_below'] == counts['equal_path_within'] == 0


def test_drops_of_models_near_chance_are_not_shown(tmp_path):
  run_folders.write_row(
    tmp_path,
    {'fed_avg': 0.9, 'ce_fed_avg': 0.85, 'dp_fed_avg': 0.12},
    task='mnist',
    examples_per_client=125,
  )
  (line,) = tables.published_table(run_folders.paper_lines(tmp_path)).to_dict(
    'records'
  )
  assert line['clipping drop, ours'] == '5.00'
  assert line['DP drop, ours'] == 'near chance'


def test_rows_that_have_not_learned_are_not_shown_beside_the_paper(tmp_path):
  _write_three(tmp_path, (0.28, 0.25, 0.21))
  (line,) = tables.published_table(run_folders.paper_lines(tmp_path)).to_dict(
    'records'
  )
  assert line['FedAvg, ours (%)'] == 'near chance'
  assert line['clipping drop, ours'] == 'near chance'
  assert line['DP drop, ours'] == 'near chance'
