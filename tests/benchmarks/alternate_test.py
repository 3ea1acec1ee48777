"""Tests of programs that run their rounds in turns."""

import pathlib

import pytest

from benchmarks import alternate
from benchmarks.alternate import Side

# Writes its name when a round begins and ends; its rounds take no time.
_PROGRAM = """
import json, sys
from benchmarks.turns import Rounds

name, path = sys.argv[1:3]
rounds = Rounds({num_rounds})
for round_num in rounds:
  with open(path, 'a') as file:
    file.write(f'{{name}}{{round_num}}<\\n{{name}}{{round_num}}>\\n')
  {body}
print(json.dumps(dict(seconds=rounds.seconds, name=name)))
"""


def _side(name: str, path: pathlib.Path, body: str = '', num_rounds=3) -> Side:
  program = _PROGRAM.format(body=body, num_rounds=num_rounds)
  return Side(['-c', program, name, str(path)])


def _compare(sides, **kwargs):
  return alternate.compare(sides, num_rounds=2, num_warm_up_rounds=1, **kwargs)


def test_a_ratio_is_that_of_pairs():
  # The machine is twice as slow in the second turn, and twice again.
  ratio = alternate.pair_by_pair([1.1, 2.2, 4.4], [1.0, 2.0, 4.0])
  assert ratio == pytest.approx((1.1, 1.1, 1.1))


def test_the_spread_is_the_middle_half_of_the_pairs():
  ratio = alternate.pair_by_pair([1.0, 2.0, 3.0, 4.0, 50.0], [1.0] * 5)
  assert ratio == (3.0, 2.0, 4.0)
  assert str(ratio) == '3.00 (2.00 to 4.00)'


def test_sides_of_other_turns_are_refused():
  with pytest.raises(ValueError):
    alternate.pair_by_pair([1.0, 2.0], [1.0])


def test_rounds_take_turns_and_their_order_alternates(tmp_path):
  path = tmp_path / 'rounds'
  found = _compare({name: _side(name, path) for name in 'ab'})
  order = ['a0', 'b0', 'b1', 'a1', 'a2', 'b2']
  assert path.read_text().split() == [
    f'{each}{end}' for each in order for end in '<>'
  ]
  # Without the warm-up.
  assert {name: len(s) for name, s in found.seconds.items()} == dict(a=2, b=2)
  assert found.results['b']['name'] == 'b'
  assert not found.errors
  assert len(found.others) == 1


def test_last_rounds_are_run_and_not_timed(tmp_path):
  path = tmp_path / 'rounds'
  sides = {name: _side(name, path, num_rounds=5) for name in 'ab'}
  found = _compare(sides, num_last_rounds=2)
  assert len(path.read_text().split()) == 2 * 5 * 2
  for name, seconds in found.seconds.items():
    assert seconds == found.results[name]['seconds'][1:3]


def test_rounds_of_all_starts_are_compared(tmp_path):
  path = tmp_path / 'rounds'
  found = _compare({name: _side(name, path) for name in 'ab'}, num_starts=2)
  assert len(path.read_text().split()) == 2 * 2 * 3 * 2
  assert [len(found.seconds[name]) for name in 'ab'] == [4, 4]
  assert len(found.others) == 2
  assert found.ratio('a', 'b') == alternate.pair_by_pair(
    found.seconds['a'], found.seconds['b']
  )
  assert found.ratio('a', 'a') is found.ratio('a', 'absent') is None


@pytest.mark.parametrize(
  ('body', 'num_rounds', 'error'),
  [
    ('raise SystemExit("no memory")', 3, 'no memory'),
    ('sys.exit() if round_num == 1 else None', 3, 'No result in:'),
    ('', 2, 'It ended before its last round.'),
  ],
)
def test_a_side_that_fails_is_left_out(tmp_path, body, num_rounds, error):
  path = tmp_path / 'rounds'
  sides = dict(a=_side('a', path, body, num_rounds), b=_side('b', path))
  found = _compare(sides, num_starts=2)
  assert found.errors.keys() == {'a'}
  assert error in found.errors['a']
  assert found.seconds.keys() == found.results.keys() == {'b'}
  assert len(found.seconds['b']) == 4


@pytest.mark.parametrize(
  ('program', 'error'),
  [
    ('import nothing_of_this_name', 'nothing_of_this_name'),
    ('print([])', 'It ended before its first round.'),
  ],
)
def test_a_program_that_takes_no_turn_is_left_out(tmp_path, program, error):
  sides = dict(a=Side(['-c', program]), b=_side('b', tmp_path / 'rounds'))
  found = _compare(sides)
  assert error in found.errors['a']
  assert found.seconds.keys() == {'b'}
