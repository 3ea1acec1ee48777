"""Reads the files of a run folder, one function each.

Reading never repairs in silence: damage that leaves the rest usable is appended
to `notes`, and a file that cannot be trusted is refused.
"""

import io
import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_clipping.privacy import read_ledger

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
_MEAN_UPDATE_ID = 'mean'

# What `constants.json` holds, where somebody estimated it: L, G, σ_l, σ_g and
# f(x⁰) − f*.
CONSTANT_KEYS = (
  'smoothness',
  'gradient_bound',
  'local_stddev',
  'global_stddev',
  'initial_gap',
)

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


def read_config(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    if any(path.parent.glob(f'*/{path.name}')):
      raise NotARunError(
        'no run folder: it has no config.json, but folders in it have one; '
        f'give {path.parent}/*/'
      )
    raise NotARunError(
      'it has no config.json, which `tasks.train` and `own_run.train` write; '
      'for a program of your own, read its metrics.csv (docs/training.md)'
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


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    contents = json.loads(path.read_text(encoding='utf-8'))
  except (ValueError, OSError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  if not isinstance(contents, dict):
    raise NotARunError(f'{path.name} must hold one JSON object')
  return contents


def read_metrics(path: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  if not path.is_file():
    notes.append('metrics.csv is missing: no round has finished yet')
    return pd.DataFrame({column: [] for column in METRIC_COLUMNS}, dtype=float)
  table = _read_csv(path, notes, METRIC_COLUMNS)
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


def read_privacy(
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
  ledger = path.with_name('ledger.jsonl')
  if ledger.is_file():
    # A run that was killed may not have written down all of its caveats.
    try:
      found = read_ledger(ledger).caveats
    except (OSError, ValueError) as error:
      notes.append(f'the ledger cannot be read: {error}')
      found = ('what was charged is not known: the ledger cannot be read',)
    known = privacy.get('caveats') or ()
    privacy['caveats'] = list(dict.fromkeys([*known, *found]))
  return privacy


def read_audit(path: pathlib.Path, notes: list[str]) -> pd.DataFrame:
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


def read_updates(directory: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  """All recorded rounds in one table: `t`, `UPDATE_COLUMNS` and `is_mean`."""
  columns = (*UPDATE_COLUMNS, 'expected_norm')
  tables = []
  for path in sorted(directory.glob('*.csv')):
    match = _UPDATE_FILE.fullmatch(path.name)
    if match is None:
      notes.append(f'updates/{path.name} is no round_XXXXX.csv: left out')
      continue
    file_notes: list[str] = []
    try:
      table = _read_csv(path, file_notes, columns[1:])
      absent = [column for column in UPDATE_COLUMNS if column not in table]
      if absent:
        raise NotARunError(f'{path.name} has no column `{absent[0]}`')
    except NotARunError as error:
      notes.append(f'updates/{error}: left out')
      continue
    notes.extend(f'updates/{note}' for note in file_notes)
    table = table.reindex(columns=columns)
    table.insert(0, 't', int(match.group(1)))
    tables.append(table)
  found = pd.DataFrame(columns=['t', *columns])
  if tables:
    found = pd.concat(tables, ignore_index=True)
  # ||E[Δx_i]|| takes repeated local runs, and may be absent.
  found['expected_norm'] = found['expected_norm'].astype(float)
  found['is_mean'] = (found['client_id'] == _MEAN_UPDATE_ID).astype(bool)
  return found


def read_constants(
  path: pathlib.Path, notes: list[str]
) -> dict[str, Any] | None:
  """`CONSTANT_KEYS` and, by t, `squared_gradient_norms`, which may be empty."""
  if not path.is_file():
    return None
  try:
    contents = _read_json(path)
  except NotARunError as error:
    notes.append(f'{error}: left out')
    return None
  for key in CONSTANT_KEYS:
    value = contents.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
      notes.append(f'constants.json has no number `{key}`: left out')
      return None
    # A bound without curvature is none: L is a divisor of its conditions.
    if not 0 <= value < math.inf or (key == 'smoothness' and value == 0):
      notes.append(f'constants.json: `{key}` is {value}: left out')
      return None
  squared = contents.get('squared_gradient_norms', [])
  return {key: float(contents[key]) for key in CONSTANT_KEYS} | {
    'squared_gradient_norms': dict(
      zip(contents.get('rounds', []), squared, strict=False)
    )
  }
