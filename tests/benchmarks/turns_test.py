"""Tests of the rounds of a program that was started by hand."""

import pytest

from benchmarks import turns


@pytest.fixture(autouse=True)
def _has_all_turns(monkeypatch):
  monkeypatch.delenv(turns.FOLDER, raising=False)
  clock = iter(range(0, 100, 3))
  monkeypatch.setattr(turns.time, 'monotonic', lambda: next(clock))


def test_a_loop_is_timed_round_by_round():
  rounds = turns.Rounds(2)
  assert list(rounds) == [0, 1, 2, 3, 4]
  # Without two rounds before them and one after.
  assert rounds.seconds == [3, 3]


def test_callbacks_end_a_round_and_begin_the_next():
  rounds = turns.Rounds(2)
  for expected in ([], [], [], [3], [3, 3], [3, 3], [3, 3]):
    rounds.advance()
    assert rounds.seconds == expected
