"""Tests of what the benchmarks print."""

from benchmarks import summaries


def test_a_run_is_summarized_in_parts():
  # A sample after each round; a round of 2 s takes 1 s of the program's time.
  samples = [
    summaries.Sample(seconds=10 + 2 * n, round_num=n, memory=100 + n)
    for n in range(11)
  ]
  parts = summaries.parts_of_run(samples, [1.0] * 5 + [1.5] * 5, 2)
  assert [(p['first'], p['last']) for p in parts] == [(1, 5), (6, 10)]
  assert [p['median_seconds'] for p in parts] == [1.0, 1.5]
  assert [p['wall_seconds'] for p in parts] == [2.0, 2.0]
  # The samples while rounds 1 to 5 ran are those after rounds 0 to 4.
  assert [p['memory'] for p in parts] == [102, 107]


def test_equal_marginal_costs_are_a_straight_line():
  assert summaries.marginal_cost({10: 1.5, 20: 2.5, 40: 4.5}) == [0.1, 0.1]


def test_a_peer_that_fails_has_a_row():
  assert 'failed: no wheel' in summaries.peer_line(
    'pfl', dict(error='no wheel'), 1.0
  )
  row = summaries.peer_line(
    'pfl', dict(median_seconds=2.0, accuracy=0.875), 0.5
  )
  assert '2.000 s a round,  4.00 of bare, accuracy 87.5%' in row
  # No ratio to what was not measured.
  row = summaries.peer_line('pfl', dict(median_seconds=2.0), None)
  assert row.endswith('2.000 s a round')


def test_times_are_printed_as_ratios():
  lines = summaries.time_lines(
    'mlp',
    dict(
      workload='P=80',
      arithmetic=dict(operations=11e9, peak=dict(float32=40e9, bfloat16=110e9)),
      median_seconds=dict(bare=0.5, ours=0.55, ours_bfloat16=0.2, stock=2.2),
    ),
  )
  assert lines[1] == (
    '  11 billion operations a round; the peak is 40 a second in float32, '
    '110 a second in bfloat16'
  )
  assert (
    '0.550 s a round,  1.10 of bare,  50% of the peak,  0.25 of stock'
    in lines[3]
  )
  assert '0.200 s a round,  0.40 of bare,  50% of the peak' in lines[4]


def test_memory_is_printed_beyond_one_client():
  peaks = dict(one_client=1_000_000_000, ours=3_500_000_000, stock='no memory')
  assert '3.50 GB at the peak,   2.50 GB beyond' in summaries.memory_line(
    'ours', peaks
  )
  assert summaries.memory_line('stock', peaks).endswith('no memory')
  peaks['one_client'] = 'failed'
  assert summaries.memory_line('ours', peaks).endswith('3.50 GB at the peak')
