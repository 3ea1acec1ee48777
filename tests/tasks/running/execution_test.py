"""Tests of where rounds are computed."""

import pytest

from tasks.running.execution import Execution


@pytest.mark.parametrize(
  'name', ['num_workers', 'threads_per_worker', 'num_shards']
)
def test_a_count_that_is_not_positive_is_refused(name):
  with pytest.raises(ValueError, match=f'`{name}` must be at least 1, found 0'):
    Execution(runtime='ray', **{name: 0})


def test_no_shards_are_refused_in_one_process_too():
  with pytest.raises(ValueError, match='`num_shards` must be at least 1'):
    Execution(num_shards=0)
