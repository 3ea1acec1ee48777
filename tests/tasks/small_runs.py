"""Runs of seconds, for tests of whole runs."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tasks import config
from tasks.running.run import run
from tff_clipping.programs.training.training_program import TrainingResult

FED_AVG: Mapping[str, Any] = dict(
  task='embedded_digits',
  partition='label_skew',
  num_clients=40,
  examples_per_client=10,
  model='mlp',
  algorithm='fed_avg',
  clients_per_round=8,
  num_rounds=2,
  local_steps=1,
  batch_size=5,
  client_learning_rate=0.1,
)
DP_FED_AVG: Mapping[str, Any] = FED_AVG | dict(
  algorithm='dp_fed_avg',
  partition='iid',
  clipping_norm=1.0,
  target_epsilon=8.0,
  target_delta=1e-3,
  sampling='poisson',
)


def run_small(
  settings: Mapping[str, Any], folder: pathlib.Path, cache_dir: pathlib.Path
) -> TrainingResult:
  """Runs an experiment in this process, with its client store in a cache."""
  folders = dict(output_dir=str(folder), cache_dir=str(cache_dir))
  return run(config.Config(**{**settings, **folders}))


def read_json(path: pathlib.Path) -> Any:
  """Returns what a file of a run holds."""
  return json.loads(path.read_text())
