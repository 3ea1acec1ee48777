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


@pytest.mark.parametrize(
  ('published', 'run', 'is_within'),
  [
    # From three seeds, 4.303 · 1 · √(4 / 3) = 4.969 points.
    ((0.94, 0.95, 0.96), dict(accuracy=0.9004), True),
    ((0.94, 0.95, 0.96), dict(accuracy=0.9002), False),
    # A point from one published seed.
    ((0.95,), dict(accuracy=0.9401), True),
    ((0.95,), dict(accuracy=0.9399), False),
    # Nothing is published of another setting or algorithm.
    ((0.95,), dict(accuracy=0.95, local_steps=3), False),
    ((0.95,), dict(accuracy=0.95, algorithm='ce_fed_avg'), False),
    # It is not finished.
    ((0.95,), dict(accuracy=0.95, num_rounds=2), False),
  ],
)
def test_a_run_of_the_same_setting_within_the_limit_repeats_the_figure(
  tmp_path, published, run, is_within
):
  found = _compare(
    _published(tmp_path, *published, num_rounds=1),
    _run(tmp_path / 'run', **run),
  )
  assert found['is_within'].to_list() == [is_within]


@pytest.mark.parametrize(
  ('settings', 'is_same'),
  [
    ({}, True),
    # c was given, and other aggregators, test sets and cohorts are other
    # experiments.
    (dict(described={}), False),
    (dict(clipping='adaptive'), False),
    (dict(aggregation='secure'), False),
    (dict(aggregator='mine.py:half'), False),
    (dict(data={'num_test_examples': 10}), False),
    (dict(sampling='round_robin'), False),
  ],
)
def test_only_a_threshold_of_another_seed_is_the_same_setting(
  tmp_path, settings, is_same
):
  clipped = dict(algorithm='ce_fed_avg', described=run_folders.FROM_A_RUN)
  published = _published(tmp_path, 0.95, clipping_norm=2.0, **clipped)
  clipped |= dict(clipping_norm=2.1) | settings
  run = _run(tmp_path / 'run', 0.95, **clipped)
  assert _compare(published, run)['is_within'].all() == is_same
