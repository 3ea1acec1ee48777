"""Writes synthetic run folders for the tests of the reports."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import experiments, stats, tables
from analysis.runs import METRIC_COLUMNS

# The contents of a privacy.json.
PRIVACY = {
  'noise_multiplier': 1.5,
  'target_delta': 1e-5,
  'sampling': 'poisson',
  'accountant': 'rdp',
  'epsilon': 1.5,
  'actual_epsilon': 1.5,
  'relation': 'add_or_remove_one',
}

# c is from a run: of `described`.
FROM_A_RUN = {'clipping_norm_source': 'a run of fed_avg'}

# A run of DP-FedAvg: arguments of `write_run`.
PRIVATE = {'algorithm': 'dp_fed_avg', 'privacy': PRIVACY}

# The contents of an audit.json.
AUDIT = {
  'num_releases': 2,
  'num_canaries_in': 98,
  'num_canaries_out': 102,
  'confidence': 0.95,
  'claimed_epsilon': 1.5,
  'actual_epsilon': 6.5,
  'allowed_true_positive_rate': 0.2,
  'attacks': {
    'all_releases': {
      'epsilon_lower_bound': 0.25,
      'gaussian_epsilon_lower_bound': 0.75,
      'epsilon_estimate': None,
      'true_positive_rate': 0.031,
      'is_refuted': False,
    }
  },
}

# In the order of accuracies.
THREE = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')

METRICS = {
  'num_clients': 4,
  'round_seconds': 0.5,
  'update_norm_mean': 2.0,
  'update_norm_std': 0.5,
  'update_norm_max': 3.0,
}


def write_run(
  directory: pathlib.Path,
  *,
  algorithm: str = 'fed_avg',
  model: str = 'mlp',
  accuracies: Sequence[float] = (0.1, 0.5, 0.9),
  privacy: Mapping[str, Any] | None = None,
  audit: Mapping[str, Any] | None = None,
  updates: Mapping[int, Sequence[tuple[Any, ...]]] | None = None,
  metrics: Mapping[str, float] | None = None,
  row: str = '',
  scale: str = 'paper',
  variants: Sequence[str] = (),
  partition_summary: str | None = None,
  metric: tuple[str, str] = ('accuracy', 'max'),
  described: Mapping[str, Any] | None = None,
  data: Mapping[str, Any] | None = None,
  asked_metrics: Sequence[str] = (),
  has_ended: bool = False,
  **experiment: Any,
) -> pathlib.Path:
  """Writes a run folder.

  `accuracies` are the values of `metric`, a name and a goal, from round 0.
  `metrics` are columns of metrics.csv, the same in every round, beside
  `METRICS`; `updates` are for each t rows of client_id, update_norm,
  angle_degrees and clip_factor. `row`, `scale` and `variants` name a run of the
  table of experiments, and `experiment` has flags of the run. `described` and
  `data` are more of config.json, and of what it says of the data;
  `asked_metrics` is the flag `metrics`. A run that has ended has a result.json.
  """
  directory.mkdir(parents=True)
  settings = {
    'task': 'emnist.npz',
    'partition': 'label_skew',
    'model': model,
    'algorithm': algorithm,
    'num_clients': 1920,
    'clients_per_round': 80,
    'local_steps': 32,
    'batch_size': 64,
    'num_rounds': len(accuracies) - 1,
    'client_learning_rate': 0.1,
    'server_learning_rate': 1.0,
    'clipping_norm': None if algorithm == 'fed_avg' else 1.0,
    'sampling': 'fixed_size',
    'seed': 0,
    'metrics': asked_metrics,
  }
  config = {
    'run': {'row': row, 'scale': scale, 'variants': variants} if row else None,
    'experiment': settings | experiment,
    'task': {
      'num_clients': 1920,
      'partition': partition_summary,
      **(data or {}),
    },
    'algorithm': algorithm,
    'model': {'name': model, 'num_parameters': 159_010},
    'versions': {'numpy': '1.25.2'},
    'metric': metric[0],
    'metric_goal': metric[1],
    **(described or {}),
  }
  files = {
    'config.json': config,
    'privacy.json': privacy,
    'audit/audit.json': audit,
    'result.json': {} if has_ended else None,
  }
  for file, contents in files.items():
    if contents is not None:
      path = directory / file
      path.parent.mkdir(exist_ok=True)
      path.write_text(json.dumps(contents), encoding='utf-8')
  score = f'test_{metric[0]}'
  of_round = METRICS | dict(metrics or {})
  lines = [
    {'round_num': number, score: value, **(of_round if number else {})}
    for number, value in enumerate(accuracies)
  ]
  columns = [*METRIC_COLUMNS, score, *(metrics or ())]
  # In a folder, the metric that decides is the only one.
  shown = {score, *(metrics or ())}
  columns = [x for x in columns if x != 'test_accuracy' or x in shown]
  _write_csv(directory / 'metrics.csv', lines, columns)
  columns = ['client_id', 'update_norm', 'angle_degrees', 'clip_factor']
  for t, clients in (updates or {}).items():
    path = directory / 'updates' / f'round_{t:05d}.csv'
    path.parent.mkdir(exist_ok=True)
    _write_csv(path, clients, columns)
  return directory


def _write_csv(
  path: pathlib.Path, lines: Sequence[Any], columns: Sequence[str]
) -> None:
  # As they are: no integer becomes a float where another line has none.
  table = pd.DataFrame(lines, columns=dict.fromkeys(columns), dtype=object)
  table.to_csv(path, index=False)


def write_runs(
  root: pathlib.Path,
  accuracies: Mapping[str, float],
  *,
  row: str = 'table3_mlp_mnist_noniid',
  privacy: Mapping[str, Any] | None = None,
  **settings: Any,
) -> None:
  """Writes runs of a row, by algorithm, with their final accuracies.

  `privacy` is what privacy.json of a private run has beside `PRIVACY`.
  """
  for algorithm, accuracy in accuracies.items():
    is_private = experiments.ALGORITHMS[algorithm].is_private
    write_run(
      root / '_'.join(map(str, [row, *settings.values(), algorithm])),
      algorithm=algorithm,
      # The last evaluations agree: no spread of their own.
      accuracies=(0.1, accuracy, accuracy, accuracy),
      privacy=PRIVACY | dict(privacy or {}) if is_private else None,
      row=row,
      described=FROM_A_RUN,
      **{'task': 'mnist'} | settings,
    )


def write_three(
  root: pathlib.Path,
  final: Sequence[float] = (0.94, 0.92, 0.91),
  **settings: Any,
) -> None:
  """Writes `THREE` of a row, by default of the MLP of Table 3."""
  write_runs(root, dict(zip(THREE, final, strict=True)), **settings)


def read(root: pathlib.Path) -> stats.Runs:
  """The run folders in a folder."""
  return stats.read_folders(sorted(root.iterdir()))


def read_evidence(root: pathlib.Path) -> tables.Evidence:
  """All that the pages on the run folders in a folder are made of."""
  return tables.Evidence(stats.read_results(root).table)


def private(epsilon: float, **settings: Any) -> dict[str, Any]:
  """The arguments of `write_run` for DP-FedAvg with an ε, and more of it."""
  told = PRIVACY | {'epsilon': epsilon, 'actual_epsilon': epsilon}
  defaults = {'target_epsilon': epsilon, 'privacy': told}
  return {'algorithm': 'dp_fed_avg', **defaults, **settings}
