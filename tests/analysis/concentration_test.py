import pytest

from analysis import concentration, results
from tests.analysis import run_folders


def test_relative_spread_is_the_mean_ratio_of_the_rounds(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run', metrics={'update_norm_mean': 4.0, 'update_norm_std': 1.0}
  )
  assert concentration.relative_spread(results.read_run(folder)) == 0.25


def test_relative_spread_falls_back_to_the_recorded_updates(tmp_path):
  folder = run_folders.write_run(
    tmp_path / 'run',
    metrics={'update_norm_mean': '', 'update_norm_std': ''},
    updates={2: [('a', 1.0, 60, 1), ('b', 3.0, 60, 1), ('mean', 9.0, 60, '')]},
  )
  # Mean 2, standard deviation 1; the averaged update is no client.
  assert concentration.relative_spread(results.read_run(folder)) == 0.5


def test_pairs_hold_the_spread_of_fed_avg_and_the_drop(tmp_path):
  folders = [
    run_folders.write_run(
      tmp_path / 'fed_avg',
      accuracies=(0.1, 0.9),
      metrics={'update_norm_mean': 2.0, 'update_norm_std': 1.0},
    ),
    run_folders.write_run(
      tmp_path / 'ce',
      algorithm='ce_fed_avg',
      accuracies=(0.1, 0.85),
      metrics={'update_norm_mean': 1.0, 'update_norm_std': 1.0},
    ),
    run_folders.write_run(
      tmp_path / 'alone', algorithm='ce_fed_avg', seed=1, accuracies=(0.1, 0.8)
    ),
  ]
  groups = results.group_by_setting(results.read_runs(folders)[0])
  pairs = concentration.pairs(groups)
  assert pairs['run'].to_list() == ['ce']
  assert pairs['relative_spread'][0] == 0.5
  assert pairs['drop'][0] == pytest.approx(5.0)


def test_rank_correlation_of_a_textbook_example():
  # d = (0, 1, -1, 0, 0): 1 - 6 * 2 / (5 * 24) = 0.9.
  found = concentration.rank_correlation([1, 2, 3, 4, 5], [10, 30, 20, 40, 50])
  assert found.value == pytest.approx(0.9)
  assert found.low <= found.value <= found.high
  # Of the 120 orders, 5 give 0.9 or more, and as many -0.9 or less.
  assert found.p_value == pytest.approx(10 / 120)
  assert found.num_pairs == 5


def test_rank_correlation_shares_the_ranks_of_ties():
  # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, norms sqrt(1.5 * 2).
  found = concentration.rank_correlation([1, 1, 2], [1, 2, 3])
  assert found.value == pytest.approx(1.5 / 3.0**0.5)


def test_rank_correlation_repeats():
  data = ([1, 2, 3, 4], [2, 1, 4, 3])
  first = concentration.rank_correlation(*data)
  assert first == concentration.rank_correlation(*data)


@pytest.mark.parametrize(
  ('first', 'second', 'message'),
  [
    ([1, 2], [1, 2], 'at least 3'),
    ([1, 2, 3], [1, 2], 'shape'),
    ([1, 2, 3], [1, 2, float('nan')], 'finite'),
    ([1, 1, 1], [1, 2, 3], 'vary'),
  ],
)
def test_rank_correlation_refuses_what_has_none(first, second, message):
  with pytest.raises(ValueError, match=message):
    concentration.rank_correlation(first, second)
