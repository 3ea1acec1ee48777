"""Adds finished runs to the published ones.

  python scripts/publish_runs.py runs/reproduction [results]

A run that is there already is replaced. All rounds are in one table, all
updates in another, and the rest is a line of JSON for each run: checkpoints,
TensorBoard logs, ledgers and the trained model stay behind.
"""

import gzip
import io
import json
import math
import pathlib
import sys
from collections.abc import Mapping

import pandas as pd

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from analysis import runs as run_files

# The last one is of two runs, and nothing reads it.
_UPDATE_COLUMNS = ('t', *run_files.UPDATE_COLUMNS, 'expected_norm')


def publish(source: pathlib.Path, target: pathlib.Path) -> list[str]:
  """Adds the finished runs and the searches of a folder; returns their names.

  Args:
    source: A folder of run folders, and of sweeps in `search/`.
    target: The folder of the published runs.

  Raises:
    ValueError: There is no run, a finished one cannot be read, or the published
      ones cannot.
  """
  found = {
    path.parent.name: run_files.read_folder(path.parent)
    for path in sorted(source.glob('*/result.json'))
  }
  for name, run in found.items():
    if run.notes:
      raise ValueError(
        f'`source` must hold runs that are whole, found in {name}: '
        f'{"; ".join(run.notes)}.'
      )
  searches = {
    folder.name: _read_search(folder).assign(search=folder.name)
    for folder in sorted(source.glob('search/*/'))
  }
  runs: dict[str, run_files.Run] = {}
  if (target / run_files.RESULT_FILES[0]).is_file():
    runs, before = run_files.read_published(target)
    searches = dict(iter(before.groupby('search'))) | searches
  if not runs | found:
    raise ValueError(f'`source` must hold finished runs, found none: {source}.')
  no_search = pd.DataFrame(columns=['search'])
  write(runs | found, pd.concat([*searches.values()] or [no_search]), target)
  return [*found]


def _read_search(folder: pathlib.Path) -> pd.DataFrame:
  """Returns a row for each run of a sweep over learning rates."""
  rows = []
  for path in sorted(folder.glob('*/result.json')):
    run = run_files.read_folder(path.parent)
    accuracy, loss = (
      run.rounds[column].dropna() for column in ('test_accuracy', 'test_loss')
    )
    rate = run.config['experiment']['client_learning_rate']
    rows.append(
      {
        'client_learning_rate': rate,
        'status': json.loads(path.read_text())['reason'],
        'rounds': int(run.rounds['round_num'].iloc[-1]),
        'final_accuracy': _last(accuracy),
        'best_accuracy': accuracy.max(),
        'final_loss': _last(loss),
        'seconds_per_round': run.rounds['round_seconds'].median(),
      }
    )
  return pd.DataFrame(rows)


def write(
  runs: Mapping[str, run_files.Run],
  searches: pd.DataFrame,
  directory: pathlib.Path,
) -> None:
  """Writes runs, by name; the same runs give the same bytes.

  Args:
    runs: The runs, by name; at least one.
    searches: The rows of each search for a learning rate, see `_read_search`,
      with the column `search`.
    directory: Where the files go.
  """
  directory.mkdir(parents=True, exist_ok=True)
  text, *paths = (directory / name for name in run_files.RESULT_FILES)
  ordered = dict(sorted(runs.items()))
  lines = []
  for name, run in ordered.items():
    more = {'privacy': run.privacy, 'audits': run.audits, **run.rest}
    line = {'name': name, 'config': run.config}
    line |= {key: value for key, value in more.items() if value}
    lines.append(json.dumps(line, ensure_ascii=False) + '\n')
  text.write_text(''.join(lines), encoding='utf-8')
  for path, columns, counts, tables in (
    (
      paths[0],
      run_files.METRIC_COLUMNS,
      ['round_num', 'num_clients'],
      [run.rounds.assign(run=name) for name, run in ordered.items()],
    ),
    (
      paths[1],
      _UPDATE_COLUMNS,
      ['t'],
      [run.updates.assign(run=name) for name, run in ordered.items()],
    ),
  ):
    # An empty one would change the types of the others.
    table = pd.concat([each for each in tables if len(each)] or tables[:1])
    table = table.reindex(columns=['run', *columns])
    _write_csv(table.astype(dict.fromkeys(counts, 'Int64')), path)
  _write_csv(searches.sort_values('search', kind='stable'), paths[2])


def _last(values: pd.Series) -> float:
  return float(values.iloc[-1]) if len(values) else math.nan


def _write_csv(table: pd.DataFrame, path: pathlib.Path) -> None:
  """Writes a table; the bytes do not hold when or where."""
  text = table.to_csv(index=False, lineterminator='\n').encode()
  if path.suffix == '.gz':
    packed = io.BytesIO()
    with gzip.GzipFile('', 'wb', 9, packed, mtime=0) as file:
      file.write(text)
    text = packed.getvalue()
  path.write_bytes(text)


def main(argv: list[str]) -> int:
  if len(argv) not in (2, 3):
    print(__doc__, file=sys.stderr)
    return 2
  target = pathlib.Path(argv[2] if len(argv) == 3 else 'results')
  try:
    names = publish(pathlib.Path(argv[1]), target)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  print('\n'.join(names))
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
