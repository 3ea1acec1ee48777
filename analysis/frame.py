"""Run folders as tidy data frames: a row for each run, round and update.

Reading never repairs in silence: whatever is missing or cut off is named in the
notes of the run, and a folder that is no run is left out with the reason.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import baselines, run_files, titles
from tasks import named_runs
from tasks.experiment_table import ALGORITHMS

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

# What the clients and rounds of a run are like; drops of accuracy at different
# ones are not compared.
SCALE = ('clients_per_round', 'local_steps', 'batch_size', 'num_rounds')

# The paper's quantity skew: 5 examples of each of 10 classes a client.
_QUANTITY_SKEW_EXAMPLES = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
  """What some run folders hold.

  Attributes:
    runs: A row for each run, with its name as index: every flag of
      `config.json`; every key of `privacy.json` after `privacy_` and of
      `constants.json` after `constant_`; and what `_run_row` and
      `baselines.with_baselines` name. NaN or None is what is missing.
    rounds: A row for each run and round: `run`, the columns of `metrics.csv`,
      and `accuracy` in percent.
    updates: A row for each recorded update: `run`, `t` (0 is the first round,
      as in the paper), `client_id`, `update_norm`, `angle_degrees`,
      `expected_norm` (NaN where not measured) and `is_mean`, whether it is the
      averaged update.
    audits: A row for each audited run and attack: `run`, and the columns of
      `run_files.AUDIT_COLUMNS`.
    left_out: Folder and reason of each that is no run.
  """

  runs: pd.DataFrame
  rounds: pd.DataFrame
  updates: pd.DataFrame
  audits: pd.DataFrame
  left_out: tuple[tuple[str, str], ...] = ()

  def groups(self) -> list[pd.DataFrame]:
    """The rows of `runs` that may be compared with each other.

    Returns:
      A frame for each setting, in the order of their first runs; FedAvg,
      CE-FedAvg and DP-FedAvg come first in it, the larger ε before the smaller.
    """
    groups = self.runs.groupby('setting', sort=False)
    return [ordered(group) for _, group in groups]

  def client_rounds(self, run: str) -> list[tuple[int, pd.DataFrame]]:
    """By t, the updates of the clients in each recorded round of a run."""
    updates = self.updates
    own = updates[(updates['run'] == run) & ~updates['is_mean']]
    return [(int(t), clients) for t, clients in own.groupby('t')]


def read_frames(directories: Sequence[str | os.PathLike[str]]) -> Frames:
  """Reads run folders, and leaves out by name those that are none.

  Args:
    directories: The folders. One that is given twice counts once.

  Returns:
    The frames, with the runs in the order given, each under a name of its own:
    that of its folder, with the parents' where two are equal.
  """
  rows, tables, left_out, seen = [], [], [], set()
  for directory in map(pathlib.Path, directories):
    if directory.resolve() in seen:
      left_out.append((str(directory), 'given twice, read once'))
      continue
    seen.add(directory.resolve())
    try:
      row, own_tables = _read_run(directory)
    except run_files.NotARunError as error:
      left_out.append((str(directory), str(error)))
      continue
    rows.append(row)
    tables.append(own_tables)
  names = _distinct_names([row.pop('directory') for row in rows])
  for name, own_tables in zip(names, tables, strict=True):
    for table in own_tables:
      table.insert(0, 'run', name)
  runs = pd.DataFrame(rows, index=pd.Index(names, name='run'))
  return Frames(
    baselines.with_baselines(runs) if rows else runs,
    *(_concatenated([own[place] for own in tables]) for place in range(3)),
    tuple(left_out),
  )


def read_results(results_dir: str | os.PathLike[str]) -> Frames:
  """Reads all run folders in a folder, by name.

  Raises:
    ValueError: There is none, or one that cannot be read.
  """
  folders = sorted(
    path.parent for path in pathlib.Path(results_dir).glob('*/config.json')
  )
  frames = read_frames(folders)
  if frames.left_out or not folders:
    reasons = '; '.join(f'{name}: {why}' for name, why in frames.left_out)
    raise ValueError(
      '`results_dir` must hold run folders that can be read, found '
      f'{reasons or f"none in {results_dir}"}.'
    )
  return frames


def ordered(runs: pd.DataFrame) -> pd.DataFrame:
  """Runs in the paper's order of algorithms, by falling ε, by name."""
  known = list(titles.ALGORITHM_NAMES)[:3]

  def place(name: str) -> tuple[int, float, str]:
    run = runs.loc[name]
    epsilon = run['epsilon_spent']
    rank = known.index(run['algorithm']) if run['algorithm'] in known else 3
    return rank, 0.0 if math.isnan(epsilon) else -epsilon, name

  return runs.loc[sorted(runs.index, key=place)]


def differing_settings(one: pd.Series, other: pd.Series) -> list[str]:
  """Why two runs may not be compared, as `seed: 1 against 2`; may be empty."""
  pairs = zip(
    SETTING_KEYS,
    json.loads(one['setting']),
    json.loads(other['setting']),
    strict=True,
  )
  return [f'{key}: {a} against {b}' for key, a, b in pairs if a != b]


def _read_run(
  directory: pathlib.Path,
) -> tuple[dict[str, Any], tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
  """Returns the row of a run; and its rounds, updates and audit."""
  if not directory.is_dir():
    raise run_files.NotARunError(
      'a file, not a folder' if directory.exists() else 'no such folder'
    )
  notes: list[str] = []
  config = run_files.read_config(directory / 'config.json')
  private = config['algorithm'].startswith('dp_')
  rounds = run_files.read_metrics(directory / 'metrics.csv', notes)
  rounds['accuracy'] = 100.0 * rounds['test_accuracy']
  privacy = run_files.read_privacy(directory / 'privacy.json', private, notes)
  updates = run_files.read_updates(directory / 'updates', notes)
  audit = run_files.read_audit(directory / 'audit' / 'audit.json', notes)
  constants = run_files.read_constants(directory / 'constants.json', notes)
  row = _run_row(config, privacy or {}, rounds, updates)
  row |= {f'privacy_{key}': value for key, value in (privacy or {}).items()}
  row |= {f'constant_{key}': value for key, value in (constants or {}).items()}
  row |= {
    'directory': directory.resolve(),
    'has_constants': constants is not None,
    'notes': tuple(notes),
  }
  return row, (rounds, updates, audit)


def _run_row(
  config: Mapping[str, Any],
  privacy: Mapping[str, Any],
  rounds: pd.DataFrame,
  updates: pd.DataFrame,
) -> dict[str, Any]:
  """The row of a run, but for its privacy and constants."""
  flags = config['experiment']
  task = config.get('task') or {}
  algorithm = config['algorithm']
  known = ALGORITHMS.get(algorithm)
  is_private = bool(privacy) or (known is not None and known.is_private)
  exact = bool(len(updates)) or bool(
    rounds[list(run_files.CLIENT_METRICS)].notna().any(axis=None)
  )
  accuracies = rounds['accuracy'].dropna()
  rounds_done = int(rounds['round_num'].max()) if len(rounds) else 0
  spent = rounds['epsilon'].dropna()
  values = [flags.get(key) for key in SETTING_KEYS]
  without_seed = [
    None if key in SEED_KEYS else value
    for key, value in zip(SETTING_KEYS, values, strict=True)
  ]
  is_iid = _is_iid(flags)
  is_audited = flags.get('audit_canaries') is not None
  named = _named_run(config)
  name = titles.ALGORITHM_NAMES.get(algorithm, algorithm)
  if flags.get('aggregator'):
    name = f'{name} by {titles.own_name(flags["aggregator"])}'
  # What older runs do not say is as by default.
  for key, ours in (('clipping', 'fixed'), ('aggregation', 'plain')):
    if flags.get(key, ours) != ours:
      name = f'{name}, {flags[key]}'.replace('_', '-')
  return dict.fromkeys(SETTING_KEYS) | {
    **flags,
    'algorithm': algorithm,
    # Canaries are among its clients: it is no run of the algorithm alone.
    'algorithm_name': f'{name}, audited' if is_audited else name,
    'is_audited': is_audited,
    # What it is in the table of experiments; None where it is none of it.
    'named': named,
    # The names of what changes it there, with commas.
    'variants': ','.join(v.name for v in named.variants) if named else '',
    'model': config['model']['name'],
    'model_name': titles.MODEL_NAMES.get(
      config['model']['name'], titles.own_name(config['model']['name'])
    ),
    'num_parameters': _number(config['model'].get('num_parameters')),
    'data': titles.DATA_NAMES.get(
      flags['task'], titles.own_name(flags['task'])
    ),
    'is_iid': is_iid,
    'split': 'IID' if is_iid else 'non-IID',
    # A natural partition has N from the task alone.
    'num_clients': _number(flags.get('num_clients') or task.get('num_clients')),
    'num_test_examples': _number(task.get('num_test_examples')),
    'partition_summary': task.get('partition'),
    'tff_version': (config.get('versions') or {}).get('tensorflow_federated'),
    'target_epsilon': _number(flags.get('target_epsilon')),
    # What may be compared, and what differs in the seed alone.
    'setting': json.dumps(values),
    'series': json.dumps(without_seed),
    'scale': tuple(flags.get(key) for key in SCALE),
    # The threshold c, on updates or on models; NaN where nothing is clipped.
    'clipping_norm': _number(flags.get('clipping_norm')),
    'clips': known.clips if known is not None else 'updates',
    'is_private': is_private,
    # Exact figures of clients beside a private release.
    'has_simulation_figures': is_private and exact,
    'rounds_done': rounds_done,
    'is_complete': rounds_done >= flags['num_rounds'],
    # Of the last evaluation, and the highest of any; in percent.
    'final_accuracy': _last(accuracies),
    'best_accuracy': accuracies.max(),
    # Of the last evaluation in the first half of all rounds.
    'half_way_accuracy': _last(
      rounds.loc[rounds['round_num'] <= flags['num_rounds'] // 2, 'accuracy']
    ),
    # The mean share of clipped updates of a round.
    'clipped_fraction': rounds['clipped_fraction'].mean(),
    'relative_spread': _relative_spread(rounds, updates),
    'step_length': _step_length(updates, flags),
    'median_round_seconds': rounds['round_seconds'].dropna().median(),
    'seconds': rounds['round_seconds'].sum(),
    # The ε of the rounds that were run, by the plan's accounting.
    'epsilon_spent': (
      _last(spent) if len(spent) else _number(privacy.get('epsilon'))
    ),
    **{
      f'privacy_{key}': math.nan
      for key in (
        'noise_multiplier',
        'epsilon',
        'actual_epsilon',
        'target_delta',
      )
    },
    **dict.fromkeys(
      ('privacy_sampling', 'privacy_accountant', 'privacy_description')
    ),
  }


def _named_run(config: Mapping[str, Any]) -> named_runs.NamedRun | None:
  """The run of the table of experiments with the settings of a run.

  Of two rows that share it, the first. A threshold that was given by hand where
  the table takes it from a run is none of the table's.
  """
  settings = config['experiment'] | {'algorithm': config['algorithm']}
  found = named_runs.find_runs(dict.fromkeys(SETTING_KEYS) | settings)
  if not found:
    return None
  is_given = config.get('clipping_norm_source') == 'given'
  return None if is_given and found[0].threshold_run else found[0]


def _last(values: pd.Series) -> float:
  """The last value that is there; NaN where none is."""
  found = values.dropna()
  return float(found.iloc[-1]) if len(found) else math.nan


def _relative_spread(rounds: pd.DataFrame, updates: pd.DataFrame) -> float:
  """Spread of the clients' update norms: standard deviation over mean.

  The ratio, and not the variance, because the threshold is itself a multiple of
  the mean norm: scaling all updates changes neither the ratio nor what is cut.

  Returns:
    The mean over rounds, from `metrics.csv` where it is measured there, else
    from the recorded updates; NaN where neither has it.
  """
  ratios = rounds['update_norm_std'] / rounds['update_norm_mean']
  ratios = ratios[np.isfinite(ratios)]
  if ratios.empty:
    norms = updates[~updates['is_mean']].groupby('t')['update_norm']
    ratios = norms.std(ddof=0) / norms.mean()
  return float(ratios.mean())


def _step_length(updates: pd.DataFrame, flags: Mapping[str, Any]) -> float:
  """How far the model moves in a round: η_g times the averaged update's norm.

  Returns:
    The geometric mean over all rounds, with logarithms that are linear between
    the recorded ones, most of which are early; NaN where nothing is recorded.
  """
  means = updates[updates['is_mean']].sort_values('t')
  norms = means['update_norm'].astype(float)
  usable = np.isfinite(norms) & (norms > 0)
  if not usable.any():
    return math.nan
  logs = np.interp(
    np.arange(flags['num_rounds']),
    means.loc[usable, 't'],
    np.log(norms[usable]),
  )
  server_rate = _number(flags.get('server_learning_rate'))
  return server_rate * float(np.exp(logs.mean()))


def _is_iid(flags: Mapping[str, Any]) -> bool:
  """Whether the paper would call the clients' data IID (Sec. 2.2).

  Clients with equally many examples of every class are, except for the few
  examples a client that the paper calls the non-IID case of CIFAR-10.
  """
  if flags['partition'] == 'class_balanced':
    size = flags.get('examples_per_client')
    return size is None or size > _QUANTITY_SKEW_EXAMPLES
  return flags['partition'] == 'iid'


def _number(value: Any) -> float:
  """A number of a JSON file; NaN where it is none."""
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return float(value) if is_number else math.nan


def _distinct_names(directories: Sequence[pathlib.Path]) -> list[str]:
  """Adds the parent folder's name where two folders share theirs."""
  names = [path.name for path in directories]
  longer = [
    name if names.count(name) == 1 else str(pathlib.Path(*path.parts[-2:]))
    for name, path in zip(names, directories, strict=True)
  ]
  return longer if len(set(longer)) == len(longer) else map(str, directories)


def _concatenated(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
  """All rows; an empty table decides on no type of a column."""
  filled = [table for table in tables if len(table)] or list(tables[:1])
  return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
