"""Tests of programs that run their rounds in turns."""

import pathlib

import pytest

from benchmarks import alternate
from benchmarks.alternate import Comparison, Side

# Writes its name when a round begins and ends; its rounds take no time.
_PROGRAM = """
import json, sys
from benchmarks.turns import Rounds

name, path = sys.argv[1:3]
rounds = Rounds(2)
for round_num in rounds:
  with open(path, 'a') as file:
    file.write(f'{{name}}{{round_num}}<\\n{{name}}{{round_num}}>\\n')
  {body}
print(json.dumps(dict(seconds=rounds.seconds, name=name)))
"""


def _side(name: str, path: pathlib.Path, body: str = '') -> Side:
  return Side(['-c', _PROGRAM.format(body=body), name, str(path)])


@pytest.mark.parametrize(
  ('seconds', 'ratio'),
  [
    # The machine is twice as slow in the second turn, and twice again.
    (([1.1, 2.2, 4.4], [1.0, 2.0, 4.0]), '1.10 (1.10 to 1.10)'),
    # The spread is the middle half of the pairs.
    (([1.0, 2.0, 3.0, 4.0, 50.0], [1.0] * 5), '3.00 (2.00 to 4.00)'),
  ],
)
def test_a_ratio_is_that_of_pairs(seconds, ratio):
  found = Comparison(
    {name: dict(seconds=s) for name, s in zip('ab', seconds, strict=True)}
  )
  assert found.describe_ratio('a', 'b') == ratio
  assert found.describe_ratio('a', 'a') == ''
  assert found.describe_ratio('a', 'absent') == ''


def test_sides_of_other_turns_are_refused():
  found = Comparison(dict(a=dict(seconds=[1.0, 2.0]), b=dict(seconds=[1.0])))
  with pytest.raises(ValueError, match='shorter'):
    found.describe_ratio('a', 'b')


def test_rounds_take_turns_and_their_order_alternates(tmp_path):
  path = tmp_path / 'rounds'
  found = alternate.compare(
    {name: _side(name, path) for name in 'ab'}, num_rounds=2
  )
  order = ['a0', 'b0', 'b1', 'a1', 'a2', 'b2', 'b3', 'a3', 'a4', 'b4']
  assert path.read_text().split() == [
    f'{each}{end}' for each in order for end in '<>'
  ]
  # Without the warm-up and the last round.
  assert {n: len(r['seconds']) for n, r in found.results.items()} == dict(
    a=2, b=2
  )
  assert found.results['b']['name'] == 'b'
  assert not found.errors


@pytest.mark.parametrize(
  ('body', 'error'),
  [
    ('raise SystemExit("no memory")', 'no memory'),
    ('sys.exit() if round_num == 1 else None', 'No result in:'),
    ('if round_num: break', 'It ended before its last round.'),
  ],
)
def test_a_side_that_fails_is_left_out(tmp_path, body, error):
  path = tmp_path / 'rounds'
  sides = dict(a=_side('a', path, body), b=_side('b', path))
  found = alternate.compare(sides, num_rounds=2)
  assert found.errors.keys() == {'a'}
  assert error in found.errors['a']
  assert found.results.keys() == {'b'}
  assert found.describe_seconds('a') == f'failed: {found.errors["a"]}'


@pytest.mark.parametrize(
  ('program', 'error'),
  [
    ('import nothing_of_this_name', 'nothing_of_this_name'),
    ('print([])', 'It ended before its last round.'),
  ],
)
def test_a_program_that_takes_no_turn_is_left_out(tmp_path, program, error):
  sides = dict(a=Side(['-c', program]), b=_side('b', tmp_path / 'rounds'))
  found = alternate.compare(sides, num_rounds=2)
  assert error in found.errors['a']
  assert found.results.keys() == {'b'}
