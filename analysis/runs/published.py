"""The published runs: the files of many runs in four, for a checkout.

A run folder has a file for each recorded round. Of many runs, all rounds are in
one table, all updates in another, and the rest is a line of JSON for each run.
`python scripts/publish_runs.py` writes them from run folders.
"""

import gzip
import io
import json
import math
import pathlib
from collections.abc import Mapping

import pandas as pd

from analysis.runs import files

RUNS = 'runs.jsonl'
_ROUNDS = 'rounds.csv'
_UPDATES = 'updates.csv.gz'
_SEARCHES = 'searches.csv'
# Of a line of `RUNS`. What else a line has is kept when runs are added.
_KEYS = frozenset(['name', 'config', 'privacy', 'audits'])
# The last one is that of two runs, and nothing reads it.
_UPDATE_COLUMNS = ('t', *files.UPDATE_COLUMNS, 'expected_norm')


def read(
  directory: pathlib.Path,
) -> tuple[dict[str, files.RunFiles], pd.DataFrame]:
  """Reads what `write` wrote; see there.

  Raises:
    ValueError: A file is missing or cannot be read.
  """
  try:
    lines = [
      json.loads(line)
      for line in (directory / RUNS).read_text(encoding='utf-8').splitlines()
    ]
    rounds = _by_run(directory / _ROUNDS)
    updates = _by_run(directory / _UPDATES)
    searches = pd.read_csv(directory / _SEARCHES)
  except (OSError, ValueError) as error:
    raise ValueError(
      f'`directory` must hold published runs, found in {directory}: {error}.'
    ) from error
  no_updates = pd.DataFrame(columns=['t', *files.UPDATE_COLUMNS])
  return {
    line['name']: files.RunFiles(
      config=line['config'],
      privacy=line.get('privacy', {}),
      audits=pd.DataFrame(line.get('audits', []), columns=files.AUDIT_COLUMNS),
      rounds=rounds[line['name']],
      updates=updates.get(line['name'], no_updates),
      rest={key: value for key, value in line.items() if key not in _KEYS},
    )
    for line in lines
  }, searches


def write(
  runs: Mapping[str, files.RunFiles],
  searches: pd.DataFrame,
  directory: pathlib.Path,
) -> None:
  """Writes runs, by name; the same runs give the same bytes.

  Args:
    runs: The files of each run, by its name; at least one.
    searches: The rows of the `sweep.csv` of each search for a learning rate,
      with the column `search`.
    directory: Where the files go.
  """
  directory.mkdir(parents=True, exist_ok=True)
  ordered = dict(sorted(runs.items()))
  lines = []
  for name, run in ordered.items():
    more = {'privacy': run.privacy, 'audits': _records(run.audits), **run.rest}
    line = {'name': name, 'config': run.config}
    line |= {key: value for key, value in more.items() if value}
    lines.append(json.dumps(line, ensure_ascii=False) + '\n')
  (directory / RUNS).write_text(''.join(lines), encoding='utf-8')
  for name, columns, file in (
    ('rounds', files.METRIC_COLUMNS, _ROUNDS),
    ('updates', _UPDATE_COLUMNS, _UPDATES),
  ):
    tables = [
      getattr(run, name).assign(run=run_name)
      for run_name, run in ordered.items()
    ]
    # An empty one would change the types of the others.
    table = pd.concat([each for each in tables if len(each)] or tables[:1])
    counts = table.columns.intersection(['round_num', 'num_clients', 't'])
    table = table.reindex(columns=['run', *columns])
    _write_csv(table.astype(dict.fromkeys(counts, 'Int64')), directory / file)
  ordered_searches = searches.sort_values('search', kind='stable')
  _write_csv(ordered_searches, directory / _SEARCHES)


def _by_run(path: pathlib.Path) -> dict[str, pd.DataFrame]:
  table = pd.read_csv(path, float_precision='round_trip')
  # As read from a folder.
  counts = table.columns.intersection(['round_num', 'num_clients'])
  table = table.astype(dict.fromkeys(counts, float))
  return {
    name: part.drop(columns='run').reset_index(drop=True)
    for name, part in table.groupby('run', sort=False)
  }


def _records(table: pd.DataFrame) -> list[dict]:
  """The rows of a table, with None in place of NaN, which JSON lacks."""
  return [
    {
      key: None if isinstance(value, float) and math.isnan(value) else value
      for key, value in row.items()
    }
    for row in table.to_dict('records')
  ]


def _write_csv(table: pd.DataFrame, path: pathlib.Path) -> None:
  """Writes a table; the bytes do not hold when or where."""
  text = table.to_csv(index=False, lineterminator='\n').encode()
  if path.suffix == '.gz':
    packed = io.BytesIO()
    with gzip.GzipFile('', 'wb', 9, packed, mtime=0) as file:
      file.write(text)
    text = packed.getvalue()
  path.write_bytes(text)
