"""Reads run folders, and says which runs may be compared.

A run folder holds `config.json`, `metrics.csv`, for private runs
`privacy.json`, and per-client diagnostics in `updates/round_XXXXX.csv`.
Reading never repairs in silence: whatever is missing or cut off is named in
`Run.notes`, and a folder that is no run is refused with the reason.
"""

import dataclasses
import functools
import io
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

METRIC_COLUMNS = (
  'round_num',
  'num_clients',
  'round_seconds',
  'epsilon',
  'test_accuracy',
  'test_loss',
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)

UPDATE_COLUMNS = ('client_id', 'update_norm', 'angle_degrees', 'clip_factor')

# The `client_id` of the row that holds the averaged update, where one is there.
MEAN_UPDATE_ID = 'mean'

# Runs are compared only when all of these are equal. What may differ is what is
# being compared: the algorithm, its threshold, its noise and its privacy.
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
  'seed',
)

# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50

_PRIVACY_KEYS = (
  'noise_multiplier',
  'target_delta',
  'sampling',
  'accountant',
  'epsilon',
)
_UPDATE_FILE = re.compile(r'round_(\d+)\.csv')


class NotARunError(ValueError):
  """The folder is no run, or its files cannot be trusted."""


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
    notes: What is missing or damaged, a sentence each.
  """

  directory: pathlib.Path
  name: str
  config: Mapping[str, Any]
  metrics: pd.DataFrame
  privacy: Mapping[str, Any] | None
  updates: Mapping[int, pd.DataFrame]
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
  def clipping_norm(self) -> float | None:
    """The threshold c, in the unit of the update; None where nothing is cut."""
    return self.experiment.get('clipping_norm')

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
    return float(self.metrics['round_seconds'].median())

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
    NotARunError: The folder is no run, or a file in it cannot be trusted.
  """
  directory = pathlib.Path(directory)
  if not directory.is_dir():
    raise NotARunError('no such folder')
  notes: list[str] = []
  config = _read_config(directory / 'config.json')
  private = config['algorithm'].startswith('dp_')
  return Run(
    directory=directory,
    name=name or directory.resolve().name,
    config=config,
    metrics=_read_metrics(directory / 'metrics.csv', notes),
    privacy=_read_privacy(directory / 'privacy.json', private, notes),
    updates=_read_updates(directory / 'updates', notes),
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
    except NotARunError as error:
      left_out.append((str(directory), str(error)))
  return _with_distinct_names(runs), left_out


def group_by_setting(runs: Sequence[Run]) -> list[list[Run]]:
  """Runs that may be compared with each other, in the order of their first."""
  groups: dict[tuple[tuple[str, Any], ...], list[Run]] = {}
  for run in runs:
    groups.setdefault(run.setting(), []).append(run)
  return list(groups.values())


def differing_settings(one: Run, other: Run) -> list[str]:
  """Why two runs may not be compared, as `seed: 1 against 2`; may be empty."""
  return [
    f'{key}: {value} against {other_value}'
    for (key, value), (_, other_value) in zip(
      one.setting(), other.setting(), strict=True
    )
    if value != other_value
  ]


def _read_config(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    raise NotARunError('not a run folder: it has no config.json')
  config = _read_json(path)
  for key in ('experiment', 'algorithm', 'model'):
    if key not in config:
      raise NotARunError(f'config.json has no `{key}`')
  for section, keys in (
    ('experiment', ('task', 'partition', 'num_rounds')),
    ('model', ('name',)),
  ):
    for key in keys:
      if not isinstance(config[section], dict) or key not in config[section]:
        raise NotARunError(f'config.json has no `{section}.{key}`')
  return config


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    contents = json.loads(path.read_text(encoding='utf-8'))
  except (ValueError, OSError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  if not isinstance(contents, dict):
    raise NotARunError(f'{path.name} must hold one JSON object')
  return contents


def _read_metrics(path: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  if not path.is_file():
    notes.append('metrics.csv is missing: no round has finished yet')
    return pd.DataFrame({column: [] for column in METRIC_COLUMNS}, dtype=float)
  table = _read_csv(path, notes)
  for column in ('round_num', 'test_accuracy'):
    if column not in table:
      raise NotARunError(f'metrics.csv has no column `{column}`')
  absent = [column for column in METRIC_COLUMNS if column not in table]
  if absent:
    notes.append(f'metrics.csv does not measure {", ".join(absent)}')
  table = table.reindex(columns=METRIC_COLUMNS)
  rounds = table['round_num'].to_numpy()
  if np.isnan(rounds).any() or (rounds < 0).any() or (rounds % 1).any():
    raise NotARunError('metrics.csv has a row without a valid `round_num`')
  accuracies = table['test_accuracy'].dropna()
  if len(accuracies) and not accuracies.between(0.0, 1.0).all():
    raise NotARunError(
      'metrics.csv: `test_accuracy` must be between 0 and 1, found '
      f'{accuracies[~accuracies.between(0.0, 1.0)].iloc[0]}'
    )
  repeated = int(table['round_num'].duplicated(keep='last').sum())
  if repeated:
    notes.append(
      f'metrics.csv holds {repeated} round(s) twice: the later row counts'
    )
    table = table.drop_duplicates('round_num', keep='last')
  return table.sort_values('round_num', ignore_index=True)


def _read_csv(
  path: pathlib.Path, notes: list[str], text_columns: Sequence[str] = ()
) -> pd.DataFrame:
  """Reads numbers from a CSV file; a cut-off last line is dropped by name."""
  try:
    text = path.read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  lines = text.splitlines()
  if not lines:
    raise NotARunError(f'{path.name} is empty')
  if not text.endswith('\n') and len(lines) > 1:
    # A line with all of its commas may still have lost the end of a number.
    notes.append(f'{path.name} is cut off: its last line was left out')
    lines.pop()
  columns = lines[0].count(',') + 1
  for number, line in enumerate(lines[1:], start=2):
    if line.count(',') + 1 != columns:
      raise NotARunError(
        f'{path.name}, line {number}: {columns} values expected, found '
        f'{line.count(",") + 1}'
      )
  table = pd.read_csv(
    io.StringIO('\n'.join(lines) + '\n'),
    dtype=dict.fromkeys(text_columns, str),
  )
  for column in table.columns.difference(list(text_columns)):
    numbers = pd.to_numeric(table[column], errors='coerce')
    bad = numbers.isna() & table[column].notna()
    if bad.any():
      raise NotARunError(
        f'{path.name}, line {int(np.argmax(bad)) + 2}: `{column}` must be a '
        f'number, found {table[column][bad].iloc[0]!r}'
      )
    table[column] = numbers.astype(float)
  return table


def _read_privacy(
  path: pathlib.Path, private: bool, notes: list[str]
) -> dict[str, Any] | None:
  if not path.is_file():
    if private:
      notes.append('privacy.json is missing: nothing is known of its privacy')
    return None
  privacy = _read_json(path)
  absent = [key for key in _PRIVACY_KEYS if privacy.get(key) is None]
  if absent:
    notes.append(f'privacy.json does not say {", ".join(absent)}')
  return privacy


def _read_updates(
  directory: pathlib.Path, notes: list[str]
) -> dict[int, pd.DataFrame]:
  updates = {}
  for path in sorted(directory.glob('*.csv')):
    match = _UPDATE_FILE.fullmatch(path.name)
    if match is None:
      notes.append(f'updates/{path.name} is no round_XXXXX.csv: left out')
      continue
    file_notes: list[str] = []
    try:
      table = _read_csv(path, file_notes, text_columns=('client_id',))
      absent = [column for column in UPDATE_COLUMNS[:3] if column not in table]
      if absent:
        raise NotARunError(f'{path.name} has no column `{absent[0]}`')
    except NotARunError as error:
      notes.append(f'updates/{error}: left out')
      continue
    notes.extend(f'updates/{note}' for note in file_notes)
    updates[int(match.group(1))] = table
  return updates


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
