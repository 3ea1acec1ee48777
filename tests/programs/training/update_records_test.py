"""Tests of the records of clients' updates."""

import collections
import math

import numpy as np
import pandas as pd
import pytest

from tff_clipping.programs.training import watchers
from tff_clipping.programs.training.update_records import UpdateRecords


def _round(round_num, cohort, norms, angles, **client_work):
  measured = dict(
    client_work=dict(
      update_norm=np.array(norms, np.float32),
      angle_degrees=np.array(angles, np.float32),
      **client_work,
    ),
    aggregate=dict(update_norm=np.float32(0.5), angle_degrees=np.float32(7)),
  )
  return watchers.Round(
    round_num,
    collections.OrderedDict(),
    model=None,
    work=watchers.ClientsWork(cohort, measured),
  )


def _watch(records, done):
  added = records.measure(done)
  records.record(done)
  return added


def test_summary_and_file_of_a_chosen_round(tmp_path):
  records = UpdateRecords(tmp_path / 'updates', rounds=[2], clipping_norm=2.0)
  added = _watch(records, _round(3, 'abcd', [1, 2, 4, 5], [10, 20, 30, 40]))
  assert added == {'clipped_fraction': 0.5}
  table = pd.read_csv(tmp_path / 'updates' / 'round_00002.csv')
  assert table['client_id'].tolist() == [*'abcd', 'mean']
  assert table['angle_degrees'].tolist() == [10, 20, 30, 40, 7]
  assert table['clip_factor'].tolist()[:4] == [1, 1, 0.5, 0.4]
  assert math.isnan(table['clip_factor'].iloc[4])


def test_other_rounds_are_not_written(tmp_path):
  records = UpdateRecords(tmp_path / 'updates', rounds=[2], clipping_norm=None)
  assert _watch(records, _round(2, 'a', [1], [10])) == {}
  for round_num in (0, 3):  # The initial model, and one recorded again.
    shown = watchers.Round(round_num, collections.OrderedDict(), model=None)
    assert _watch(records, shown) == {}
  assert not (tmp_path / 'updates').exists()


def test_a_process_that_does_not_measure_updates_is_named(tmp_path):
  records = UpdateRecords(tmp_path, rounds=[5], clipping_norm=None)
  done = _round(1, 'a', [1], [10])
  del done.work.measured['aggregate']
  with pytest.raises(ValueError, match='build_fed_avg.*measure_updates=True'):
    records.measure(done)


_HALF = {'clipped_fraction': 0.5}


@pytest.mark.parametrize(
  ('clipping_norm', 'norms', 'client_work', 'share', 'factors'),
  [
    (math.nan, [1, 2], {}, {}, [math.nan, math.nan]),
    (1.0, [], {}, {}, []),
    (1.0, [math.nan, 0.5], {}, _HALF, [math.nan, 1]),
    (2.0, [1, 1], {'model_norm': np.float32([8, 1])}, _HALF, [0.25, 1]),
  ],
  ids=['another rule', 'an empty cohort', 'not finite', 'models are clipped'],
)
def test_share_and_factors_of_what_is_clipped(
  tmp_path, clipping_norm, norms, client_work, share, factors
):
  records = UpdateRecords(tmp_path, rounds=[0], clipping_norm=clipping_norm)
  cohort = ['a', 'b'][: len(norms)]
  done = _round(1, cohort, norms, norms, **client_work)
  assert _watch(records, done) == share
  table = pd.read_csv(tmp_path / 'round_00000.csv')
  assert table['client_id'].tolist() == [*cohort, 'mean']
  np.testing.assert_array_equal(table['clip_factor'], [*factors, math.nan])
