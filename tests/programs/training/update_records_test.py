"""Tests of the records of clients' updates."""

import math

import numpy as np
import pandas as pd

from tff_clipping.programs.training.update_records import UpdateRecords


def _metrics(norms, angles):
  return dict(
    client_work=dict(
      update_norm=np.array(norms, np.float32),
      angle_degrees=np.array(angles, np.float32),
    ),
    aggregate=dict(update_norm=np.float32(0.5), angle_degrees=np.float32(7)),
  )


def test_summary_and_file_of_a_chosen_round(tmp_path):
  records = UpdateRecords(tmp_path / 'updates', rounds=[2], clipping_norm=2.0)
  summary = records.record(
    3, ['a', 'b', 'c', 'd'], _metrics([1, 2, 4, 5], [10, 20, 30, 40])
  )
  assert summary['update_norm_mean'] == 3
  assert summary['update_norm_max'] == 5
  assert math.isclose(summary['update_norm_std'], math.sqrt(2.5))
  assert summary['clipped_fraction'] == 0.5
  table = pd.read_csv(tmp_path / 'updates' / 'round_00002.csv')
  assert table['client_id'].tolist() == [
    *'abcd',
    'mean',
  ]
  assert table['angle_degrees'].tolist() == [10, 20, 30, 40, 7]
  assert table['clip_factor'].tolist()[:4] == [1, 1, 0.5, 0.4]
  assert math.isnan(table['clip_factor'].iloc[4])


def test_other_rounds_are_not_written(tmp_path):
  records = UpdateRecords(tmp_path / 'updates', rounds=[2], clipping_norm=None)
  summary = records.record(2, ['a'], _metrics([1], [10]))
  assert math.isnan(summary['clipped_fraction'])
  assert not (tmp_path / 'updates').exists()


def test_an_empty_cohort_has_no_summary(tmp_path):
  records = UpdateRecords(tmp_path, rounds=[0], clipping_norm=1.0)
  summary = records.record(1, [], _metrics([], []))
  assert all(math.isnan(value) for value in summary.values())
  table = pd.read_csv(tmp_path / 'round_00000.csv')
  assert table['client_id'].tolist() == ['mean']


def test_an_update_that_is_not_finite_counts_as_clipped(tmp_path):
  records = UpdateRecords(tmp_path, rounds=[], clipping_norm=1.0)
  summary = records.record(
    1, ['a', 'b'], _metrics([math.nan, 0.5], [math.nan, 1])
  )
  assert summary['clipped_fraction'] == 0.5


def test_expected_norms_are_a_column_of_chosen_rounds(tmp_path):
  asked = []

  def expected_norms(weights, t, cohort):
    asked.append((weights, t, cohort))
    return np.array([0.5, 4.0], np.float32)

  records = UpdateRecords(
    tmp_path, rounds=[2], clipping_norm=2.0, expected_norms=expected_norms
  )
  assert records.estimate(2, ['a', 'b'], 'x1') is None
  estimated = records.estimate(3, ['a', 'b'], 'x2')
  assert asked == [('x2', 2, ['a', 'b'])]
  records.record(3, ['a', 'b'], _metrics([1, 4], [10, 20]), estimated)
  table = pd.read_csv(tmp_path / 'round_00002.csv')
  assert table['expected_norm'].tolist()[:2] == [0.5, 4]
  assert math.isnan(table['expected_norm'].iloc[2])


def test_where_models_are_clipped_the_factor_is_the_models(tmp_path):
  records = UpdateRecords(tmp_path, rounds=[0], clipping_norm=2.0)
  metrics = _metrics([1, 1], [10, 20])
  metrics['client_work']['model_norm'] = np.array([8, 1], np.float32)
  summary = records.record(1, ['a', 'b'], metrics)
  assert summary['clipped_fraction'] == 0.5
  assert summary['update_norm_mean'] == 1
  table = pd.read_csv(tmp_path / 'round_00000.csv')
  assert table['clip_factor'].tolist()[:2] == [0.25, 1]
