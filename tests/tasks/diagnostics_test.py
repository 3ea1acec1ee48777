"""Tests of what a run measures for the theory: models, updates, constants."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest

from tasks import estimate_constants
from tasks.algorithms import experiment
from tasks.running import run_folder, runner
from tasks.running.execution import Execution
from tasks.settings.data_folders import DataFolders

_CONFIG = experiment.ExperimentConfig(
  task='embedded_digits',
  partition='label_skew',
  model='mlp',
  algorithm='model_clipping_fed_avg',
  clipping_norm=15.0,
  num_clients=40,
  examples_per_client=10,
  clients_per_round=6,
  num_rounds=2,
  local_steps=3,
  batch_size=5,
  client_learning_rate=0.1,
  update_rounds=(1,),
  estimate_repeats=3,
)


@pytest.fixture(scope='module')
def finished(tmp_path_factory, cache_dir):
  """The folder of a finished run with model clipping."""
  folder = run_folder.RunFolder(tmp_path_factory.mktemp('runs') / 'run')
  runner.run(_CONFIG, folder, Execution(cache_dir=cache_dir))
  return folder


@pytest.mark.slow
def test_a_run_with_model_clipping_and_estimates(finished):
  metrics = pd.read_csv(finished.metrics)
  # The initial model is longer than 15, and the updates are far shorter.
  assert metrics['clipped_fraction'][1] == 1.0
  assert metrics['update_norm_max'][1] < 5
  assert [path.name for path in finished.updates.iterdir()] == [
    'round_00001.csv'
  ]
  updates = pd.read_csv(finished.updates / 'round_00001.csv')
  clients, mean = updates.iloc[:-1], updates.iloc[-1]
  assert len(clients) == 6
  assert mean['client_id'] == 'mean'
  assert math.isnan(mean['expected_norm'])
  # The expectation of an update is at most as long as updates are on average;
  # batches of 5 of 10 examples vary little.
  ratios = clients['expected_norm'] / clients['update_norm']
  assert ratios.between(0.7, 1.1).all()
  assert (ratios != 1.0).all()


@pytest.mark.slow
def test_constants_of_a_run(finished, cache_dir):
  contents = estimate_constants.estimate(
    finished, max_clients=10, folders=DataFolders(cache_dir=cache_dir)
  )
  assert json.loads(finished.constants.read_text()) == contents
  assert contents['rounds'] == [0, 2]
  assert contents['num_clients'] == 10
  squared_norms = contents['squared_gradient_norms']
  assert len(squared_norms) == 2
  assert all(
    0 < norm < contents['gradient_bound'] ** 2 for norm in squared_norms
  )
  # The cross-entropy of ten classes at a random model.
  assert contents['initial_gap'] == pytest.approx(math.log(10), abs=0.5)
  assert contents['gradient_bound'] > contents['local_stddev'] > 0
  assert contents['global_stddev'] > 0
  assert contents['smoothness'] > 0
  assert contents['root_mean_square_global_stddev'] <= contents['global_stddev']
  again = estimate_constants.estimate(
    finished, max_clients=10, folders=DataFolders(cache_dir=cache_dir)
  )
  assert again == contents


@pytest.mark.slow
def test_some_rounds_of_the_checkpoints_are_measured(finished, cache_dir):
  contents = estimate_constants.estimate(
    finished,
    rounds=[0],
    max_clients=3,
    folders=DataFolders(cache_dir=cache_dir),
  )
  assert contents['rounds'] == [0]
  with pytest.raises(ValueError, match='`rounds` must be .*, found 1'):
    estimate_constants.estimate(
      finished, rounds=[1], folders=DataFolders(cache_dir=cache_dir)
    )


def test_gradient_norm_is_without_the_variance_of_the_clients():
  # Of gradients +3 and +5, the mean is 4 and the variance of the mean is 1,
  # of which sampling 2 of 4 clients leaves a half.
  estimate = estimate_constants.squared_gradient_norm
  assert estimate([np.array([4.0])], np.array([1.0, 1.0]), 4) == 15.5
  # All clients: nothing was sampled.
  assert estimate([np.array([4.0])], np.array([1.0, 1.0]), 2) == 16.0
  assert estimate([np.array([0.1])], np.array([1.0, 1.0]), 4) == 0.0


def test_constants_by_hand():
  first = dict(
    loss=np.array([2.0, 4.0]),
    largest_gradient_norm=np.array([1.0, 5.0]),
    local_variance=np.array([4.0, 0.0]),
    global_deviation=np.array([1.0, 3.0]),
    local_smoothness=np.array([7.0, 1.0]),
    global_smoothness=np.array([0.0, 0.0]),
  )
  second = dict(
    loss=np.array([1.0, 1.0]),
    largest_gradient_norm=np.array([6.0, 1.0]),
    local_variance=np.array([9.0, 3.0]),
    global_deviation=np.array([2.0, 2.0]),
    local_smoothness=np.array([1.0, 1.0]),
    global_smoothness=np.array([8.0, 2.0]),
  )
  assert estimate_constants.combine([first, second]) == dict(
    smoothness=8.0,
    gradient_bound=6.0,
    local_stddev=3.0,
    global_stddev=3.0,
    initial_gap=3.0,
    root_mean_square_local_stddev=2.0,
    root_mean_square_global_stddev=pytest.approx(math.sqrt(18 / 4)),
  )


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='`run_dir` must be the folder of a run'):
    estimate_constants.estimate(run_folder.RunFolder(tmp_path / 'absent'))
  assert not (tmp_path / 'absent').exists()


def test_a_private_run_without_diagnostics_is_refused(tmp_path):
  config = dataclasses.replace(
    _CONFIG,
    algorithm='dp_fed_avg',
    target_epsilon=1.0,
    target_delta=1e-3,
    estimate_repeats=0,
  )
  folder = run_folder.RunFolder(tmp_path)
  folder.config.write_text(json.dumps(dict(experiment=config.to_json())))
  with pytest.raises(ValueError, match='`simulation_diagnostics`'):
    estimate_constants.estimate(folder)
  assert not folder.constants.exists()


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_refused(tmp_path, cache_dir):
  folder = run_folder.RunFolder(tmp_path)
  folder.config.write_text(json.dumps(dict(experiment=_CONFIG.to_json())))
  with pytest.raises(ValueError, match='with a checkpoint, found none'):
    estimate_constants.estimate(
      folder, folders=DataFolders(cache_dir=cache_dir)
    )


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'estimate_repeats': 1}, '`estimate_repeats` must be 0 .* or at least 2'),
    ({'estimate_repeats': -1}, '`estimate_repeats` must be at least 0'),
    ({'update_rounds': ()}, '`estimate_repeats` must be given with'),
    (
      {
        'algorithm': 'dp_fed_avg',
        'target_epsilon': 1.0,
        'target_delta': 1e-3,
      },
      '`estimate_repeats` must be given for a private run only with',
    ),
    ({'clipping_norm': None}, '`clipping_norm` must be given'),
  ],
)
def test_bad_settings_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(_CONFIG, **change)
