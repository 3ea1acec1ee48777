"""Run folders as tidy data frames: a row for each run, round and update.

Reading never repairs in silence: whatever is missing or cut off is named in the
notes of the run, and a folder that is no run is left out with the reason.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis import baselines, run_files, run_row, titles


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
  """What some run folders hold.

  Attributes:
    runs: A row for each run, with its name as index. Its columns are every
      setting of `config.json`; what `run_row.RunRow` names; every key of
      `privacy.json` after `privacy_` and of `constants.json` after `constant_`;
      what `baselines.with_baselines` adds; `has_constants`; and `notes`, what
      is missing or cut off. NaN or None is what is missing.
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
    """The rows of `runs` whose settings differ in the seeds alone.

    Returns:
      A frame for each setting, in the order of `by_setting`, and in that of
      `ordered` in it.
    """
    if self.runs.empty:  # And without columns.
      return []
    groups = by_setting(self.runs).groupby('series', sort=False)
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
  """Runs in the paper's order of algorithms, then by falling ε.

  Those with an aggregator of a user's own follow those of their algorithm. Runs
  with one ε are in the order of their settings, c, seeds and names.
  """
  known = list(titles.ALGORITHM_NAMES)[:3]

  def place(name: str) -> tuple:
    run = runs.loc[name]
    epsilon, norm = run['epsilon_spent'], run['clipping_norm']
    return (
      known.index(run['algorithm']) if run['algorithm'] in known else 3,
      run['has_own_aggregator'],
      0.0 if math.isnan(epsilon) else -epsilon,
      _values(run['series']),
      0.0 if math.isnan(norm) else norm,
      _values(run['setting']),
      name,
    )

  return runs.loc[sorted(runs.index, key=place)]


def by_setting(runs: pd.DataFrame) -> pd.DataFrame:
  """Runs by setting: models in the paper's order, IID first, then by value."""
  names = list(titles.MODEL_NAMES.values())

  def place(name: str) -> tuple:
    run = runs.loc[name]
    model = run['model_name']
    rank = names.index(model) if model in names else len(names)
    return rank, not run['is_iid'], _values(run['setting'])

  return runs.loc[sorted(runs.index, key=place)]


def differing_settings(one: pd.Series, other: pd.Series) -> list[str]:
  """In what two runs differ beside the seeds, as `num_rounds: 1 against 2`."""
  pairs = zip(
    run_row.SETTING_KEYS,
    json.loads(one['series']),
    json.loads(other['series']),
    strict=True,
  )
  return [f'{key}: {a} against {b}' for key, a, b in pairs if a != b]


def _values(setting: str) -> list[tuple]:
  """The values of a setting, which sort by number or as texts."""
  return [
    (value is not None, isinstance(value, str), value or 0)
    for value in json.loads(setting)
  ]


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
  row = run_row.build_row(
    config, privacy or {}, constants or {}, rounds, updates
  )
  row |= {
    'directory': directory.resolve(),
    'has_constants': constants is not None,
    'notes': tuple(notes),
  }
  return row, (rounds, updates, audit)


def _distinct_names(directories: Sequence[pathlib.Path]) -> list[str]:
  """Adds the parent folder's name where two folders share theirs."""
  names = [path.name for path in directories]
  longer = [
    name if names.count(name) == 1 else str(pathlib.Path(*path.parts[-2:]))
    for name, path in zip(names, directories, strict=True)
  ]
  if len(set(longer)) < len(longer):
    return [str(path) for path in directories]
  return longer


def _concatenated(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
  """All rows; empty tables do not affect the types of columns."""
  filled = [table for table in tables if len(table)] or list(tables[:1])
  return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
