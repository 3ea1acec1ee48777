import math

import numpy as np
import pytest

from analysis import figures, frame, titles, update_figures
from tests.analysis import run_folders

UPDATES = {
  0: [('a', 2.0, '', 0.5), ('b', 4.0, '', 0.25), ('mean', 1.0, '', '')],
  16: [('a', 1.0, 60.0, 1.0), ('b', 3.0, 90.0, 0.3), ('mean', 0.5, 45.0, '')],
}


def _lines(ax):
  """Label to y values of what a panel shows."""
  return {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}


def test_accuracy_has_a_panel_a_setting_and_a_line_an_algorithm(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'ce', algorithm='ce_fed_avg'),
      run_folders.write_run(tmp_path / 'fed_avg', accuracies=(0.1, 0.5, 0.9)),
      run_folders.write_run(tmp_path / 'iid', partition='iid'),
    ]
  )
  data = figures.accuracy_data(frames, frames.runs)
  panels = list(dict.fromkeys(data['panel']))
  assert panels == ['MLP on EMNIST, non-IID (label skew)', 'MLP on EMNIST, IID']
  first = data[data['panel'] == panels[0]]
  assert list(dict.fromkeys(first['line'])) == ['FedAvg', 'CE-FedAvg']
  fed_avg = first[first['line'] == 'FedAvg']
  assert fed_avg['round_num'].to_list() == [0, 1, 2]
  assert fed_avg['accuracy'].to_list() == [10.0, 50.0, 90.0]

  axes = figures.draw_accuracy(data).axes
  assert _lines(axes[0])['FedAvg: 90.0 %'] == [10.0, 50.0, 90.0]
  assert axes[0].get_ylabel() == 'Test accuracy (%)'


def test_seeds_are_one_line_of_means_with_their_range(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'a', seed=1, accuracies=(0.1, 0.9)),
      run_folders.write_run(tmp_path / 'b', seed=2, accuracies=(0.1, 0.7)),
    ]
  )
  last = figures.accuracy_data(frames, frames.runs).iloc[-1]
  assert last[['low', 'accuracy', 'high']].to_list() == [70.0, 80.0, 90.0]


def test_start_does_not_flatten_a_panel(tmp_path):
  accuracies = (0.1, *(0.9 + 0.001 * t for t in range(20)))
  frames = frame.read_frames(
    [run_folders.write_run(tmp_path / 'run', accuracies=accuracies)]
  )
  data = figures.accuracy_data(frames, frames.runs)
  low, high = figures.draw_accuracy(data).axes[0].get_ylim()
  assert 85 < low < 90.1
  assert 91.9 < high < 95


def test_lines_of_one_algorithm_are_told_apart(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(
        tmp_path / name, algorithm='dp_fed_avg', privacy={'epsilon': epsilon}
      )
      for name, epsilon in (('low', 1.5), ('high', 5.0))
    ]
  )
  data = figures.accuracy_data(frames, frames.runs)
  assert list(dict.fromkeys(data['line'])) == [
    'DP-FedAvg, ε = 5',
    'DP-FedAvg, ε = 1.5',
  ]
  drawn = figures.draw_accuracy(data).axes[0].get_lines()
  assert drawn[0].get_color() == drawn[1].get_color()
  assert drawn[0].get_linestyle() != drawn[1].get_linestyle()


def test_titles_say_what_tells_settings_apart(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'a', examples_per_client=125),
      run_folders.write_run(tmp_path / 'b', examples_per_client=500, seed=1),
      run_folders.write_run(tmp_path / 'c', examples_per_client=500, seed=2),
    ]
  )
  found = titles.setting_titles([run for _, run in frames.runs.iterrows()])
  assert [title.split('), ')[1] for title in found] == [
    '125 a client',
    '500 a client, seed 1',
    '500 a client, seed 2',
  ]


def test_unfinished_run_says_so_in_its_line(tmp_path):
  frames = frame.read_frames(
    [run_folders.write_run(tmp_path / 'run', num_rounds=9)]
  )
  labels = titles.line_labels(frames.runs)
  assert labels.to_list() == ['FedAvg, 2 of 9 rounds']


def test_updates_hold_each_client_and_the_average(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'fed_avg', updates=UPDATES),
      run_folders.write_run(
        tmp_path / 'ce', algorithm='ce_fed_avg', clipping_norm=1.25
      ),
    ]
  )
  data = update_figures.updates_by_round(frames, frames.runs[:1])
  assert data['column'].to_list() == ['t = 0'] * 3 + ['t = 16'] * 3
  assert data['update_norm'].to_list() == [2.0, 4.0, 1.0, 1.0, 3.0, 0.5]
  assert data['is_mean'].to_list() == [False, False, True] * 2
  assert np.isnan(data['angle_degrees'][:3]).all()
  # FedAvg does not clip: the threshold is that of the run beside it.
  assert set(data['clipping_norm']) == {1.25}


def test_threshold_is_not_guessed_where_there_are_several(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'fed_avg', updates=UPDATES),
      run_folders.write_run(
        tmp_path / 'a', algorithm='ce_fed_avg', clipping_norm=1.0
      ),
      run_folders.write_run(
        tmp_path / 'b', algorithm='ce_fed_avg', clipping_norm=2.0
      ),
    ]
  )
  data = update_figures.updates_by_round(frames, frames.runs[:1])
  assert data['clipping_norm'].isna().all()


def test_update_panels_show_the_threshold_and_share_what_is_compared(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(
        tmp_path / 'iid',
        algorithm='ce_fed_avg',
        partition='iid',
        updates=UPDATES,
      ),
      run_folders.write_run(
        tmp_path / 'skew', algorithm='ce_fed_avg', updates={16: UPDATES[16]}
      ),
    ]
  )
  data = update_figures.updates_by_round(frames, frames.runs)
  drawing = update_figures.draw_updates(data, 'title', 'column')
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


def test_models_stand_below_each_other_at_one_round(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(tmp_path / 'a', updates=UPDATES, partition='iid'),
      run_folders.write_run(tmp_path / 'b', updates=UPDATES),
      run_folders.write_run(tmp_path / 'c', updates=UPDATES, model='alexnet'),
      run_folders.write_run(
        tmp_path / 'd', updates={0: UPDATES[0]}, model='resnet18'
      ),
    ]
  )
  data = update_figures.updates_by_model(frames, frames.runs, 16)
  places = dict.fromkeys(zip(data['row'], data['column'], strict=True))
  assert list(places) == [
    ('MLP', 'IID'),
    ('MLP', 'non-IID'),
    ('AlexNet', 'non-IID'),
  ]


def test_epsilon_data_hold_the_finished_private_runs(tmp_path):
  frames = frame.read_frames(
    [
      run_folders.write_run(
        tmp_path / 'high',
        algorithm='dp_fed_avg',
        accuracies=(0.1, 0.8),
        privacy={'epsilon': 5.0, 'sampling': 'poisson'},
      ),
      run_folders.write_run(
        tmp_path / 'low',
        algorithm='dp_fed_avg',
        accuracies=(0.1, 0.7),
        privacy={'epsilon': 1.5, 'sampling': 'poisson', 'actual_epsilon': 6.5},
      ),
      run_folders.write_run(
        tmp_path / 'partial',
        algorithm='dp_fed_avg',
        num_rounds=9,
        privacy={'epsilon': 2.0, 'sampling': 'poisson'},
      ),
      run_folders.write_run(tmp_path / 'fed_avg'),
    ]
  )
  data = figures.epsilon_data(frames.runs)
  assert data.index.to_list() == ['low', 'high']
  assert data['accuracy'].to_list() == pytest.approx([70.0, 80.0])
  assert data['sampler_epsilon'].iloc[0] == 6.5
  assert math.isnan(data['sampler_epsilon'].iloc[1])
  ax = figures.draw_epsilon(data, {'FedAvg': 90.0}, 'title').axes[0]
  lines = _lines(ax)
  assert lines['DP-FedAvg, poisson sampling'] == pytest.approx([70.0, 80.0])
  assert lines['FedAvg (no privacy)'] == [90.0, 90.0]


@pytest.mark.parametrize('num_rounds', [1, 2, 3])
def test_legend_covers_no_label_and_iid_stands_on_the_left(
  tmp_path, num_rounds
):
  updates = {16 * t: UPDATES[16] for t in range(num_rounds)}
  frames = frame.read_frames(
    [
      run_folders.write_run(
        tmp_path / f'{model}_{partition}',
        model=model,
        partition=partition,
        updates=updates,
      )
      for model, partition in (
        ('mlp', 'label_skew'),
        ('alexnet', 'iid'),
        ('alexnet', 'label_skew'),
      )
    ]
  )
  by_model = update_figures.updates_by_model(frames, frames.runs, 0)
  by_round = update_figures.updates_by_round(frames, frames.runs)
  for data in (by_model, by_round):
    drawing = update_figures.draw_updates(data, 'title', 'row')
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
