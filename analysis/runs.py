"""Runs: what their folders, or the files in `results/`, hold of them.

Reading never repairs in silence: damage that leaves the rest usable is named in
the notes of the run, and a folder that cannot be trusted is left out with the
reason. Folders of 0.2 are read too.
"""

import csv
import dataclasses
import io
import json
import math
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.experiments import ALGORITHMS, DEFAULTS
from tff_clipping import privacy as privacy_lib
from tff_clipping.privacy.ledger import spending

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
# The exact figures of the clients' updates.
CLIENT_METRICS = METRIC_COLUMNS[-4:]
UPDATE_COLUMNS = ('client_id', 'update_norm', 'angle_degrees')
_TYPES = {
  'run': str,
  'client_id': str,
  **dict.fromkeys((*METRIC_COLUMNS, *UPDATE_COLUMNS[1:]), float),
}
# The `client_id` of the averaged update.
_MEAN_UPDATE_ID = 'mean'

RESULT_FILES = ('runs.jsonl', 'rounds.csv', 'updates.csv.gz')

# Of one partition alone, whatever other runs say of it.
_PARTITION_KEYS = {
  'dirichlet_alpha': 'dirichlet',
  'shards_per_client': 'shards',
}

# Of audit.json: what all attacks share, and what each has.
_AUDIT_KEYS = (
  *('num_releases', 'num_canaries_in', 'num_canaries_out', 'confidence'),
  *('claimed_epsilon', 'allowed_true_positive_rate', 'epsilon_lower_bound'),
  *('gaussian_epsilon_lower_bound', 'epsilon_estimate'),
  *('true_positive_rate', 'is_refuted'),
)
# Of privacy.json: what is needed, and what must be the same in the ledger.
_PLAN_KEYS = ('noise_multiplier', 'target_delta', 'sampling')
_NEEDED_KEYS = (*_PLAN_KEYS, 'epsilon')
_NOT_KNOWN = 'what was charged is not known'
# Of result.json: what was released decided where these runs end.
_ENDED_BY_RELEASES = ('diverged', 'stopped')
_UPDATE_FILE = re.compile(r'round_(\d+)\.csv')


class NotARunError(ValueError):
  """The folder is no run, or its files cannot be trusted."""


@dataclasses.dataclass(frozen=True)
class Metric:
  """The figure on the test set that decides.

  Attributes:
    name: That of its column in `metrics.csv`, without `test_`.
    goal: 'max' where more is better, 'min' where less is.
  """

  name: str = 'accuracy'
  goal: str = 'max'

  @property
  def column(self) -> str:
    """Its column in `metrics.csv`."""
    return f'test_{self.name}'

  @property
  def is_share(self) -> bool:
    """Whether it is a share of the examples, and shown in percent."""
    return self.goal == 'max' and self.name.endswith('accuracy')

  @property
  def scale(self) -> float:
    """The factor from the column to the figure that is shown."""
    return 100.0 if self.is_share else 1.0

  @property
  def title(self) -> str:
    """Its name in a sentence."""
    return f'test {self.name.replace("_", " ")}'

  @property
  def heading(self) -> str:
    """Its name above a column or beside an axis, with its unit."""
    title = self.title.capitalize()
    return f'{title} (%)' if self.is_share else title

  def lost(self, baseline: float, value: float) -> float:
    """By how much a value is worse than a baseline; below 0 if it is better."""
    # NumPy would warn of the difference of two infinite ones.
    difference = float(baseline) - float(value)
    return difference if self.goal == 'max' else -difference

  def decimals(self, values: Iterable[float]) -> int:
    """The decimals of a column: two for a percentage, else four digits."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if self.is_share or not sizes:
      return 2
    return max(3 - math.floor(math.log10(max(sizes))), 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """What the files of a run hold.

  Attributes:
    config: That of `config.json`.
    privacy: That of `privacy.json`, with all caveats that the ledger has; empty
      where there is none. A simulation of noise has no plan: its
      `noise_multiplier` alone, as it was measured.
    rounds: The rows of `metrics.csv`: `METRIC_COLUMNS`, and what else begins
      with `test_`.
    updates: The rows of `updates/`: `t`, which is 0 in the first round as in
      the paper, `UPDATE_COLUMNS`, and `is_mean`: whether a row is the averaged
      update.
    audits: For each attack of `audit/audit.json` its name, `attack`, and its
      figures beside those of the audit.
    metric: The figure on the test set that decides.
    notes: What is missing or cut off, a phrase each.
    ledger: The ledger, which has charged all planned rounds where what was
      released ended the run; None where none can be read.
    ledger_error: Why the ledger that is there cannot be read, or ''.
  """

  config: Mapping[str, Any]
  privacy: Mapping[str, Any]
  rounds: pd.DataFrame
  updates: pd.DataFrame
  audits: Sequence[Mapping[str, Any]]
  metric: Metric = Metric()
  notes: tuple[str, ...] = ()
  ledger: privacy_lib.LedgerContents | None = None
  ledger_error: str = ''

  @property
  def settings(self) -> dict[str, Any]:
    """The flags of the run; empty for a program of one's own."""
    found = DEFAULTS | self.config['experiment']
    # Data of one's own that say whose each example is are split by that.
    if found['partition'] is None:
      found['partition'] = 'natural'
    for key, partition in _PARTITION_KEYS.items():
      if found['partition'] != partition:
        found[key] = None
    return found

  @property
  def scores(self) -> pd.Series:
    """The metric that decides by round; an accuracy in percent."""
    values = self.rounds.set_index('round_num')[self.metric.column].dropna()
    return self.metric.scale * values

  @property
  def final_score(self) -> float:
    """The metric in the last round that was evaluated; NaN without one."""
    last = self._evaluated[self.metric.column].tail(1)
    return self.metric.scale * float(last.iloc[0]) if len(last) else math.nan

  @property
  def is_evaluated(self) -> bool:
    """Whether a round was evaluated."""
    return len(self._evaluated) > 0

  @property
  def _evaluated(self) -> pd.DataFrame:
    """The rounds with a test loss, or with the metric."""
    figures = self.rounds[['test_loss', self.metric.column]]
    return self.rounds[figures.notna().any(axis=1)]

  @property
  def is_private(self) -> bool:
    """Whether it adds noise, as far as anything is known of it."""
    return bool(self.privacy) or _adds_noise(self.config)


def _adds_noise(config: Mapping[str, Any]) -> bool:
  name = config['algorithm']
  known = ALGORITHMS.get(name)
  return known.is_private if known else name.startswith('dp_')


def read_published(directory: pathlib.Path) -> dict[str, Run]:
  """Reads the runs that `scripts/publish_runs.py` wrote.

  Raises:
    ValueError: A file is missing or cannot be read, or lacks a run.
  """
  text, *tables = (directory / name for name in RESULT_FILES)
  try:
    lines = map(json.loads, text.read_text(encoding='utf-8').splitlines())
    configs = {line['name']: line for line in lines}
    return _runs_of(configs, *map(read_published_table, tables))
  except (OSError, ValueError, KeyError, TypeError) as error:
    what = f'no {error}' if isinstance(error, KeyError) else error
    raise ValueError(
      f'`directory` must hold published runs, found in {directory}: {what}.'
    ) from error


def read_published_table(path: pathlib.Path) -> pd.DataFrame:
  """Reads the rounds or the updates of published runs."""
  return pd.read_csv(
    path,
    dtype=_TYPES,
    float_precision='round_trip',
    # A name may be NA, or digits.
    keep_default_na=False,
    na_values=[''],
  )


def _runs_of(
  configs: Mapping[str, Any], rounds: pd.DataFrame, updates: pd.DataFrame
) -> dict[str, Run]:
  """The published runs, by name."""
  updates = _mark_means(updates)
  # As of a run that was read from its folder.
  rounds_of, updates_of = (
    {
      name: part.drop(columns='run').reset_index(drop=True)
      for name, part in table.groupby('run')
    }
    for table in (rounds, updates)
  )
  no_updates = updates[:0].drop(columns='run')
  return {
    name: Run(
      config=line['config'],
      privacy=line.get('privacy', {}),
      audits=line.get('audits', []),
      rounds=rounds_of[name],
      updates=updates_of.get(name, no_updates),
    )
    for name, line in configs.items()
  }


def read_folder(directory: pathlib.Path) -> Run:
  """Reads a run folder, or that of a program of one's own with metrics.csv.

  Raises:
    NotARunError: It is none, or its files cannot be trusted.
  """
  if not directory.is_dir():
    raise NotARunError(
      'a file, not a folder' if directory.exists() else 'no such folder'
    )
  notes: list[str] = []
  path = directory / 'metrics.csv'
  table = _read_csv(path, notes) if path.is_file() else None
  if table is None or (directory / 'config.json').exists():
    config = _read_config(directory / 'config.json')
  else:
    # Of a program of one's own: its accuracy decides, or its loss without one.
    has_accuracy = table.get('test_accuracy', pd.Series()).notna().any()
    config = {
      'algorithm': 'own_program',
      'program': directory.resolve().name,
      'model': {'name': ''},
      'experiment': {'task': '', 'partition': ''},
      'metric': 'accuracy' if has_accuracy else 'loss',
      'metric_goal': 'max' if has_accuracy else 'min',
    }
  metric = Metric(
    config.get('metric', 'accuracy'), config.get('metric_goal', 'max')
  )
  rounds = _read_rounds(table, metric, notes)
  num_rounds = int(rounds['round_num'].max()) if len(rounds) else 0
  config['experiment'].setdefault('num_rounds', num_rounds)
  ledger, ledger_error = _read_ledger(directory)
  privacy = _read_privacy(directory, config, ledger, ledger_error, notes)
  if not privacy and config['experiment'].get('noise_clients_per_round'):
    privacy = _measured_noise(table, config)
  return Run(
    config=config,
    metric=metric,
    rounds=rounds,
    ledger=ledger,
    ledger_error=ledger_error,
    privacy=privacy,
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
      'it has no config.json, which `tasks.train` writes, and no metrics.csv '
      'of a program of your own'
    )
  config = _read_json(path)
  try:
    _ = config['algorithm'], config['model']['name']
    for key in ('task', 'partition', 'num_rounds'):
      _ = config['experiment'][key]
  except (KeyError, TypeError) as error:
    raise NotARunError(f'config.json has not all keys: {error!r}') from error
  return config


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    contents = json.loads(path.read_text(encoding='utf-8'))
  except (ValueError, OSError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error
  if not isinstance(contents, dict):
    raise NotARunError(f'{path.name} must hold one JSON object')
  return contents


def _read_rounds(
  table: pd.DataFrame | None, metric: Metric, notes: list[str]
) -> pd.DataFrame:
  """The rows of metrics.csv."""
  columns = list(dict.fromkeys([*METRIC_COLUMNS, metric.column]))
  if table is None:
    notes.append('metrics.csv is missing: no round has finished yet')
    return pd.DataFrame(columns=columns, dtype=float)
  table = _with_numbers(
    table, ('round_num', metric.column), columns, 'metrics.csv'
  )
  others = [
    name for name in table if name.startswith('test_') and name not in columns
  ]
  table[others] = table[others].apply(pd.to_numeric, errors='coerce')
  table = table.reindex(columns=[*columns, *others])
  rounds = table['round_num']
  if not (rounds.ge(0) & rounds.mod(1).eq(0)).all():
    raise NotARunError('metrics.csv has a row without a valid `round_num`')
  values = table[metric.column].dropna()
  wrong = values[~values.between(0.0, 1.0)]
  if metric.is_share and len(wrong):
    raise NotARunError(
      f'metrics.csv: `{metric.column}` must be between 0 and 1, found '
      f'{wrong.iloc[0]}'
    )
  repeated = int(rounds.duplicated().sum())
  if repeated:
    notes.append(
      f'metrics.csv holds {repeated} round(s) twice: the later row counts'
    )
    table = table.drop_duplicates('round_num', keep='last')
  return table.sort_values('round_num', ignore_index=True)


def _read_csv(path: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  """A CSV file; a cut-off last line is dropped and named."""
  try:
    text = path.read_text(encoding='utf-8')
    whole, _, rest = text.rpartition('\n')
    if whole and rest:
      # A line with all of its commas may still have lost the end of a number.
      notes.append(f'{path.name} is cut off: its last line was left out')
      text = whole
    # Where one has too few values, pandas would fill in the rest.
    if len({*map(len, csv.reader(io.StringIO(text, newline='')))}) > 1:
      raise ValueError('its lines have different numbers of values')
    return pd.read_csv(
      io.StringIO(text),
      # An id may be NA.
      converters={'client_id': str},
      float_precision='round_trip',
    )
  except (OSError, ValueError) as error:
    raise NotARunError(f'{path.name} cannot be read: {error}') from error


def _with_numbers(
  table: pd.DataFrame, needed: Iterable[str], columns: Iterable[str], file: str
) -> pd.DataFrame:
  """A table with those of some columns that it has as numbers."""
  for column in needed:
    if column not in table:
      raise NotARunError(f'{file} has no column `{column}`')
  try:
    return table.astype({name: float for name in columns if name in table})
  except ValueError as error:
    raise NotARunError(f'{file} must hold numbers: {error}') from error


def _measured_noise(
  table: pd.DataFrame | None, config: Mapping[str, Any]
) -> dict[str, float]:
  """The noise multiplier of a run without a plan, if it measured its noise."""
  columns = ['aggregator/noise_stddev', 'aggregator/clipping_norm']
  if table is None or not {*columns} <= {*table}:
    return {}
  if config['experiment'].get('clipping') == 'adaptive':
    return {}  # The bits have a part of its noise.
  measured = table[columns].dropna()
  if measured.empty:
    return {}
  stddev, norm = measured.iloc[0]
  return {'noise_multiplier': float(stddev / norm)}


def _read_ledger(
  directory: pathlib.Path,
) -> tuple[privacy_lib.LedgerContents | None, str]:
  """The ledger of a run, if there is one, and why it cannot be read."""
  path = directory / 'ledger.jsonl'
  if not path.is_file():
    return None, ''
  try:
    with warnings.catch_warnings():
      # The run has said what is unusual of its δ.
      warnings.simplefilter('ignore')
      ledger = privacy_lib.read_ledger(path)
  except (OSError, ValueError) as error:
    return None, str(error)
  if _is_ended_by_releases(directory / 'result.json'):
    # The epsilon of the rounds that were run is no guarantee.
    ledger = spending.as_planned(ledger)
  return ledger, ''


def _read_privacy(
  directory: pathlib.Path,
  config: Mapping[str, Any],
  ledger: privacy_lib.LedgerContents | None,
  ledger_error: str,
  notes: list[str],
) -> dict[str, Any]:
  """What a private run promises, with every caveat of its ledger.

  The ledger is sealed: it counts, whatever privacy.json says of the plan.
  """
  path = directory / 'privacy.json'
  # A simulation of the noise of other cohorts promises nothing.
  is_simulated = config['experiment'].get('noise_clients_per_round')
  promises = path.is_file() or (_adds_noise(config) and not is_simulated)
  privacy = _read_json(path) if path.is_file() else {}
  caveats = [*(privacy.get('caveats') or ())]
  if ledger is not None:
    # A run that was killed may not have written down all of its caveats.
    caveats += ledger.caveats
    plan = privacy_lib.plan_to_json(ledger.plan, [*dict.fromkeys(caveats)])
    changed = [key for key in _PLAN_KEYS if privacy.get(key) != plan[key]]
    if privacy and changed:
      notes.append(
        f'privacy.json has another {", ".join(changed)} than the ledger, '
        'which counts'
      )
    privacy |= plan
    privacy.pop('actual_epsilon', None)
  elif ledger_error:
    notes.append(f'the ledger cannot be read: {ledger_error}')
    caveats.append(f'{_NOT_KNOWN}: the ledger cannot be read')
  elif promises and 'drawn_seeds' in config:
    # Older folders may be from before there was a ledger.
    caveats.append(f'{_NOT_KNOWN}: the ledger is missing')
  if not privacy and not caveats:
    if promises:
      notes.append('privacy.json is missing: nothing is known of its privacy')
    return {}
  absent = [key for key in _NEEDED_KEYS if privacy.get(key) is None]
  if absent:
    notes.append(f'privacy.json does not say {", ".join(absent)}')
  privacy['caveats'] = [*dict.fromkeys(caveats)]
  described = privacy.get('description') or ''
  untold = [each for each in privacy['caveats'] if each not in described]
  if untold:
    stated = f'No guarantee as it was run: {"; ".join(untold)}.'
    described = f'{stated} The plan: {described}' if described else stated
  privacy['description'] = described or None
  return privacy


def _is_ended_by_releases(path: pathlib.Path) -> bool:
  """Whether result.json says that what a run released has ended it."""
  reason = _read_json(path).get('reason') if path.is_file() else None
  return reason in _ENDED_BY_RELEASES


def _read_audit(path: pathlib.Path, notes: list[str]) -> list[dict[str, Any]]:
  """The figures of each attack of an audit."""
  if not path.is_file():
    return []
  try:
    audit = _read_json(path)
    attacks = {name: audit | own for name, own in audit['attacks'].items()}
    return [
      {'attack': name, **{key: found[key] for key in _AUDIT_KEYS}}
      for name, found in attacks.items()
    ]
  except (NotARunError, KeyError, TypeError, AttributeError) as error:
    notes.append(f'audit.json cannot be used: {error}: left out')
    return []


def _read_updates(directory: pathlib.Path, notes: list[str]) -> pd.DataFrame:
  """All recorded rounds in one table."""
  tables = []
  for path in sorted(directory.glob('*.csv')):
    match = _UPDATE_FILE.fullmatch(path.name)
    if match is None:
      notes.append(f'updates/{path.name} is no round_XXXXX.csv: left out')
      continue
    file_notes: list[str] = []
    try:
      table = _with_numbers(
        _read_csv(path, file_notes),
        UPDATE_COLUMNS,
        UPDATE_COLUMNS[1:],
        path.name,
      )
    except NotARunError as error:
      notes.append(f'updates/{error}: left out')
      continue
    notes.extend(f'updates/{note}' for note in file_notes)
    tables.append(table[[*UPDATE_COLUMNS]].assign(t=int(match[1])))
  # Without a file there is a table of the same types.
  empty = pd.DataFrame(columns=['t', *UPDATE_COLUMNS], dtype=float)
  empty = empty.astype({'t': int, 'client_id': object})
  return _mark_means(pd.concat([empty, *tables], ignore_index=True))


def _mark_means(updates: pd.DataFrame) -> pd.DataFrame:
  """Adds `is_mean`: the last row of a round is the average, not a client."""
  keys = [key for key in ('run', 't') if key in updates]
  is_last = ~updates.duplicated(keys, keep='last')
  is_mean = is_last & (updates['client_id'] == _MEAN_UPDATE_ID)
  return updates.assign(is_mean=is_mean)


def own_name(setting: str) -> str:
  """The name of data, a model or an aggregator: without its folders."""
  return setting.rsplit('/', 1)[-1]


def to_number(value: Any) -> float:
  """A number of a JSON file; NaN where it is none."""
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return float(value) if is_number else math.nan
