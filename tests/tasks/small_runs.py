"""Runs of seconds, and the files of runs that were never run."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tasks import config
from tasks.running.folder import RunFolder
from tasks.running.run import run
from tests.privacy.ledgers import charge
from tff_clipping import privacy
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


def write_fed_avg(
  path: pathlib.Path, norms: Sequence[str], **changes: Any
) -> None:
  """Writes a run of FedAvg: of each round 'the mean norm,the cohort'."""
  columns = 'round_num,update_norm_mean,num_clients'
  _write_run(path, {**FED_AVG, **changes}, columns, ['nan,nan', *norms])


def write_adaptive(
  path: pathlib.Path, caveats: Sequence[str] = ()
) -> RunFolder:
  """Writes a private run of 2 rounds, whose last c is 0.75."""
  folder = _write_run(
    path,
    DP_FED_AVG | dict(clipping='adaptive'),
    'round_num,aggregator/clipping_norm',
    ['nan', '0.5', '0.75'],
  )
  plan = privacy.PrivacyPlan(
    num_clients=40,
    clients_per_round=8,
    num_rounds=2,
    noise_multiplier=2.0,
    target_delta=1e-3,
  )
  charge(folder.ledger, [1, 2], plan, caveats)
  return folder


def _write_run(path, settings, columns, values):
  folder = RunFolder(path)
  path.mkdir(exist_ok=True)
  created = config.Config(**settings)
  folder.write_json(folder.config, dict(experiment=created.to_json()))
  lines = [columns, *(f'{t},{value}' for t, value in enumerate(values)), '']
  folder.metrics.write_text('\n'.join(lines))
  return folder


def read_json(path: pathlib.Path) -> Any:
  """Returns what a file of a run holds."""
  return json.loads(path.read_text())
