"""Tests of the tables on the paper's rows."""

from analysis import tables
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
  table = tables.headline_table(3, run_folders.paper_lines(tmp_path))
  assert table['clipping drop, ours'].to_list() == ['10.00 ± 0.00']
  assert table['DP drop, ours'].to_list() == ['2.00 (seeds 1) (P = 20, T = 3)']


def test_noise_is_compared_with_the_threshold(tmp_path):
  _write_three(tmp_path, clients_per_round=20)
  (line,) = tables.noise_table(run_folders.paper_lines(tmp_path)).to_dict(
    'records'
  )
  # 1.5 √159,010 / 20 = 29.9, and / √3 for three rounds.
  assert line['noise / c'] == '30'
  assert line['noise / signal'] == '17.3'


def test_half_way_is_by_seeds_that_have_both_and_counted(tmp_path):
  for seed in range(3):
    for algorithm, accuracies in (
      ('fed_avg', (0.1, 0.5, 0.7, 0.8, 0.9)),
      ('ce_fed_avg', (0.1, 0.2, 0.3, 0.4, 0.75 + 0.001 * seed)),
    ):
      run_folders.write_run(
        tmp_path / f'{algorithm}_{seed}',
        algorithm=algorithm,
        accuracies=accuracies,
        seed=seed,
        **_TABLE_3,
      )
  lines = run_folders.paper_lines(tmp_path)
  (line,) = tables.clipping_table(lines).to_dict('records')
  assert line['FedAvg at T / 2 (%)'] == '70.00 ± 0.00'
  assert line['CE-FedAvg above that'] == '5.10 ± 0.25'
  assert tables.half_way_counts(lines)['half_way_above'] == 1


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
