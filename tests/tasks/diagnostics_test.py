"""Tests of what a run measures of models and updates."""

import math

import pandas as pd
import pytest

from tasks.algorithms import experiment
from tasks.running import run_folder, runner
from tasks.running.execution import Execution

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
)


@pytest.mark.slow
def test_updates_of_a_run_with_model_clipping(tmp_path, cache_dir):
  folder = run_folder.RunFolder(tmp_path / 'run')
  runner.run(_CONFIG, folder, Execution(cache_dir=cache_dir))
  metrics = pd.read_csv(folder.metrics)
  # The initial model is longer than 15, and the updates are far shorter.
  assert metrics['clipped_fraction'][1] == 1.0
  assert metrics['update_norm_max'][1] < 5
  assert [path.name for path in folder.updates.iterdir()] == ['round_00001.csv']
  updates = pd.read_csv(folder.updates / 'round_00001.csv')
  clients, mean = updates.iloc[:-1], updates.iloc[-1]
  assert len(clients) == 6
  # The factors are those of the models.
  assert (clients['clip_factor'] < 1).all()
  assert mean['client_id'] == 'mean'
  assert math.isnan(mean['clip_factor'])
