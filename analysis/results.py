"""Reads run folders, and says which runs may be compared.

A run folder holds `config.json`, `metrics.csv`, for private runs
`privacy.json`, and per-client diagnostics in `updates/round_XXXXX.csv`.
Reading never repairs in silence: whatever is missing or cut off is named in
`Run.notes`, and a folder that is no run is refused with the reason.
"""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import run_files

SEED_KEYS = ('seed', 'model_seed')

# Runs are compared only when all of these are equal. What may differ is what is
# being compared: the algorithm, its threshold, its noise and its privacy; and
# the seed of the cohorts, which a private run draws for itself.
SETTING_KEYS = (
  'task',
  'partition',
  'model',
  'num_clients',
  'examples_per_client',
  'dirichlet_alpha',
  'shards_per_client',
  'clients_per_round',
  'local_steps',
  'batch_size',
  'num_rounds',
  'client_learning_rate',
  'server_learning_rate',
  'server_optimizer',
  *SEED_KEYS,
)

# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """One training run, as its folder tells it.

  Attributes:
    directory: The run folder.
    name: What the run is called in tables: the folder's name.
    config: The contents of `config.json`.
    metrics: The rows of `metrics.csv`, by rising `round_num`, with every column
      of `METRIC_COLUMNS`; what was not measured is NaN. Empty where the run has
      no metrics yet.
    privacy: The contents of `privacy.json`, or None.
    updates: For each round t of `updates/` (0 is the first round, as in the
      paper) the clients' norms and angles.
    constants: The contents of `constants.json`: estimates of what Theorem 1
      assumes (`CONSTANT_KEYS`), or None.
    notes: What is missing or damaged, a sentence each.
  """

  directory: pathlib.Path
  name: str
  config: Mapping[str, Any]
  metrics: pd.DataFrame
  privacy: Mapping[str, Any] | None
  updates: Mapping[int, pd.DataFrame]
  constants: Mapping[str, float] | None
  notes: tuple[str, ...]

  @property
  def experiment(self) -> Mapping[str, Any]:
    """The flags of the run."""
    return self.config['experiment']

  @property
  def algorithm(self) -> str:
    return self.config['algorithm']

  @property
  def model(self) -> str:
    return self.config['model']['name']

  @property
  def num_parameters(self) -> int | None:
    return self.config['model'].get('num_parameters')

  @property
  def num_clients(self) -> int | None:
    """N; a natural partition has it from the task."""
    return self.experiment.get('num_clients') or self.config.get(
      'task', {}
    ).get('num_clients')

  @property
  def task(self) -> str:
    return self.experiment['task']

  @property
  def partition(self) -> str:
    return self.experiment['partition']

  @property
  def is_iid(self) -> bool:
    """Whether the paper would call the clients' data IID.

    Clients with equally many examples of every class are, except for the few
    examples a client that the paper calls the non-IID case of CIFAR-10.

    Source: Sec. 2.2.
    """
    if self.partition == 'class_balanced':
      size = self.experiment.get('examples_per_client')
      return size is None or size > _QUANTITY_SKEW_EXAMPLES
    return self.partition == 'iid'

  @property
  def is_private(self) -> bool:
    return self.privacy is not None or self.algorithm.startswith('dp_')

  @property
  def seed(self) -> int | None:
    return self.experiment.get('seed')

  @property
  def clips_models(self) -> bool:
    """Whether the clients clip their models and not their updates."""
    return self.algorithm == 'model_clipping_fed_avg'

  @property
  def threshold(self) -> float | None:
    """c, on updates or on models; None where nothing is clipped."""
    return self.experiment.get('clipping_norm')

  @property
  def clipping_norm(self) -> float | None:
    """The threshold c on the norm of updates; None where these are not cut."""
    return None if self.clips_models else self.threshold

  @property
  def has_simulation_figures(self) -> bool:
    """Whether there are exact figures of clients beside a private release."""
    return self.is_private and (
      bool(self.updates)
      or bool(
        self.metrics[list(run_files.CLIENT_METRICS)].notna().any(axis=None)
      )
    )

  @property
  def num_rounds(self) -> int:
    """The rounds that were asked for."""
    return int(self.experiment['num_rounds'])

  @property
  def rounds_done(self) -> int:
    rounds = self.metrics['round_num']
    return int(rounds.iloc[-1]) if len(rounds) else 0

  @property
  def is_complete(self) -> bool:
    """Whether every round that was asked for is in the metrics."""
    return self.rounds_done >= self.num_rounds

  @functools.cached_property
  def accuracy_by_round(self) -> pd.DataFrame:
    """`round_num` and `accuracy` (percent) of the rounds with an evaluation."""
    rows = self.metrics.dropna(subset=['test_accuracy'])
    return pd.DataFrame(
      {
        'round_num': rows['round_num'].to_numpy(int),
        'accuracy': 100.0 * rows['test_accuracy'].to_numpy(float),
      }
    )

  @property
  def final_accuracy(self) -> float:
    """Test accuracy of the last evaluation, in percent; NaN where none."""
    accuracies = self.accuracy_by_round['accuracy']
    return float(accuracies.iloc[-1]) if len(accuracies) else math.nan

  @property
  def best_accuracy(self) -> float:
    """The highest test accuracy of any round, in percent; NaN where none."""
    return float(self.accuracy_by_round['accuracy'].max())

  @property
  def clipped_fraction(self) -> float:
    """Mean share of clipped updates of a round; NaN where unmeasured."""
    return float(self.metrics['clipped_fraction'].mean())

  @property
  def median_round_seconds(self) -> float:
    """Median time of a round, in seconds; NaN where unmeasured."""
    return float(self.metrics['round_seconds'].dropna().median())

  def setting(self) -> tuple[tuple[str, Any], ...]:
    """What must be equal for two runs to be compared."""
    return tuple((key, self.experiment.get(key)) for key in SETTING_KEYS)


def read_run(directory: str | os.PathLike[str], name: str | None = None) -> Run:
  """Reads one run folder.

  Args:
    directory: The folder.
    name: What to call the run. The folder's name by default.

  Returns:
    The run. Damage that leaves the rest usable is in its `notes`.

  Raises:
    run_files.NotARunError: The folder is no run, or a file of it cannot be
      trusted.
  """
  directory = pathlib.Path(directory)
  if not directory.is_dir():
    raise run_files.NotARunError('no such folder')
  notes: list[str] = []
  config = run_files.read_config(directory / 'config.json')
  private = config['algorithm'].startswith('dp_')
  return Run(
    directory=directory,
    name=name or directory.resolve().name,
    config=config,
    metrics=run_files.read_metrics(directory / 'metrics.csv', notes),
    privacy=run_files.read_privacy(directory / 'privacy.json', private, notes),
    updates=run_files.read_updates(directory / 'updates', notes),
    constants=run_files.read_constants(directory / 'constants.json', notes),
    notes=tuple(notes),
  )


def read_runs(
  directories: Sequence[str | os.PathLike[str] | Run],
) -> tuple[list[Run], list[tuple[str, str]]]:
  """Reads run folders, and leaves out by name those that are none.

  Args:
    directories: The folders, or runs that were read already. A folder that is
      given twice counts once.

  Returns:
    The runs in the order given, each with a name of its own, and the pairs
    (folder, reason) of what was left out.
  """
  runs, left_out, seen = [], [], set()
  for directory in directories:
    if isinstance(directory, Run):
      runs.append(directory)
      continue
    path = pathlib.Path(directory)
    if path.resolve() in seen:
      left_out.append((str(directory), 'given twice, read once'))
      continue
    seen.add(path.resolve())
    try:
      runs.append(read_run(path))
    except run_files.NotARunError as error:
      left_out.append((str(directory), str(error)))
  return _with_distinct_names(runs), left_out


def group_by_setting(runs: Sequence[Run]) -> list[list[Run]]:
  """Runs that may be compared with each other, in the order of their first."""
  groups: dict[tuple[tuple[str, Any], ...], list[Run]] = {}
  for run in runs:
    groups.setdefault(run.setting(), []).append(run)
  return list(groups.values())


def setting_without_seed(run: Run) -> tuple[tuple[str, Any], ...]:
  """What runs share that differ in the seed alone."""
  return tuple(
    (key, value) for key, value in run.setting() if key not in SEED_KEYS
  )


def with_other_seeds(
  chosen: Sequence[Sequence[Run]], groups: Sequence[Sequence[Run]]
) -> list[Sequence[Run]]:
  """Those of some groups that are chosen or differ from one in the seed."""
  settings = {setting_without_seed(group[0]) for group in chosen}
  return [g for g in groups if setting_without_seed(g[0]) in settings]


def differing_settings(one: Run, other: Run) -> list[str]:
  """Why two runs may not be compared, as `seed: 1 against 2`; may be empty."""
  return [
    f'{key}: {value} against {other_value}'
    for (key, value), (_, other_value) in zip(
      one.setting(), other.setting(), strict=True
    )
    if value != other_value
  ]


def _with_distinct_names(runs: Sequence[Run]) -> list[Run]:
  """Adds the parent folder's name where two runs' folders share theirs."""
  names = [run.name for run in runs]
  if len(set(names)) == len(names):
    return list(runs)
  longer = [
    str(pathlib.Path(*run.directory.resolve().parts[-2:]))
    if names.count(run.name) > 1
    else run.name
    for run in runs
  ]
  if len(set(longer)) < len(longer):
    longer = [str(run.directory.resolve()) for run in runs]
  return [
    dataclasses.replace(run, name=name)
    for run, name in zip(runs, longer, strict=True)
  ]
