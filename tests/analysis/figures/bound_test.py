import math

import pytest

from analysis.figures import bound as bound_figures
from analysis.runs import bound
from tests.analysis import run_folders
from tests.analysis.run_folders import CONSTANTS

# c = 1: α = 1, 1/3.
UPDATES = {
  2: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 60.0, 1 / 3), ('mean', 9.0, 20.0, '')]
}
CLIPPED = dict(algorithm='ce_fed_avg', updates=UPDATES)
PRIVATE = dict(
  algorithm='dp_fed_avg',
  privacy=run_folders.PRIVACY | {'noise_multiplier': 2.0},
  updates=UPDATES,
)


@pytest.fixture
def read_group(read_runs):
  """As `read_runs`, for runs of one setting: the frames, and their rows."""

  def read(**runs):
    frames = read_runs(**runs)
    return frames, frames.runs

  return read


def test_deviation_by_hand(read_group):
  group = read_group(dp=dict(PRIVATE, accuracies=(0.1,) * 17))
  (row,) = bound.deviation_data(*group).to_dict('records')
  assert row['t'] == 2
  assert row['clipping_norm'] == 1.0
  # ᾱ = 2/3; the averaged update is no client.
  assert row['between_clients'] == pytest.approx(1 / 3)
  assert math.isnan(row['within_clients'])
  # (1/3 * 1 + 1/3 * 3) / 2 over ᾱ n = 2/3 * 2.
  assert row['bias'] == pytest.approx(0.5)
  # z c √d / P over the same, over √16.
  noise = 2.0 * math.sqrt(159_010) / 80 / (4 / 3) / 4
  assert row['noise'] == pytest.approx(noise)


def test_expected_norms_give_the_deviation_within_clients(read_group):
  updates = {2: [('a', 2.0, 60.0, 0.5, 1.0), ('b', 4.0, 60.0, 0.25, 2.0)]}
  group = read_group(ce=dict(CLIPPED, updates=updates))
  (row,) = bound.deviation_data(*group).to_dict('records')
  # α = 1/2, 1/4; α̃ = 1, 1/2; ᾱ = 3/4.
  assert row['within_clients'] == pytest.approx(0.375)
  assert row['between_clients'] == pytest.approx(0.25)
  assert math.isnan(row['noise'])


def test_rounds_with_norms_that_are_not_finite_are_left_out(read_group):
  updates = {0: [('a', 'nan', '', 1.0)], 2: UPDATES[2]}
  group = read_group(ce=dict(CLIPPED, updates=updates))
  assert bound.deviation_data(*group)['t'].to_list() == [2]


def test_terms_need_the_constants(read_group):
  assert bound.term_data(*read_group(without=CLIPPED)).empty
  group = read_group(ce=dict(CLIPPED, constants=CONSTANTS))
  (row,) = bound.term_data(*group).to_dict('records')
  # 4 G² (1/3), and 6 η_g η_l L Q G² (1/9).
  assert row['clipping_bias'] == pytest.approx(12.0)
  assert row['clipping_variance'] == pytest.approx(6 * 0.1 * 2 * 32 * 9 / 9)
  assert row['privacy_noise'] == 0.0


def test_fed_avg_has_no_clipping_terms(read_group):
  group = read_group(fed_avg=dict(updates=UPDATES, constants=CONSTANTS))
  (row,) = bound.term_data(*group).to_dict('records')
  assert row['clipping_bias'] == 0.0
  assert row['clipping_variance'] == 0.0
  # η_l² L² (Q − 1) (3 σ_l² + 2 Q σ_g²), at ᾱ = 1.
  assert row['client_drift'] == pytest.approx(
    0.01 * 4 * 31 * (3 * 0.25 + 2 * 32 * 0.0625)
  )


@pytest.mark.parametrize(
  ('value', 'note'),
  [
    ('large', 'constants.json has no number `smoothness`: left out'),
    (0, 'constants.json: `smoothness` is 0: left out'),
  ],
)
def test_constants_that_cannot_be_used_are_left_out_by_name(
  read_group, value, note
):
  _, group = read_group(run=dict(constants=CONSTANTS | {'smoothness': value}))
  assert not group.at['run', 'has_constants']
  assert group.at['run', 'notes'] == (note,)


def test_drawings_show_the_data(read_group):
  group = read_group(dp=dict(PRIVATE, constants=CONSTANTS))
  deviation = bound.deviation_data(*group)
  left, right = bound_figures.draw_deviation(deviation, 'title').axes
  assert [line.get_label() for line in left.get_lines()] == [
    'DP-FedAvg: between clients'
  ]
  bias, noise = (line.get_ydata()[0] for line in right.get_lines())
  assert bias == pytest.approx(100 * deviation['bias'][0])
  assert noise == pytest.approx(100 * deviation['noise'][0])
  terms = bound.term_data(*group)
  (ax,) = bound_figures.draw_terms(terms, 'title').axes
  drawn = {line.get_label(): line.get_ydata()[0] for line in ax.get_lines()}
  assert drawn['privacy noise'] == pytest.approx(terms['privacy_noise'][0])
  # The variances of gradients and of client sampling are not 0.
  assert len(drawn) == 7
  # 4 (f(x⁰) − f*) / (η_g η_l Q T) = 4 * 1.5 / (0.1 * 32 * 2)
  assert drawn['f(x⁰) − f* at the start'] == pytest.approx(0.9375)


def test_rounds_are_integers_and_runs_of_one_algorithm_are_told_apart(
  read_group,
):
  clipped = dict(
    algorithm='ce_fed_avg',
    updates={t: UPDATES[2] for t in (0, 1, 3)},
    constants=CONSTANTS,
  )
  group = read_group(
    a=dict(clipped, clipping_norm=1.0),
    b=dict(clipped, clipping_norm=2.0),
    own=dict(clipped, clipping_norm=2.0, aggregator='mine.py:half'),
  )
  deviation = bound_figures.draw_deviation(
    bound.deviation_data(*group), 'title'
  )
  terms = bound_figures.draw_terms(bound.term_data(*group), 'title')
  for ax in (*deviation.axes, *terms.axes):
    assert all(tick == int(tick) for tick in ax.get_xticks())
  left, _ = deviation.axes
  assert len({line.get_color() for line in left.get_lines()}) == 3


def test_terms_that_are_zero_but_for_rounding_are_not_drawn(read_group):
  constants = CONSTANTS | {'local_stddev': 1e-7}
  terms = bound.term_data(*read_group(ce=dict(CLIPPED, constants=constants)))
  assert 0.0 < terms['sampling_noise'][0] < 1e-15
  (ax,) = bound_figures.draw_terms(terms, 'title').axes
  labels = [line.get_label() for line in ax.get_lines()]
  assert 'clipping, first term' in labels
  assert 'variance of gradients' not in labels


def test_broken_conditions_are_named(read_group):
  _, group = read_group(without=CLIPPED)
  assert bound.broken_conditions(group) == []
  _, group = read_group(ce=dict(CLIPPED, constants=CONSTANTS))
  # η_l = 0.1 against 1 / (4 Q L) = 1 / (4 * 32 * 2), and
  # η_g η_l = 0.1 against 1 / (16 Q L) = 1 / (16 * 32 * 2).
  (sentence,) = bound.broken_conditions(group)
  assert sentence.startswith('ce: ')
  assert 'η_l <= 1 / (4 Q L) (0.1 against 0.00391)' in sentence
  assert 'η_g η_l <= 1 / (16 κ Q L) (0.1 against 0.000977)' in sentence


def test_the_bound_is_not_of_clipped_models(read_group):
  group = read_group(
    mc=dict(
      algorithm='model_clipping_fed_avg', updates=UPDATES, constants=CONSTANTS
    )
  )
  assert group[1]['clips'].to_list() == ['models']
  assert bound.deviation_data(*group).empty
  assert bound.term_data(*group).empty
  assert bound.broken_conditions(group[1]) == []
