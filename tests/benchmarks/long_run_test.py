"""Tests of the summaries of long runs and of how costs grow."""

import pytest

pytest.importorskip('tensorflow_federated')

from benchmarks import long_run, scaling  # noqa: E402
from benchmarks.peers import compare  # noqa: E402


def test_a_run_is_summarized_in_parts():
  # A sample after each round; a round of 2 s takes 1 s of the program's time.
  samples = [
    long_run.Sample(seconds=10 + 2 * n, round_num=n, memory=100 + n)
    for n in range(11)
  ]
  parts = long_run.summarize(samples, [1.0] * 5 + [1.5] * 5, 2)
  assert [(p['first'], p['last']) for p in parts] == [(1, 5), (6, 10)]
  assert [p['median_seconds'] for p in parts] == [1.0, 1.5]
  assert [p['wall_seconds'] for p in parts] == [2.0, 2.0]
  # The samples while rounds 1 to 5 ran are those after rounds 0 to 4.
  assert [p['memory'] for p in parts] == [102, 107]


def test_equal_marginal_costs_are_a_straight_line():
  assert scaling.marginal_cost({10: 1.5, 20: 2.5, 40: 4.5}) == [0.1, 0.1]


def test_a_peer_that_fails_has_a_row():
  assert 'failed: no wheel' in compare.row('pfl', dict(error='no wheel'), 1.0)
  row = compare.row('pfl', dict(median_seconds=2.0, accuracy=0.875), 0.5)
  assert '2.000 s a round,  4.00 of bare, accuracy 87.5%' in row
