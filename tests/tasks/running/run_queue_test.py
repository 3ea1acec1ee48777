"""Tests of the queue of runs; those of sweeps run whole ones."""

import pytest

from tasks.running import run_queue


@pytest.mark.parametrize(
  ('seconds', 'num_runs', 'left'),
  [
    ([10.0, 20.0], 3, 'about 45 s left'),
    ([10.0, 20.0], 7, 'about 105 s left'),
    ([10.0, 20.0], 8, 'about 2 min left'),
    ([1800.0], 3, 'about 90 min left'),
    ([1800.0, 5400.0], 10, 'about 10 h left'),
    ([], 3, ''),
  ],
)
def test_time_left_is_the_mean_of_the_runs_before(seconds, num_runs, left):
  assert run_queue.estimate_left(seconds, num_runs) == left
