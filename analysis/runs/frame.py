"""Runs as tidy data frames: a row for each run, round and update.

Reading never repairs in silence: whatever is missing or cut off is named in the
notes of the run, and a folder that is no run is left out with the reason.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.runs import drops, files, published, row, titles


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
  """What some runs hold.

  Attributes:
    runs: A row for each run, by `row.build_row`, with its name as index; NaN,
      None or an empty text is what is missing. Its columns are every setting of
      `config.json`; every key of `privacy.json` after `privacy_`; what
      `drops.with_drops` adds; and

      - of the experiment that it is of: `row`, `scale` and `variants` (with
        commas); empty where it is of none;
      - of what it is: `algorithm`, `algorithm_name` (for people, with what is
        changed in it), `is_audited` (there are canaries among the clients),
        `has_own_aggregator`, `clips` (what c bounds: updates, models or
        nothing), `model`, `model_name`, `num_parameters`, `data`, `is_iid`
        (whether the paper would call it so), `split` (that in a word),
        `num_clients`, `num_test_examples`, `partition_summary`, `tff_version`,
        `versions`, `metric` (the figure that decides), `loss`, `ledger` (its
        path, None without one), `folder` (its name on disk), `target_epsilon`,
        `clipping_norm`, `setting` (all of `row.SETTING_KEYS`
        as text: runs with the same may be compared) and `series` (that without
        seeds: runs with the same repeat each other);
      - of what it came to: `is_private`, `has_simulation_figures` (a private
        run shows exact figures of its clients), `has_caveats` (the ε of its
        plan does not hold for it as it was run), `rounds_done`, `is_complete`,
        `final_score` and `best_score` (of its metric; an accuracy in percent,
        of the test set or the part of it that the run evaluates),
        `other_scores` (the last values of other metrics, by name),
        `clipped_fraction` (mean over rounds),
        `relative_spread` (of the clients' update norms, standard deviation over
        mean, mean over rounds), `path` (how far the model has moved after each
        round, from 0 to T), `median_round_seconds`, `seconds` (of all rounds),
        `epsilon_spent` (of the rounds that were done, by the plan's
        accounting) and `notes` (what is missing or cut off).
    rounds: A row for each run and round: `run`, the columns of `metrics.csv`,
      and `score`, its metric: an accuracy in percent.
    updates: A row for each recorded update: `run`, `t` (0 is the first round,
      as in the paper), `files.UPDATE_COLUMNS` and `is_mean`, whether it is the
      averaged update.
    audits: A row for each audited run and attack: `run`, and the columns of
      `files.AUDIT_COLUMNS`.
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

  def of(self, names: pd.Index) -> 'Frames':
    """The frames of some runs."""
    return dataclasses.replace(
      self,
      runs=self.runs.loc[names],
      **{
        name: table[table['run'].isin(names)] if len(table) else table
        for name, table in (
          ('rounds', self.rounds),
          ('updates', self.updates),
          ('audits', self.audits),
        )
      },
    )


def read_frames(
  directories: Sequence[str | os.PathLike[str]],
  *,
  named_by_settings: bool = False,
) -> Frames:
  """Reads run folders, and leaves out by name those that are none.

  Args:
    directories: The folders. One that is given twice counts once.
    named_by_settings: Whether runs are called by what they differ in, as in
      `titles.describe_runs`, and not by their folders.

  Returns:
    The frames, with the runs in the order given, each under a name of its own:
    that of its folder, with the parents' where two are equal.
  """
  found: dict[pathlib.Path, files.RunFiles] = {}
  left_out = []
  for directory in map(pathlib.Path, directories):
    if directory.resolve() in found:
      left_out.append((str(directory), 'given twice, read once'))
      continue
    try:
      found[directory.resolve()] = files.read_folder(directory)
    except files.NotARunError as error:
      left_out.append((str(directory), str(error)))
  names = _distinct_names([*found])
  return build(
    dict(zip(names, found.values(), strict=True)),
    tuple(left_out),
    named_by_settings=named_by_settings,
  )


def read_results(results_dir: str | os.PathLike[str]) -> Frames:
  """Reads the published runs, or all run folders in a folder, by name.

  Raises:
    ValueError: There is none, or one that cannot be read.
  """
  directory = pathlib.Path(results_dir)
  if (directory / published.RUNS).is_file():
    return build(published.read(directory)[0])
  folders = sorted(path.parent for path in directory.glob('*/config.json'))
  frames = read_frames(folders)
  if frames.left_out or not folders:
    reasons = '; '.join(f'{name}: {why}' for name, why in frames.left_out)
    raise ValueError(
      '`results_dir` must hold runs that can be read, found '
      f'{reasons or f"none in {results_dir}"}.'
    )
  return frames


def build(
  runs: Mapping[str, files.RunFiles],
  left_out: tuple[tuple[str, str], ...] = (),
  *,
  named_by_settings: bool = False,
) -> Frames:
  """The frames of some runs, by name; see `read_frames`."""
  rows, tables = [], []
  for name, run in runs.items():
    metric = run.metric
    rounds = run.rounds.assign(score=metric.scale * run.rounds[metric.column])
    is_mean = (run.updates['client_id'] == files.MEAN_UPDATE_ID).astype(bool)
    updates = run.updates.assign(is_mean=is_mean)
    rows.append(row.build_row(run, rounds, updates))
    rows[-1]['folder'] = name
    tables.append((rounds, updates, run.audits.copy()))
  frame = pd.DataFrame(rows, index=pd.Index([*runs], name='run'))
  if named_by_settings and rows:
    names = titles.describe_runs(frame)['name']
    frame.index = pd.Index(names, name='run')
  for name, own in zip(frame.index, tables, strict=True):
    for table in own:
      table.insert(0, 'run', name)
  rounds, updates, audits = (
    _concatenated([own[place] for own in tables]) for place in range(3)
  )
  if rows:
    frame = drops.with_drops(frame, rounds)
  return Frames(frame, rounds, updates, audits, left_out)


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


def _values(setting: str) -> list[tuple]:
  """The values of a setting, which sort by number or as texts."""
  return [
    (value is not None, isinstance(value, str), value or 0)
    for value in json.loads(setting)
  ]


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
