"""Tests of the Markdown that the benchmarks print."""

from benchmarks import tables
from benchmarks.alternate import Comparison


def test_each_side_has_a_row_with_the_ratios_of_its_pairs():
  found = Comparison(
    seconds=dict(bare=[0.5, 1.0, 0.5], ours=[1.0, 3.0, 2.0]),
    errors=dict(stock='no memory'),
  )
  sides = ['bare', 'ours', 'stock']
  assert tables.time_heading('accuracy') == (
    '| model | side | s a round | of bare | of ours | accuracy |\n'
    '|---|---|---|---|---|---|'
  )
  # Of bare: 2, 3 and 4. A side is not compared with itself.
  assert tables.time_rows('mlp', sides, found, dict(ours='88.2%')) == [
    '| mlp | bare | 0.500 |  | 0.33 (0.29 to 0.42) |  |',
    '| mlp | ours | 2.000 | 3.00 (2.50 to 3.50) |  | 88.2% |',
    '| mlp | stock | failed: no memory |  |  |  |',
  ]


def test_there_are_no_ratios_to_a_side_that_failed():
  found = Comparison(seconds=dict(ours=[1.0, 2.0]), errors=dict(bare='no'))
  (row,) = tables.time_rows('mlp', ['ours'], found)
  assert row == '| mlp | ours | 1.500 |  |  |'


def test_both_contexts_have_a_row_with_their_ratio():
  found = Comparison(seconds=dict(native=[2.0, 4.0], ours=[0.5, 1.0]))
  assert tables.context_row('fed_avg', 40, found) == (
    '| fed_avg | 40 | 3.000 | 0.750 | 0.25 (0.25 to 0.25) |'
  )
  found = Comparison(seconds=dict(ours=[1.0]), errors=dict(native='no'))
  assert tables.context_row('fed_avg', 40, found) == (
    '| fed_avg | 40 | failed: no | 1.000 |  |'
  )


def test_the_busiest_start_is_told():
  found = Comparison(others=[0.01, 0.2])
  assert tables.busy_line('mlp', found).startswith(
    "mlp: other programs took 20.0% of the CPUs' time: NOT QUIET"
  )
  assert tables.busy_line('mlp', Comparison(others=[0.01])) == (
    "mlp: other programs took 1.0% of the CPUs' time."
  )
  assert 'not known' in tables.busy_line('mlp', Comparison(others=[0.1, None]))


def test_memory_is_printed_beyond_one_client():
  peaks = dict(one_client=1_000_000_000, ours=3_500_000_000, stock='no memory')
  assert tables.memory_row('one_client', peaks) == '| one_client | 1.00 GB |  |'
  assert tables.memory_row('ours', peaks) == '| ours | 3.50 GB | 2.50 GB |'
  assert tables.memory_row('stock', peaks) == '| stock | no memory |  |'
  peaks['one_client'] = 'failed'
  assert tables.memory_row('ours', peaks) == '| ours | 3.50 GB |  |'
