"""Tests of settings that are declared once."""

import dataclasses

import pytest

from tasks.settings.setting_fields import (
  at_least,
  check_settings,
  one_of,
  positive,
  setting,
)


@dataclasses.dataclass(frozen=True)
class _Config:
  count: int = setting('A count.', 1, check=at_least(1))
  rate: float | None = setting('A rate.', None, check=positive)
  rounds: tuple[int, ...] = setting('Rounds.', (), check=at_least(0))
  name: str = setting('A name.', 'a', check=one_of('a', 'b'))

  def __post_init__(self):
    check_settings(self)


def test_a_value_in_range_and_one_that_is_not_given_pass():
  config = _Config(count=2, rate=1, rounds=(0, 3), name='b')
  assert config.rate == 1
  assert _Config().rate is None


@pytest.mark.parametrize(
  ('changes', 'error', 'message'),
  [
    (dict(count=0), ValueError, '`count` must be at least 1, found 0'),
    (dict(count=1.5), TypeError, '`count` must be an integer, found 1.5'),
    (dict(count=True), TypeError, '`count` must be an integer, found True'),
    (dict(count=None), TypeError, '`count` must be an integer, found None'),
    (dict(rate=float('nan')), ValueError, '`rate` must be positive and finite'),
    (dict(rate='x'), TypeError, "`rate` must be a number, found 'x'"),
    (dict(rounds=(1, -1)), ValueError, '`rounds` must be at least 0, found -1'),
    (dict(name='c'), ValueError, "`name` must be one of 'a', 'b', found 'c'"),
  ],
)
def test_any_other_value_is_refused(changes, error, message):
  with pytest.raises(error, match=message):
    _Config(**changes)
