"""Tests of the Markdown that the benchmarks print."""

import os

from benchmarks import tables
from benchmarks.alternate import Comparison


def test_each_side_has_a_row_with_the_ratios_of_its_pairs():
  found = Comparison(
    dict(
      bare=dict(seconds=[0.5, 1.0, 0.5]), ours=dict(seconds=[1.0, 3.0, 2.0])
    ),
    errors=dict(stock='no memory'),
  )
  of = ('bare', 'ours')
  assert tables.time_heading('model', of) == (
    '| model | side | s a round | of bare | of ours |\n|---|---|---|---|---|'
  )
  # Of bare: 2, 3 and 4. A side is not compared with itself.
  assert tables.time_rows('mlp', ['bare', 'ours', 'stock'], of, found) == (
    '| mlp | bare | 0.500 |  | 0.33 (0.29 to 0.42) |\n'
    '| mlp | ours | 2.000 | 3.00 (2.50 to 3.50) |  |\n'
    '| mlp | stock | failed: no memory |  |  |'
  )


def test_the_machine_is_told():
  assert f'{len(os.sched_getaffinity(0))} cores' in tables.describe_machine()
