import math

import numpy as np
import pytest
from matplotlib import text

from analysis.figures import accuracy, style
from analysis.figures import updates as scatter
from analysis.runs import frame, metric, titles
from tests.analysis import run_folders

UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25), ('mean', 1.0, '', '')],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3), ('mean', 0.5, 45.0, '')],
}


def _lines(ax):
  """Label to y values of what a panel shows."""
  return {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}


def test_accuracy_has_a_panel_a_setting_and_a_line_an_algorithm(read_runs):
  frames = read_runs(
    ce=dict(algorithm='ce_fed_avg'),
    fed_avg=dict(accuracies=(0.1, 0.5, 0.9)),
    iid=dict(partition='iid'),
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  panels = list(dict.fromkeys(data['panel']))
  assert panels == ['MLP on EMNIST, non-IID (label skew)', 'MLP on EMNIST, IID']
  first = data[data['panel'] == panels[0]]
  assert list(dict.fromkeys(first['line'])) == ['FedAvg', 'CE-FedAvg']
  fed_avg = first[first['line'] == 'FedAvg']
  assert fed_avg['round_num'].to_list() == [0, 1, 2]
  assert fed_avg['score'].to_list() == [10.0, 50.0, 90.0]

  axes = accuracy.draw_accuracy(data).axes
  assert _lines(axes[0])['FedAvg: 90.0 %'] == [10.0, 50.0, 90.0]
  assert axes[0].get_ylabel() == 'Test accuracy (%)'


def test_seeds_are_one_line_of_means_with_their_range(read_runs):
  frames = read_runs(
    a=dict(seed=1, accuracies=(0.1, 0.9)), b=dict(seed=2, accuracies=(0.1, 0.7))
  )
  last = accuracy.accuracy_data(frames, frames.runs).iloc[-1]
  assert last[['low', 'score', 'high']].to_list() == [70.0, 80.0, 90.0]


def test_start_does_not_flatten_a_panel(read_runs):
  accuracies = (0.1, *(0.9 + 0.001 * t for t in range(20)))
  frames = read_runs(run=dict(accuracies=accuracies))
  data = accuracy.accuracy_data(frames, frames.runs)
  low, high = accuracy.draw_accuracy(data).axes[0].get_ylim()
  assert 85 < low < 90.1
  assert 91.9 < high < 95


def test_lines_of_one_algorithm_are_told_apart(read_runs):
  frames = read_runs(
    **{
      name: dict(algorithm='dp_fed_avg', privacy={'epsilon': epsilon})
      for name, epsilon in (('low', 1.5), ('high', 5.0))
    }
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  assert list(dict.fromkeys(data['line'])) == [
    'DP-FedAvg, ε = 5',
    'DP-FedAvg, ε = 1.5',
  ]
  drawn = accuracy.draw_accuracy(data).axes[0].get_lines()
  assert drawn[0].get_color() == drawn[1].get_color()
  assert drawn[0].get_linestyle() != drawn[1].get_linestyle()


def test_lines_of_one_colour_are_told_apart(read_runs):
  frames = read_runs(fed_avg=dict(), own=dict(aggregator='own.py:half'))
  data = accuracy.accuracy_data(frames, frames.runs)
  plain, own = accuracy.draw_accuracy(data).axes[0].get_lines()
  assert own.get_label() == 'FedAvg by own.py:half: 90.0 %'
  assert own.get_color() == plain.get_color()
  assert own.get_linestyle() != plain.get_linestyle()


@pytest.mark.parametrize('algorithm', ['CE-FedAvg', 'DP-FedAvg', 'another'])
def test_twelve_lines_of_one_algorithm_are_told_apart(algorithm):
  looks = style.Lines()
  names = [
    algorithm,
    f'{algorithm} by own.py:half',
    f'{algorithm}, audited',
  ] * 4
  found = [looks.next_look(name) for name in names]
  assert len({tuple(look.values()) for look in found}) == 12


def test_lines_say_the_threshold_where_it_is_swept(read_runs):
  frames = read_runs(
    **{
      f'c={norm}_seed={seed}_epsilon={epsilon}': dict(
        algorithm='dp_fed_avg',
        accuracies=(0.1, accuracy + 0.02 * seed),
        seed=seed,
        clipping_norm=norm,
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
    }
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  assert list(dict.fromkeys(data['line'])) == [
    'DP-FedAvg, ε = 8, c = 2',
    'DP-FedAvg, ε = 8, c = 10',
    'DP-FedAvg, ε = 1.5, c = 2',
    'DP-FedAvg, ε = 1.5, c = 10',
  ]
  data = accuracy.epsilon_data(frames.runs)
  assert data['line'].to_list() == [
    *['DP-FedAvg, poisson sampling, c = 2'] * 2,
    *['DP-FedAvg, poisson sampling, c = 10'] * 2,
  ]
  assert data['epsilon'].to_list() == [1.5, 8.0] * 2
  # Means of two seeds, 2 points apart.
  assert data['score'].to_list() == pytest.approx([61, 71, 66, 76])
  assert (data['high'] - data['low']).to_list() == pytest.approx([2.0] * 4)
  drawn = accuracy.draw_epsilon(data, 'title')
  assert len(drawn.axes[0].get_lines()) == 2


def test_the_metric_of_the_runs_stands_beside_the_axis(read_runs):
  frames = read_runs(
    **{
      f'{epsilon}': dict(
        algorithm='dp_fed_avg',
        metric=('loss', 'min'),
        privacy=run_folders.PRIVACY | {'epsilon': epsilon},
      )
      for epsilon in (1.5, 8.0)
    }
  )
  drawn = accuracy.draw_epsilon(accuracy.epsilon_data(frames.runs), 'title')
  assert drawn.axes[0].get_ylabel() == 'Final test loss'


def test_a_threshold_that_only_follows_the_seed_is_not_said(read_runs):
  frames = read_runs(
    **{
      f'{seed}_{algorithm}': dict(
        algorithm=algorithm,
        seed=seed,
        clipping_norm=0.5 + 0.01 * seed,
        privacy=run_folders.PRIVACY if algorithm == 'dp_fed_avg' else None,
      )
      for seed in (0, 1)
      for algorithm in ('ce_fed_avg', 'dp_fed_avg')
    }
  )
  labels = titles.line_labels(frames.runs)
  assert set(labels) == {'CE-FedAvg', 'DP-FedAvg, ε = 1.5'}
  assert len(accuracy.epsilon_data(frames.runs)) == 2


def test_other_settings_and_at_last_the_names_tell_lines_apart(read_runs):
  private = dict(algorithm='dp_fed_avg', privacy=run_folders.PRIVACY)
  frames = read_runs(a=private, b=private, c=dict(**private, mechanism='blt'))
  assert titles.line_labels(frames.runs).to_list() == [
    'DP-FedAvg, ε = 1.5, gaussian noise (a)',
    'DP-FedAvg, ε = 1.5, gaussian noise (b)',
    'DP-FedAvg, ε = 1.5, blt noise',
  ]
  assert accuracy.epsilon_data(frames.runs)['line'].to_list() == [
    'DP-FedAvg, poisson sampling, gaussian noise (a)',
    'DP-FedAvg, poisson sampling, gaussian noise (b)',
    'DP-FedAvg, poisson sampling, blt noise',
  ]


def test_levels_without_privacy_are_means_over_seeds_by_threshold(read_runs):
  frames = read_runs(
    **{
      f'{seed}_{norm}': dict(
        algorithm='ce_fed_avg',
        accuracies=(0.1, accuracy + 0.02 * seed),
        seed=seed,
        clipping_norm=norm,
      )
      for norm, accuracy in ((0.1, 0.7), (0.5, 0.8))
      for seed in (0, 1)
    }
  )
  data = accuracy.epsilon_data(frames.runs)
  assert data['epsilon'].isna().all()
  assert data.set_index('line')['score'].to_dict() == pytest.approx(
    {'CE-FedAvg, c = 0.1': 71.0, 'CE-FedAvg, c = 0.5': 81.0}
  )


def test_levels_of_one_colour_are_told_apart(read_runs):
  frames = read_runs(
    plain=dict(),
    own=dict(aggregator='own.py:half'),
    dp=dict(algorithm='dp_fed_avg', privacy=run_folders.PRIVACY),
  )
  drawing = accuracy.draw_epsilon(accuracy.epsilon_data(frames.runs), '')
  plain, own, _ = drawing.axes[0].get_lines()
  assert own.get_label() == 'FedAvg by own.py:half (no privacy)'
  assert own.get_color() == plain.get_color()
  assert own.get_linestyle() != plain.get_linestyle()


def _titles(drawing):
  """The texts of a figure that name a split, which are its titles."""
  return drawing.findobj(
    lambda artist: isinstance(artist, text.Text) and 'IID' in artist.get_text()
  )


def _overlaps(drawing, texts):
  """Whether texts or legends leave the figure or run over each other."""
  assert len(texts) > 1
  drawing.draw_without_rendering()
  boxes = [artist.get_window_extent() for artist in texts]
  page = drawing.bbox.padded(5)
  outside = [
    not page.contains(*b.min) or not page.contains(*b.max) for b in boxes
  ]
  pairs = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]]
  return any(outside) or any(pairs)


def test_long_names_keep_to_their_panels(read_runs):
  frames = read_runs(
    **{
      f'a_folder_with_a_name_that_is_rather_long_{rate}_{place}': dict(
        algorithm='dp_fed_avg',
        model='models/mine.py:create_a_model_with_a_long_name',
        privacy=run_folders.PRIVACY,
        server_learning_rate=rate,
      )
      for rate in (0.02, 0.3, 1.0)
      for place in range(8)
    }
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  drawing = accuracy.draw_accuracy(data)
  assert not _overlaps(
    drawing,
    _titles(drawing) + [ax.get_legend() for ax in drawing.axes],
  )
  for ax in drawing.axes:
    assert ax.get_window_extent().height > 100
  own = frames.groups()[0].assign(epsilon_spent=[1.0, 2.0] * 4)
  title = 'create_a_model_with_a_long_name on some data of mine, non-IID ' * 2
  drawing = accuracy.draw_epsilon(accuracy.epsilon_data(own), title)
  (ax,) = drawing.axes
  assert not _overlaps(drawing, [*_titles(drawing), ax.get_legend()])
  assert ax.get_window_extent().height > 100


def test_panels_of_settings_are_ordered_by_value(read_runs):
  rates = (9.0, 10.0, 0.3)
  frames = read_runs(
    **{
      str(rate): dict(client_learning_rate=rate)
      for rate in sorted(rates, key=str)
    }
  )
  data = accuracy.accuracy_data(frames, frame.by_setting(frames.runs))
  assert [panel.split(', ')[-1] for panel in dict.fromkeys(data['panel'])] == [
    'η_l = 0.3',
    'η_l = 9',
    'η_l = 10',
  ]


def test_panels_of_one_scale_have_that_of_all(read_runs):
  frames = read_runs(
    **{
      str(rate): dict(
        client_learning_rate=rate, accuracies=(0.1, *[low] * 9, high)
      )
      for rate, low, high in ((0.1, 0.4, 0.8), (0.3, 0.6, 0.9))
    }
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  own = [ax.get_ylim() for ax in accuracy.draw_accuracy(data).axes]
  assert own[0][0] < 40 < own[1][0] < 60
  limits = accuracy.find_limits(data, metric.ACCURACY)
  assert limits[0] < 40
  assert limits[1] > 90
  same = accuracy.draw_accuracy(data, limits=limits)
  assert {ax.get_ylim() for ax in same.axes} == {limits}


def test_limits_of_what_is_no_share_are_those_of_its_late_rounds(read_runs):
  frames = read_runs(
    a=dict(accuracies=(500.0, *[0.02] * 10, 0.01), metric=('loss', 'min'))
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  # 5 % of the range on both sides.
  assert accuracy.find_limits(data, metric.Metric('loss', 'min')) == (
    pytest.approx((0.0095, 0.0205))
  )


@pytest.mark.parametrize(
  # 14 is no more than 1.5 times 10, and 16 is.
  ('first', 'limits'),
  [(24.0, (9.3, 24.7)), (26.0, (9.5, 20.5))],
)
def test_limits_hold_the_first_round_where_there_is_room(
  read_runs, first, limits
):
  losses = (first, *[20.0] * 10, 10.0)
  frames = read_runs(a=dict(accuracies=losses, metric=('perplexity', 'min')))
  data = accuracy.accuracy_data(frames, frames.runs)
  metric_of_run = frames.runs['metric'].iloc[0]
  assert accuracy.find_limits(data, metric_of_run) == pytest.approx(limits)


def test_a_metric_that_is_infinite_is_drawn(read_runs):
  loss = metric.Metric('loss', 'min')
  frames = read_runs(
    a=dict(accuracies=(1.0, math.inf, math.inf), metric=('loss', 'min'))
  )
  data = accuracy.accuracy_data(frames, frames.runs)
  (ax,) = accuracy.draw_accuracy(data, metric=loss).axes
  assert ax.get_ylim() == (0.0, 1.0)


@pytest.mark.parametrize(
  ('setting', 'values', 'details'),
  [
    ('dirichlet_alpha', (0.1, 1.0), ['α = 0.1', 'α = 1']),
    ('shards_per_client', (2, 3), ['2 shards a client', '3 shards a client']),
    ('num_clients', (100, 200), ['N = 100', 'N = 200']),
    ('server_optimizer', ('sgd', 'adam'), ['SGD', 'Adam']),
    ('local_step', ('sgd', 'momentum'), ['sgd', 'momentum']),
    ('client_rate_decay', (1.0, 0.5), ['sgd', 'sgd, η_l · 0.5^t']),
    ('proximal_mu', (0.1, 2.0), ['sgd μ = 0.1', 'sgd μ = 2']),
    ('server_learning_rate', (0.02, 1.0), ['η_g = 0.02', 'η_g = 1']),
  ],
)
def test_titles_say_which_setting_differs(read_runs, setting, values, details):
  frames = read_runs(
    **{
      str(seed): dict(seed=seed, **{setting: value})
      for seed, value in enumerate(values)
    }
  )
  found = titles.setting_titles([run for _, run in frames.runs.iterrows()])
  assert [title.split('), ')[1] for title in found] == details


def test_titles_say_what_tells_settings_apart(read_runs):
  frames = read_runs(
    a=dict(examples_per_client=125),
    b=dict(examples_per_client=500, seed=1),
    c=dict(examples_per_client=500, seed=2),
  )
  found = titles.setting_titles([run for _, run in frames.runs.iterrows()])
  assert [title.split('), ')[1] for title in found] == [
    '125 a client',
    '500 a client, seed 1',
    '500 a client, seed 2',
  ]


def test_unfinished_run_says_so_in_its_line(read_runs):
  frames = read_runs(run=dict(num_rounds=9))
  labels = titles.line_labels(frames.runs)
  assert labels.to_list() == ['FedAvg, 2 of 9 rounds']


def test_updates_hold_each_client_and_the_average(read_runs):
  frames = read_runs(
    fed_avg=dict(updates=UPDATES),
    ce=dict(algorithm='ce_fed_avg', clipping_norm=1.25),
  )
  data = scatter.updates_by_round(frames, frames.runs[:1])
  assert data['column'].to_list() == ['t = 0'] * 3 + ['t = 16'] * 3
  assert data['update_norm'].to_list() == [2.0, 4.0, 1.0, 1.0, 3.0, 0.5]
  assert data['is_mean'].to_list() == [False, False, True] * 2
  assert np.isnan(data['angle_degrees'][:3]).all()
  # FedAvg does not clip: the threshold is that of the run beside it.
  assert set(data['clipping_norm']) == {1.25}


def test_an_average_beyond_the_clients_is_marked_and_sets_no_scale(read_runs):
  updates = {
    0: [('a', 1.0, '', ''), ('b', 2.0, '', ''), ('mean', 10.625, '', '')]
  }
  frames = read_runs(
    fed_avg=dict(updates=UPDATES),
    own=dict(aggregator='own.py:sign', updates=updates),
  )
  data = scatter.updates_by_round(frames, frames.runs)
  drawing = scatter.draw_updates(data, 'title')
  plain, _, own, _ = drawing.axes
  # Each by its clients; another aggregator has a scale of its own.
  assert plain.get_ylim()[1] == pytest.approx(1.08 * 4.0)
  assert own.get_ylim()[1] == pytest.approx(1.08 * 2.0)
  average = own.get_lines()[-1]
  assert average.get_label() == 'average, beyond the scale'
  assert average.get_ydata()[0] == own.get_ylim()[1]
  assert [note.get_text() for note in own.texts] == ['10.6']
  assert plain.get_lines()[-1].get_label() == 'average'
  assert not plain.texts


def test_the_first_round_keeps_its_label_below_all_panels(read_runs):
  frames = read_runs(
    a=dict(updates=UPDATES), b=dict(algorithm='ce_fed_avg', updates=UPDATES)
  )
  data = scatter.updates_by_round(frames, frames.runs)
  drawing = scatter.draw_updates(data, 'title')
  assert [ax.get_xlabel() for ax in drawing.axes] == [
    'no last update: by client',
    '',
    'no last update: by client',
    'Angle to the last global update (degrees)',
  ]


def test_titles_of_the_scatter_do_not_run_into_each_other(read_runs):
  frames = read_runs(
    own=dict(
      aggregator='mine.py:create_an_aggregator_of_my_own',
      updates={t: UPDATES[16] for t in (0, 20, 39)},
    )
  )
  data = scatter.updates_by_round(frames, frames.runs)
  drawing = scatter.draw_updates(data, 'title')
  assert not _overlaps(drawing, _titles(drawing))


def test_threshold_is_not_guessed_where_there_are_several(read_runs):
  frames = read_runs(
    fed_avg=dict(updates=UPDATES),
    a=dict(algorithm='ce_fed_avg', clipping_norm=1.0),
    b=dict(algorithm='ce_fed_avg', clipping_norm=2.0),
  )
  data = scatter.updates_by_round(frames, frames.runs[:1])
  assert data['clipping_norm'].isna().all()


def test_update_panels_show_the_threshold_and_share_what_is_compared(read_runs):
  frames = read_runs(
    iid=dict(algorithm='ce_fed_avg', partition='iid', updates=UPDATES),
    skew=dict(algorithm='ce_fed_avg', updates={16: UPDATES[16]}),
  )
  data = scatter.updates_by_round(frames, frames.runs)
  drawing = scatter.draw_updates(data, 'title')
  assert [ax.get_title() for ax in drawing.axes] == [
    'CE-FedAvg, IID, t = 0',
    'CE-FedAvg, IID, t = 16',
    'CE-FedAvg, non-IID, t = 0',
    'CE-FedAvg, non-IID, t = 16',
  ]
  first, second, _, other = drawing.axes
  assert first.get_ylim() != second.get_ylim() == other.get_ylim()
  assert len({ax.get_xlim() for ax in drawing.axes}) == 1
  clients, threshold, average = second.get_lines()
  np.testing.assert_array_equal(clients.get_xdata(), [60.0, 90.0])
  np.testing.assert_array_equal(clients.get_ydata(), [1.0, 3.0])
  np.testing.assert_array_equal(threshold.get_ydata(), [1.0, 1.0])
  np.testing.assert_array_equal(average.get_xdata(), [45.0])
  assert drawing.axes[2].texts[0].get_text() == 'not recorded'
  labels = [ax.get_ylabel() for ax in drawing.axes]
  # Beside the first panel of a row that has data.
  assert [bool(label) for label in labels] == [True, False, False, True]


def test_models_stand_below_each_other_at_one_round(read_runs):
  frames = read_runs(
    a=dict(updates=UPDATES, partition='iid'),
    b=dict(updates=UPDATES),
    c=dict(updates=UPDATES, model='alexnet'),
    d=dict(updates={0: UPDATES[0]}, model='resnet18'),
  )
  data = scatter.updates_by_model(frames, frames.runs, 16)
  places = dict.fromkeys(zip(data['row'], data['column'], strict=True))
  assert list(places) == [
    ('MLP', 'IID'),
    ('MLP', 'non-IID'),
    ('AlexNet', 'non-IID'),
  ]


def test_epsilon_data_hold_the_finished_private_runs(read_runs):
  frames = read_runs(
    high=dict(
      algorithm='dp_fed_avg',
      accuracies=(0.1, 0.8),
      privacy={'epsilon': 5.0, 'sampling': 'poisson'},
    ),
    low=dict(
      algorithm='dp_fed_avg',
      accuracies=(0.1, 0.7),
      privacy={'epsilon': 1.5, 'sampling': 'poisson', 'actual_epsilon': 6.5},
    ),
    partial=dict(
      algorithm='dp_fed_avg',
      num_rounds=9,
      privacy={'epsilon': 2.0, 'sampling': 'poisson'},
    ),
    fed_avg=dict(),
  )
  data = accuracy.epsilon_data(frames.runs)
  without, first, second = data.to_dict('records')
  assert math.isnan(without['epsilon'])
  assert [each['epsilon'] for each in (first, second)] == [1.5, 5.0]
  assert [each['score'] for each in (first, second)] == pytest.approx(
    [70.0, 80.0]
  )
  assert first['sampler_epsilon'] == 6.5
  assert math.isnan(second['sampler_epsilon'])
  ax = accuracy.draw_epsilon(data, 'title').axes[0]
  lines = _lines(ax)
  assert lines['DP-FedAvg, poisson sampling'] == pytest.approx([70.0, 80.0])
  assert lines['FedAvg (no privacy)'] == [90.0, 90.0]


@pytest.mark.parametrize('num_rounds', [1, 2, 3])
def test_legend_covers_no_label_and_iid_stands_on_the_left(
  read_runs, num_rounds
):
  updates = {16 * t: UPDATES[16] for t in range(num_rounds)}
  frames = read_runs(
    **{
      f'{model}_{partition}': dict(
        model=model, partition=partition, updates=updates
      )
      for model, partition in (
        ('mlp', 'label_skew'),
        ('alexnet', 'iid'),
        ('alexnet', 'label_skew'),
      )
    }
  )
  by_model = scatter.updates_by_model(frames, frames.runs, 0)
  by_round = scatter.updates_by_round(frames, frames.runs)
  for data in (by_model, by_round):
    drawing = scatter.draw_updates(data, 'title')
    if data is by_model:
      titles = [ax.get_title() for ax in drawing.axes]
      assert titles[:2] == ['MLP, IID', 'MLP, non-IID']
    drawing.draw_without_rendering()
    (legend,) = drawing.legends
    box = legend.get_window_extent()
    texts = [ax.xaxis.label for ax in drawing.axes]
    texts += [text for text in drawing.texts if text.get_text()]
    shown = [text for text in texts if text.get_text()]
    assert any('Angle' in text.get_text() for text in shown)
    assert not any(box.overlaps(text.get_window_extent()) for text in shown)
