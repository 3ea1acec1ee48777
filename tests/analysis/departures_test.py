"""Tests of the tables on where ours departs from the paper."""

from analysis import departures
from tests.analysis import run_folders


def test_noise_is_compared_with_the_threshold(tmp_path):
  run_folders.write_row(
    tmp_path,
    {'fed_avg': 0.9, 'ce_fed_avg': 0.8, 'dp_fed_avg': 0.7},
    task='mnist',
    examples_per_client=125,
    clients_per_round=20,
  )
  (line,) = departures.noise_table(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  # 1.5 √159,010 / 20 = 29.9, and / 80 = 7.5.
  assert line['noise / c'] == '30'
  assert line['noise / c, with P = 80'] == '7'
  # 29.9 / √3, for three rounds.
  assert line['noise / signal, over T'] == '17.3'


def test_half_way_is_the_evaluation_up_to_half_of_the_rounds(tmp_path):
  for seed in (0, 1):
    for algorithm, accuracies in (
      ('fed_avg', (0.1, 0.5, 0.7, 0.8, 0.9)),
      ('ce_fed_avg', (0.1, 0.2, 0.3, 0.4, 0.75)),
    ):
      run_folders.write_run(
        tmp_path / f'{algorithm}_{seed}',
        algorithm=algorithm,
        accuracies=accuracies,
        examples_per_client=125,
        seed=seed,
      )
  (line,) = departures.half_way_table(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  assert line['FedAvg, half of the rounds (%)'] == '70.00'
  assert line['CE-FedAvg, all rounds (%)'] == '75.00'
  assert line['CE-FedAvg less FedAvg at half'] == '5.00 ± 0.00'
  assert line['CE-FedAvg ends'] == 'above'


def test_half_way_takes_seeds_that_have_both(tmp_path):
  for seed, accuracies in ((0, (0.2, 0.5, 0.6)), (1, (0.2, 0.8, 0.9))):
    run_folders.write_run(
      tmp_path / f'fed_avg_{seed}',
      accuracies=accuracies,
      examples_per_client=125,
      seed=seed,
    )
  run_folders.write_run(
    tmp_path / 'ce',
    algorithm='ce_fed_avg',
    # 15 points behind at all evaluations.
    accuracies=(0.05, 0.35, 0.45),
    examples_per_client=125,
  )
  (line,) = departures.half_way_table(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  assert line['FedAvg, half of the rounds (%)'] == '50.00'
  assert line['FedAvg, all rounds (%)'] == '60.00'
  assert (line['seeds'], line['CE-FedAvg ends']) == ('1', 'below')


def test_distance_has_the_sign_and_the_margin_of_ours(tmp_path):
  for seed, drop in ((0, 0.02), (1, 0.04)):
    run_folders.write_row(
      tmp_path,
      {'fed_avg': 0.9, 'ce_fed_avg': 0.9 - drop},
      task='mnist',
      examples_per_client=125,
      seed=seed,
    )
  (line,) = departures.distance_table(run_folders.paper_rows(tmp_path)).to_dict(
    'records'
  )
  # Table 3, MLP: 94.0 and 1.84. 12.706 times an error of one point.
  assert line['FedAvg'] == '-4.00 ± 0.00'
  assert line['clipping drop'] == '+1.16 ± 12.71'
  assert line['DP drop'] == '–'
  assert line['at the paper’s scale'] == 'yes'
