"""The panels of figures by their numbers, and how they are drawn."""

import math

import numpy as np
import pytest
from matplotlib import text

from analysis import figures
from tests.analysis import run_folders

_UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25), ('mean', 1.0, '', '')],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3), ('mean', 0.5, 45.0, '')],
}
_PRIVATE = dict(algorithm='dp_fed_avg', privacy=run_folders.PRIVACY)


def _lines(panel):
  return {line.label: line for line in panel.lines}


def test_a_curve_is_the_mean_of_seeds_with_their_range(read_runs):
  table = read_runs(
    a=dict(seed=1, accuracies=(0.1, 0.9)),
    b=dict(seed=2, accuracies=(0.1, 0.7)),
    ce=dict(algorithm='ce_fed_avg', accuracies=(0.1, 0.5)),
  ).table
  panel = figures.curve_panel('title', table)
  lines = _lines(panel)
  assert [*lines] == ['FedAvg: 80.0 %', 'CE-FedAvg: 50.0 %']
  line = lines['FedAvg: 80.0 %']
  assert line.x == [0, 1]
  assert (line.low[-1], line.y[-1], line.high[-1]) == (70.0, 80.0, 90.0)
  assert panel.y_label == 'Test accuracy (%)'
  (ax,) = figures.draw([[panel]], (4, 3)).axes
  assert [each.get_label() for each in ax.get_lines()] == [*lines]


def test_a_figure_of_curves_is_of_a_problem_or_of_a_setting(read_runs):
  rates = [0.1 * k for k in range(1, 10)]
  table = read_runs(
    iid=dict(partition='iid'),
    iid_ce=dict(partition='iid', algorithm='ce_fed_avg'),
    **{f'{rate}': dict(client_learning_rate=rate) for rate in rates},
  ).table
  drawn = figures.curves(table)
  # Nine lines are too many for one.
  assert [each.caption for each in drawn] == [
    'Test accuracy by round: MLP on EMNIST, IID.',
    *(
      'Test accuracy by round: MLP on EMNIST, non-IID (label skew), '
      f'η_l = {rate:.4g}.'
      for rate in rates
    ),
  ]
  assert len({each.name for each in drawn}) == 10
  limits = {each.draw().axes[0].get_ylim() for each in drawn}
  assert len(limits) == 1


@pytest.mark.parametrize(
  ('scores', 'metric', 'limits'),
  [
    # The start does not flatten what comes after.
    ((0.1, *[0.9] * 10, 0.92), None, (89.9, 92.1)),
    ((500.0, *[0.02] * 10, 0.01), ('loss', 'min'), (0.0095, 0.0205)),
    # 14 is no more than 1.5 times 10, and 16 is.
    ((24.0, *[20.0] * 10, 10.0), ('loss', 'min'), (9.3, 24.7)),
    ((26.0, *[20.0] * 10, 10.0), ('loss', 'min'), (9.5, 20.5)),
    ((1.0, math.inf, math.inf), ('loss', 'min'), (0.0, 1.0)),
  ],
)
def test_limits_are_those_of_the_late_rounds(read_runs, scores, metric, limits):
  table = read_runs(a=dict(accuracies=scores, metric=metric)).table
  assert figures.curve_limits(table) == pytest.approx(limits)


@pytest.mark.parametrize('algorithm', ['CE-FedAvg', 'DP-FedAvg', 'another'])
def test_twelve_lines_of_one_algorithm_are_told_apart(algorithm):
  next_look = figures.looks()
  names = [algorithm, f'{algorithm} by own.py:half', algorithm] * 4
  found = [next_look(name) for name in names]
  assert len({tuple(look.values()) for look in found}) == 12


def _sweep(read_runs):
  return read_runs(
    fed_avg=dict(accuracies=(0.1, 0.9)),
    **{
      f'{norm}_{epsilon}_{seed}': dict(
        algorithm='dp_fed_avg',
        accuracies=(0.1, accuracy + 0.02 * seed),
        seed=seed,
        clipping_norm=norm,
        target_epsilon=epsilon,
        privacy=run_folders.PRIVACY
        | {'epsilon': epsilon, 'actual_epsilon': epsilon},
      )
      for epsilon, norm, accuracy in (
        (1.5, 2.0, 0.6),
        (1.5, 10.0, 0.65),
        (8.0, 2.0, 0.7),
        (8.0, 10.0, 0.75),
      )
      for seed in (0, 1)
    },
  ).table


@pytest.mark.parametrize(
  ('quantity', 'expected'),
  [
    (
      'epsilon',
      {
        'DP-FedAvg, c = 2': ([1.5, 8.0], [61, 71]),
        'DP-FedAvg, c = 10': ([1.5, 8.0], [66, 76]),
      },
    ),
    (
      'clipping_norm',
      {
        'DP-FedAvg, ε = 1.5': ([2.0, 10.0], [61, 66]),
        'DP-FedAvg, ε = 8': ([2.0, 10.0], [71, 76]),
      },
    ),
  ],
)
def test_the_metric_is_drawn_by_what_varies(
  read_runs, monkeypatch, quantity, expected
):
  panels = []
  monkeypatch.setattr(figures, 'draw', lambda grid, size: panels.extend(*grid))
  table = _sweep(read_runs)
  (drawing,) = figures.by_quantity(table, quantity)
  drawing.draw()
  lines = _lines(panels[0])
  # A run without the quantity is a level.
  level = lines.pop('FedAvg')
  assert (level.x, level.y) == (None, [90.0])
  assert {
    label: (line.x, pytest.approx(line.y)) for label, line in lines.items()
  } == expected
  assert all(
    line.high[0] - line.low[0] == pytest.approx(2) for line in lines.values()
  )


def test_a_logarithmic_axis_has_a_tick_at_each_value(read_runs):
  (drawing,) = figures.by_quantity(_sweep(read_runs), 'epsilon')
  (ax,) = drawing.draw().axes
  assert [tick.get_text() for tick in ax.get_xticklabels()] == ['1.5', '8']


def test_a_quantity_that_follows_the_seed_is_not_drawn(read_runs):
  table = read_runs(
    **{
      f'{seed}': dict(seed=seed, clipping_norm=0.5 + seed, **_PRIVATE)
      for seed in (0, 1)
    }
  ).table
  assert figures.by_quantity(table, 'clipping_norm') == []
  assert figures.by_quantity(table, 'epsilon') == []


def test_updates_hold_each_client_the_average_and_the_threshold(read_runs):
  found = read_runs(
    fed_avg=dict(updates=_UPDATES),
    ce=dict(algorithm='ce_fed_avg', clipping_norm=1.25),
  )
  table = found.table.loc[['fed_avg']]
  ((first, late),) = figures.scatter_grid(found, table, [0, 16], (30, 105))
  assert first.x_label == 'no last update: by client'
  assert _lines(first)['one client'].y == [2.0, 4.0]
  lines = _lines(late)
  assert late.title == 'FedAvg, non-IID, t = 16'
  assert (lines['one client'].x, lines['one client'].y) == (
    [60.0, 90.0],
    [1.0, 3.0],
  )
  # FedAvg does not clip: the threshold is that of the run beside it.
  assert (lines['threshold c'].x, lines['threshold c'].y) == (None, [1.25])
  assert (lines['average'].x, lines['average'].y) == ([45.0], [0.5])
  assert late.y_limits == (0.0, pytest.approx(1.08 * 3.0))


def test_an_average_beyond_the_clients_is_marked_and_sets_no_scale(read_runs):
  beyond = {
    16: [('a', 1.0, 50, ''), ('b', 2.0, 60, ''), ('mean', 10.625, 70, '')]
  }
  found = read_runs(
    fed_avg=dict(updates=_UPDATES),
    own=dict(aggregator='own.py:sign', updates=beyond),
  )
  (plain,), (own,) = figures.scatter_grid(found, found.table, [16], (30, 105))
  # Each by its clients; another aggregator has a scale of its own.
  assert plain.y_limits[1] == pytest.approx(1.08 * 3.0)
  assert own.y_limits[1] == pytest.approx(1.08 * 2.0)
  average = own.lines[-1]
  assert average.label == 'average, beyond the scale'
  assert (average.y, average.note) == ([own.y_limits[1]], '10.6')
  assert _lines(plain)['average'].note == ''


def test_threshold_is_not_guessed_where_there_are_several(read_runs):
  found = read_runs(
    fed_avg=dict(updates=_UPDATES),
    a=dict(algorithm='ce_fed_avg', clipping_norm=1.0),
    b=dict(algorithm='ce_fed_avg', clipping_norm=2.0),
  )
  ((panel,),) = figures.scatter_grid(
    found, found.table.loc[['fed_avg']], [16], (30, 105)
  )
  assert 'threshold c' not in _lines(panel)


def test_a_round_that_was_not_recorded_says_so(read_runs):
  found = read_runs(
    a=dict(updates=_UPDATES), b=dict(updates={16: _UPDATES[16]}, seed=1)
  )
  drawing = figures.draw_updates(found, found.table, 'title')
  assert drawing.axes[2].texts[0].get_text() == 'not recorded'
  assert len({ax.get_xlim() for ax in drawing.axes if ax.axison}) == 1


def test_the_scatter_of_a_report_is_of_one_seed_in_three_rounds(read_runs):
  updates = {t: _UPDATES[16] for t in (0, 2, 8, 16, 32, 59)}
  found = read_runs(
    **{
      f'{algorithm}_{seed}': dict(
        algorithm=algorithm, seed=seed, updates=updates
      )
      for seed in (0, 1)
      for algorithm in ('fed_avg', 'ce_fed_avg')
    }
  )
  drawn = figures.scatters(found)
  assert [each.name for each in drawn] == [
    f'updates_mlp_on_emnist_t_{t}.png' for t in (2, 16, 59)
  ]
  # Both algorithms of one seed, below each other.
  assert len(drawn[0].draw().axes) == 2


def test_angles_are_in_steps_that_hold_them(read_runs):
  found = read_runs(a=dict(updates=_UPDATES))
  angles = found.updates(['a'])['angle_degrees']
  assert figures.angle_limits(angles) == (30.0, 105.0)
  assert figures.angle_limits(angles[:2]) == (0.0, 180.0)


def _overlaps(drawing, artists):
  """Whether texts or legends leave the figure or run over each other."""
  assert len(artists) > 1
  drawing.draw_without_rendering()
  boxes = [artist.get_window_extent() for artist in artists]
  page = drawing.bbox.padded(5)
  outside = [
    not page.contains(*b.min) or not page.contains(*b.max) for b in boxes
  ]
  pairs = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]]
  return any(outside) or any(pairs)


def _titles(drawing):
  return drawing.findobj(
    lambda artist: isinstance(artist, text.Text) and 'IID' in artist.get_text()
  )


def test_long_names_keep_to_their_panels(read_runs):
  found = read_runs(
    **{
      f'a_folder_with_a_name_that_is_rather_long_{rate}_{place}': dict(
        model='models/mine.py:create_a_model_with_a_long_name',
        server_learning_rate=rate,
        **_PRIVATE,
      )
      for rate in (0.02, 0.3, 1.0)
      for place in range(8)
    }
  )
  panels = [
    figures.curve_panel(title, own)
    for title, own in figures.by_setting(found.table)
  ]
  drawing = figures.draw([panels], (4.0, 2.7))
  legends = [ax.get_legend() for ax in drawing.axes]
  assert not _overlaps(drawing, _titles(drawing) + legends)
  for ax in drawing.axes:
    assert ax.get_window_extent().height > 100


@pytest.mark.parametrize('num_rounds', [1, 2, 3])
def test_the_legend_of_all_panels_covers_no_text(read_runs, num_rounds):
  updates = {16 * t: _UPDATES[16] for t in range(num_rounds)}
  found = read_runs(
    a=dict(updates=updates), b=dict(algorithm='ce_fed_avg', updates=updates)
  )
  title = 'MLP on EMNIST, non-IID' if num_rounds > 1 else ''
  drawing = figures.draw_updates(found, found.table, title)
  drawing.draw_without_rendering()
  (legend,) = drawing.legends
  box = legend.get_window_extent()
  texts = [ax.xaxis.label for ax in drawing.axes] + _titles(drawing)
  texts += [each for each in drawing.texts if each.get_text()]
  shown = [each for each in texts if each.get_text()]
  assert any('Angle' in each.get_text() for each in shown)
  assert not any(box.overlaps(each.get_window_extent()) for each in shown)
  assert np.all([ax.get_window_extent().height > 100 for ax in drawing.axes])
