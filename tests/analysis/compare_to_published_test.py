"""Tests of runs beside the published ones."""

import pandas as pd
import pytest

from analysis import compare_to_published, stats
from tests.analysis import run_folders


def _run(path, accuracy, **settings):
  folder = run_folders.write_run(path, accuracies=(0.1, accuracy), **settings)
  return stats.read_folders([folder]).table


def _published(root, *accuracies, **settings):
  return pd.concat(
    _run(root / f'seed{seed}', accuracy, seed=seed, **settings)
    for seed, accuracy in enumerate(accuracies)
  )


def _compare(published, *runs):
  return compare_to_published.compare(pd.concat(runs), published)


def test_limit_is_the_prediction_interval_of_three_seeds(tmp_path):
  published = _published(tmp_path, 0.94, 0.95, 0.96)
  found = _compare(published, _run(tmp_path / 'run', 0.9, seed=7)).iloc[0]
  assert found['published'].values == pytest.approx((94.0, 95.0, 96.0))
  # 4.303 · 1 · √(4 / 3).
  assert found['limit'] == pytest.approx(4.969, abs=1e-3)


@pytest.mark.parametrize(
  ('accuracy', 'within'), [(0.95, True), (0.901, True), (0.899, False)]
)
def test_run_within_the_limit_repeats_the_figure(tmp_path, accuracy, within):
  published = _published(tmp_path, 0.94, 0.95, 0.96)
  found = _compare(published, _run(tmp_path / 'run', accuracy))
  assert found['is_within'].to_list() == [within]


def test_other_settings_and_algorithms_are_not_compared(tmp_path):
  published = _published(tmp_path, 0.95)
  found = _compare(
    published,
    _run(tmp_path / 'steps', 0.95, local_steps=3),
    _run(tmp_path / 'ce', 0.95, algorithm='ce_fed_avg'),
  )
  assert found['published'].isna().all()
  assert not found['is_within'].any()


def test_threshold_of_another_seed_is_the_same_setting(tmp_path):
  published = _published(
    tmp_path, 0.95, algorithm='ce_fed_avg', clipping_norm=2.0
  )
  run = _run(tmp_path / 'run', 0.95, algorithm='ce_fed_avg', clipping_norm=2.1)
  assert _compare(published, run)['is_within'].all()


def test_unfinished_run_repeats_nothing(tmp_path):
  published = _published(tmp_path, 0.95, num_rounds=1)
  run = _run(tmp_path / 'run', 0.95, num_rounds=2)
  assert not _compare(published, run)['is_within'].any()
