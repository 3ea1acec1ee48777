"""The figures by the numbers on their axes, and that nothing overlaps."""

import functools
import math

import pytest
from matplotlib import text

from analysis import figures, names
from tests.analysis import run_folders

_UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25), ('mean', 1.0, '', '')],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3), ('mean', 0.5, 45.0, '')],
}


def _draw(*panels, title=''):
  """The axes of some panels beside each other."""
  drawing = figures.Drawing('', '', [panels], (4.0, 3.0), title)
  return figures.draw(drawing).axes


def _lines(ax):
  """The ends and heights of the lines, by their labels."""
  return {
    line.get_label(): ([*line.get_xdata()], [*line.get_ydata()])
    for line in ax.get_lines()
  }


def test_a_curve_is_the_mean_of_seeds_with_their_range(read_runs):
  table = read_runs(
    a=dict(seed=1, accuracies=(0.1, 0.9)),
    b=dict(seed=2, accuracies=(0.1, 0.7)),
    ce=dict(algorithm='ce_fed_avg', accuracies=(0.1, 0.5)),
  ).table
  (ax,) = _draw(functools.partial(figures.curve_panel, title='', table=table))
  assert _lines(ax) == {
    'FedAvg: 80.0 %': ([0, 1], [10.0, 80.0]),
    'CE-FedAvg: 50.0 %': ([0, 1], [10.0, 50.0]),
  }
  (band,) = ax.collections
  assert band.get_paths()[0].get_extents().extents == pytest.approx(
    (0, 10, 1, 90)
  )
  assert ax.get_ylabel() == 'Test accuracy (%)'


def test_a_curve_is_of_rounds_in_which_all_seeds_were_evaluated(read_runs):
  # Means of one seed and of the other would take turns.
  table = read_runs(
    a=dict(seed=1, accuracies=(0.1, 0.2, 0.3, 0.4, 0.5)),
    b=dict(seed=2, accuracies=(0.1, '', 0.7, '', 0.9)),
  ).table
  (ax,) = _draw(functools.partial(figures.curve_panel, title='', table=table))
  assert _lines(ax) == {'FedAvg: 70.0 %': ([0, 2, 4], [10.0, 50.0, 70.0])}


def test_a_figure_of_curves_is_of_a_problem(read_runs):
  table = read_runs(
    iid=dict(partition='iid'),
    iid_ce=dict(partition='iid', algorithm='ce_fed_avg'),
    a=dict(client_learning_rate=0.1),
    b=dict(client_learning_rate=0.2),
  ).table
  drawn = figures.curves(table)
  assert [each.caption for each in drawn] == [
    'Test accuracy by round: MLP on EMNIST, IID.',
    'Test accuracy by round: MLP on EMNIST, non-IID (label skew).',
  ]
  assert len({each.name for each in drawn}) == 2


@pytest.mark.parametrize(
  ('scores', 'metric', 'limits'),
  [
    # The start does not flatten what comes after.
    ((0.1, *[0.9] * 10, 0.92), ('accuracy', 'max'), (89.9, 92.1)),
    # The highest share is shown, and an axis ends at 0 % and at 101 %.
    ((0.1, 1.0, *[0.0] * 9, 0.5), ('accuracy', 'max'), (0.0, 101.0)),
    ((500.0, *[0.02] * 10, 0.01), ('loss', 'min'), (0.0095, 0.0205)),
    # The least loss is shown, however early it is.
    ((0.0, *[20.0] * 10, 10.0), ('loss', 'min'), (-1.0, 21.0)),
    ((1.0, math.inf, math.inf), ('loss', 'min'), (0.0, 1.0)),
  ],
)
def test_limits_are_those_of_the_late_rounds(read_runs, scores, metric, limits):
  table = read_runs(a=dict(accuracies=scores, metric=metric)).table
  assert figures.curve_limits(table) == pytest.approx(limits)


@pytest.mark.parametrize('algorithm', ['CE-FedAvg', 'DP-FedAvg', 'another'])
def test_twelve_lines_of_one_algorithm_are_told_apart(algorithm):
  found = figures.looks(
    [algorithm, f'{algorithm} by own.py:half', algorithm] * 4
  )
  assert len({tuple(look.values()) for look in found}) == 12


_POINTS = {
  (1.5, 2.0): 0.6,
  (1.5, 10.0): 0.65,
  (8.0, 2.0): 0.7,
  (8.0, 10.0): 0.75,
}


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
def test_the_metric_is_drawn_by_what_varies(read_runs, quantity, expected):
  table = read_runs(
    fed_avg=dict(accuracies=(0.1, 0.9)),
    **{
      f'{norm}_{epsilon}_{seed}': run_folders.private(
        epsilon,
        accuracies=(0.1, accuracy + 0.02 * seed),
        seed=seed,
        clipping_norm=norm,
      )
      for (epsilon, norm), accuracy in _POINTS.items()
      for seed in (0, 1)
    },
  ).table
  (drawing,) = figures.by_quantity(table, quantity)
  (ax,) = figures.draw(drawing).axes
  lines = _lines(ax)
  # A run without the quantity is a level.
  assert lines.pop('FedAvg') == ([0, 1], [90.0, 90.0])
  assert {
    label: (x, pytest.approx(y)) for label, (x, y) in lines.items()
  } == expected
  ((ticks, _), _) = expected.values()
  assert [tick.get_text() for tick in ax.get_xticklabels()] == [
    f'{tick:g}' for tick in ticks
  ]


def test_epsilons_of_several_deltas_are_on_no_common_line(read_runs):
  table = read_runs(
    **{
      f'{epsilon}_{delta}': run_folders.private(
        epsilon, target_delta=delta, accuracies=(0.1, accuracy)
      )
      for epsilon, delta, accuracy in (
        *((1.5, 1e-5, 0.5), (8.0, 1e-5, 0.7)),
        *((1.5, 1e-3, 0.6), (8.0, 1e-3, 0.8)),
      )
    }
  ).table
  (drawing,) = figures.by_quantity(table, 'epsilon')
  (ax,) = figures.draw(drawing).axes
  assert _lines(ax) == {
    'DP-FedAvg, δ = 1e-05': ([1.5, 8.0], [50.0, 70.0]),
    'DP-FedAvg, δ = 0.001': ([1.5, 8.0], [60.0, 80.0]),
  }


def test_a_quantity_that_follows_the_seed_is_not_drawn(read_runs):
  table = read_runs(
    **{
      f'{seed}': dict(
        seed=seed, clipping_norm=0.5 + seed, **run_folders.PRIVATE
      )
      for seed in (0, 1)
    }
  ).table
  assert figures.by_quantity(table, 'clipping_norm') == []
  assert figures.by_quantity(table, 'epsilon') == []


def _scatter(found, rounds, name='fed_avg'):
  """The axes of the updates of a run by round."""
  table = found.table.loc[[name]]
  grid = figures.scatter([figures.at_round(table, t) for t in rounds])
  return _draw(
    *(panel for (panel,) in grid), title='MobileNetV2 on half of EMNIST'
  )


def test_updates_hold_each_client_the_average_and_the_threshold(read_runs):
  found = read_runs(
    fed_avg=dict(updates=_UPDATES),
    ce=dict(algorithm='ce_fed_avg', clipping_norm=1.25),
  )
  first, late, never = _scatter(found, [0, 16, 17])
  assert first.get_xlabel() == 'no last update: by client'
  assert _lines(first)['one client'][1] == [2.0, 4.0]
  assert late.get_title(loc='left') == 'FedAvg, non-IID, t = 16'
  assert _lines(late) == {
    'one client': ([60.0, 90.0], [1.0, 3.0]),
    # FedAvg does not clip: the threshold is that of the run beside it.
    'threshold c': ([0, 1], [1.25, 1.25]),
    'average': ([45.0], [0.5]),
  }
  # In steps of 15 degrees.
  assert first.get_xlim() == late.get_xlim() == (30.0, 105.0)
  assert late.get_ylim() == (0.0, pytest.approx(1.08 * 3.0))
  assert never.texts[0].get_text() == 'not recorded'


def test_an_average_beyond_the_clients_is_marked_and_sets_no_scale(read_runs):
  beyond = {
    16: [('a', 1.0, 50, ''), ('b', 2.0, 60, ''), ('mean', 10.625, 70, '')]
  }
  found = read_runs(
    fed_avg=dict(updates=_UPDATES),
    own=dict(aggregator='own.py:sign', updates=beyond),
  )
  (panels,) = figures.scatter([figures.at_round(found.table, 16)])
  plain, own = _draw(*panels)
  # One scale, by the clients.
  assert plain.get_ylim() == own.get_ylim() == (0.0, pytest.approx(1.08 * 3.0))
  assert _lines(own)['average, beyond the scale: 10.6'] == (
    [70.0],
    [own.get_ylim()[1]],
  )
  assert 'average' in _lines(plain)


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
  drawn = figures.scatters(found.table)
  assert [each.name for each in drawn] == [
    f'updates_mlp_on_emnist_t_{t}.png' for t in (2, 16, 59)
  ]
  # Both algorithms of one seed, below each other.
  assert len(figures.draw(drawn[0]).axes) == 2


def _texts(axes):
  """The titles and legends of a figure, which is laid out, and its page."""
  drawn = axes[0].figure
  drawn.draw_without_rendering()
  titles = drawn.findobj(
    lambda each: isinstance(each, text.Text) and 'IID' in each.get_text()
  )
  return titles + [ax.get_legend() for ax in axes if ax.get_legend()]


def test_long_names_keep_to_their_panels(read_runs):
  found = read_runs(
    **{
      f'a_folder_with_a_name_that_is_rather_long_{rate}_{place}': dict(
        model='models/mine.py:create_a_model_with_a_long_name',
        server_learning_rate=rate,
        **run_folders.PRIVATE,
      )
      for rate in (0.02, 0.3, 1.0)
      for place in range(8)
    }
  )
  axes = _draw(
    *(
      functools.partial(figures.curve_panel, title=title, table=own)
      for title, own in names.by_setting(found.table)
    )
  )
  boxes = [each.get_window_extent() for each in _texts(axes)]
  assert len(boxes) == 6
  page = axes[0].figure.bbox.padded(5)
  assert all(page.contains(*b.min) and page.contains(*b.max) for b in boxes)
  assert not any(
    a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]
  )
  assert all(ax.get_window_extent().height > 100 for ax in axes)


@pytest.mark.parametrize('num_rounds', [1, 2, 3])
def test_the_legend_of_all_panels_covers_no_text(read_runs, num_rounds):
  rounds = [16 * t for t in range(num_rounds)]
  found = read_runs(fed_avg=dict(updates=dict.fromkeys(rounds, _UPDATES[16])))
  axes = _scatter(found, rounds)
  drawn = axes[0].figure
  (legend,) = drawn.legends
  shown = [*_texts(axes), *(each for each in drawn.texts if each.get_text())]
  assert any('Angle' in each.get_text() for each in shown)
  box = legend.get_window_extent()
  assert not any(box.overlaps(each.get_window_extent()) for each in shown)
  assert all(ax.get_window_extent().height > 100 for ax in axes)
