"""The files of a run, and how they are read from its folder.

Reading never repairs in silence: damage that leaves the rest usable is appended
to `notes`, and a file that cannot be trusted is refused.
"""

import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import metric as metrics
from analysis.runs.experiments import ALGORITHMS
from tff_clipping import privacy as privacy_lib
from tff_clipping.privacy.plans import plan_json, words

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

# Those that are exact figures of the clients' updates.
CLIENT_METRICS = (
  'update_norm_mean',
  'update_norm_std',
  'update_norm_max',
  'clipped_fraction',
)

UPDATE_COLUMNS = ('client_id', 'update_norm', 'angle_degrees')

# The `client_id` of the row that holds the averaged update, where one is there.
MEAN_UPDATE_ID = 'mean'

# In place of the algorithm, of which nothing is known.
OWN_PROGRAM = 'own_program'

_PRIVACY_KEYS = (
  'noise_multiplier',
  'target_delta',
  'sampling',
  'accountant',
  'epsilon',
  'actual_epsilon',
)
_AUDIT_KEYS = (
  'num_releases',
  'num_canaries_in',
  'num_canaries_out',
  'confidence',
  'claimed_epsilon',
  'actual_epsilon',
  'allowed_true_positive_rate',
)
_ATTACK_KEYS = (
  'epsilon_lower_bound',
  'gaussian_epsilon_lower_bound',
  'epsilon_estimate',
  'true_positive_rate',
  'is_refuted',
)
AUDIT_COLUMNS = ('attack', *_AUDIT_KEYS, *_ATTACK_KEYS)
_UPDATE_FILE = re.compile(r'round_(\d+)\.csv')


class NotARunError(ValueError):
  """The folder is no run, or its files cannot be trusted."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunFiles:
  """What the files of a run hold.

  Attributes:
    config: That of `config.json`.
    privacy: That of `privacy.json`, with all caveats that the ledger has; empty
      where there is none.
    rounds: The rows of `metrics.csv`: `METRIC_COLUMNS`, and what else begins
      with `test_`.
    updates: The rows of `updates/`: `t` and `UPDATE_COLUMNS`; the averaged
      update has `MEAN_UPDATE_ID`.
    audits: A row for each attack of `audit/audit.json`: `AUDIT_COLUMNS`.
    notes: What is missing or cut off, a phrase each.
    metric: The figure on the test set that decides. If it is no accuracy,
      `rounds` has its column too.
    ledger: What was charged; None where there is no ledger.
    rest: What else a published run has, which nothing reads.
  """

  config: Mapping[str, Any]
  privacy: Mapping[str, Any]
  rounds: pd.DataFrame
  updates: pd.DataFrame
  audits: pd.DataFrame
  notes: tuple[str, ...] = ()
  metric: metrics.Metric = metrics.ACCURACY
  ledger: pathlib.Path | None = None
  rest: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_folder(directory: pathlib.Path) -> RunFiles:
  """Reads a run folder, or that of a program of one's own with metrics.csv.

  Raises:
    NotARunError: It is none, or its files cannot be trusted.
  """
  if not directory.is_dir():
    raise NotARunError(
      'a file, not a folder' if directory.exists() else 'no such folder'
    )
  notes: list[str] = []
  path, ledger = directory / 'metrics.csv', directory / 'ledger.jsonl'
  if path.is_file() and not (directory / 'config.json').exists():
    metric = _metric_of_program(path)
    rounds = _read_metrics(path, metric, [])
    config = _config_of_program(directory, rounds)
  else:
    config = _read_config(directory / 'config.json')
    try:
      metric = metrics.read_metric(config)
    except ValueError as error:
      raise NotARunError(f'config.json: {error}') from error
    rounds = _read_metrics(path, metric, notes)
  name = config['algorithm']
  known = ALGORITHMS.get(name)
  is_private = known.is_private if known else name.startswith('dp_')
  return RunFiles(
    config=config,
    metric=metric,
    rounds=rounds,
    ledger=ledger if ledger.is_file() else None,
    privacy=_read_privacy(directory / 'privacy.json', is_private, notes),
    updates=_read_updates(directory / 'updates', notes),
    audits=_read_audit(directory / 'audit' / 'audit.json', notes),
    notes=tuple(notes),
  )


def _read_config(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    if any(path.parent.glob(f'*/{path.name}')):
      raise NotARunError(
        'no run folder: it has no config.json, but folders in it have one; '
        f'give {path.parent}/*/'
      )
    raise NotARunError(
      'it has no config.json, which `tasks.train` and `own_run.train` write, '
      'and no metrics.csv of a program of your own'
    )
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


def _metric_of_program(path: pathlib.Path) -> metrics.Metric:
  """The accuracy of a program of one's own, or its loss without one."""
  try:
    table = pd.read_csv(path)
  except (OSError, ValueError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  for metric in (metrics.ACCURACY, metrics.Metric('loss', 'min')):
    if metric.column in table and table[metric.column].notna().any():
      return metric
  raise NotARunError(f'{path.name} has neither `test_accuracy` nor `test_loss`')


def _config_of_program(
  directory: pathlib.Path, rounds: pd.DataFrame
) -> dict[str, Any]:
  """What is known of a program of one's own: its name and its rounds."""
  return {
    'algorithm': OWN_PROGRAM,
    'program': directory.resolve().name,
    'model': {'name': ''},
    'experiment': {
      'task': '',
      'partition': '',
      'num_rounds': int(rounds['round_num'].max()) if len(rounds) else 0,
    },
  }


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    contents = json.loads(path.read_text(encoding='utf-8'))
  except (ValueError, OSError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  if not isinstance(contents, dict):
    raise NotARunError(f'{path.name} must hold one JSON object')
  return contents


def _read_metrics(
  path: pathlib.Path, metric: metrics.Metric, notes: list[str]
) -> pd.DataFrame:
  columns = list(dict.fromkeys([*METRIC_COLUMNS, metric.column]))
  if not path.is_file():
    notes.append('metrics.csv is missing: no round has finished yet')
    return pd.DataFrame({column: [] for column in columns}, dtype=float)
  table = _read_csv(path, notes, columns)
  for column in ('round_num', metric.column):
    if column not in table:
      raise NotARunError(f'metrics.csv has no column `{column}`')
  absent = [column for column in columns if column not in table]
  if metric != metrics.ACCURACY and 'test_accuracy' in absent:
    absent.remove('test_accuracy')
  if absent:
    notes.append(f'metrics.csv does not measure {", ".join(absent)}')
  others = [
    column
    for column in table
    if column.startswith('test_') and column not in columns
  ]
  table[others] = table[others].apply(pd.to_numeric, errors='coerce')
  table = table.reindex(columns=[*columns, *others])
  rounds = table['round_num'].to_numpy()
  if np.isnan(rounds).any() or (rounds < 0).any() or (rounds % 1).any():
    raise NotARunError('metrics.csv has a row without a valid `round_num`')
  values = table[metric.column].dropna()
  if metric.is_share and not values.between(0.0, 1.0).all():
    raise NotARunError(
      f'metrics.csv: `{metric.column}` must be between 0 and 1, found '
      f'{values[~values.between(0.0, 1.0)].iloc[0]}'
    )
  repeated = int(table['round_num'].duplicated(keep='last').sum())
  if repeated:
    notes.append(
      f'metrics.csv holds {repeated} round(s) twice: the later row counts'
    )
    table = table.drop_duplicates('round_num', keep='last')
  return table.sort_values('round_num', ignore_index=True)


def _read_csv(
  path: pathlib.Path, notes: list[str], number_columns: Sequence[str]
) -> pd.DataFrame:
  """Reads a CSV file; a cut-off last line is dropped and named."""
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
    io.StringIO('\n'.join(lines) + '\n'), dtype=str, keep_default_na=False
  )
  for column in table.columns.intersection(list(number_columns)):
    numbers = pd.to_numeric(table[column], errors='coerce')
    bad = numbers.isna() & ~table[column].str.lower().isin(['', 'nan'])
    if bad.any():
      raise NotARunError(
        f'{path.name}, line {int(np.argmax(bad)) + 2}: `{column}` must be a '
        f'number, found {table[column][bad].iloc[0]!r}'
      )
    table[column] = numbers.astype(float)
  return table


def _read_privacy(
  path: pathlib.Path, is_private: bool, notes: list[str]
) -> dict[str, Any]:
  ledger = path.with_name('ledger.jsonl')
  charged, found = None, ()
  if ledger.is_file():
    try:
      charged = privacy_lib.read_ledger(ledger)
      # A run that was killed may not have written down all of its caveats.
      found = charged.caveats
    except (OSError, ValueError) as error:
      notes.append(f'the ledger cannot be read: {error}')
      found = ('what was charged is not known: the ledger cannot be read',)
  if path.is_file():
    privacy = _read_json(path)
  elif charged is not None:
    # What `tasks.train` writes of the plan; a program of one's own may not.
    privacy = plan_json.plan_to_json(charged.plan, charged.caveats)
  else:
    if is_private:
      notes.append('privacy.json is missing: nothing is known of its privacy')
    return {}
  absent = [key for key in _PRIVACY_KEYS if privacy.get(key) is None]
  if absent:
    notes.append(f'privacy.json does not say {", ".join(absent)}')
  known = privacy.get('caveats') or ()
  privacy['caveats'] = list(dict.fromkeys([*known, *found]))
  described = privacy.get('description') or ''
  untold = [each for each in privacy['caveats'] if each not in described]
  if untold and described:
    described = words.add_caveats(described, untold)
  elif untold:
    described = words.state_caveats(untold)
  privacy['description'] = described or None
  return privacy


def _read_audit(path: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  """A row for each attack of an audit, with `AUDIT_COLUMNS`."""
  empty = pd.DataFrame(columns=list(AUDIT_COLUMNS))
  if not path.is_file():
    return empty
  try:
    audit = _read_json(path)
    common = {key: audit[key] for key in _AUDIT_KEYS}
    lines = [
      {'attack': name, **common, **{key: attack[key] for key in _ATTACK_KEYS}}
      for name, attack in audit['attacks'].items()
    ]
  except (NotARunError, KeyError, TypeError, AttributeError) as error:
    notes.append(f'audit.json cannot be used: {error}: left out')
    return empty
  return pd.DataFrame(lines, columns=list(AUDIT_COLUMNS))


def _read_updates(directory: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  """All recorded rounds in one table: `t` and `UPDATE_COLUMNS`."""
  tables = []
  for path in sorted(directory.glob('*.csv')):
    match = _UPDATE_FILE.fullmatch(path.name)
    if match is None:
      notes.append(f'updates/{path.name} is no round_XXXXX.csv: left out')
      continue
    file_notes: list[str] = []
    try:
      table = _read_csv(path, file_notes, UPDATE_COLUMNS[1:])
      absent = [column for column in UPDATE_COLUMNS if column not in table]
      if absent:
        raise NotARunError(f'{path.name} has no column `{absent[0]}`')
    except NotARunError as error:
      notes.append(f'updates/{error}: left out')
      continue
    notes.extend(f'updates/{note}' for note in file_notes)
    table = table[[*UPDATE_COLUMNS]]
    table.insert(0, 't', int(match.group(1)))
    tables.append(table)
  if not tables:
    return pd.DataFrame(columns=['t', *UPDATE_COLUMNS])
  return pd.concat(tables, ignore_index=True)
