"""Adds finished runs to the published ones.

  python scripts/publish_runs.py runs/reproduction [results]

A run that is there already is replaced. All rounds are in one table, all
updates in another, and the rest is a line of JSON for each run: checkpoints,
TensorBoard logs, ledgers and the trained model stay behind.
"""

import gzip
import io
import json
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from analysis import markup
from analysis import runs as run_files

# The columns of each table but `run`, and those that count. Two runs alone have
# `expected_norm`.
_TABLES = (
  (run_files.METRIC_COLUMNS, ('round_num', 'num_clients')),
  (('t', *run_files.UPDATE_COLUMNS, 'expected_norm'), ('t',)),
)
# Before the name of a file, from the root or the home of a machine on.
_FOLDERS = re.compile(r'(?<![\w./])~?/(?:[^\s/]+/)*(?=[^\s/])')


def publish(source: pathlib.Path, target: pathlib.Path) -> list[str]:
  """Adds the finished runs of a folder; returns their names.

  The same runs give the same bytes.

  Args:
    source: A folder of run folders.
    target: The folder of the published runs.

  Raises:
    ValueError: There is no run, a finished one cannot be read or has a
      guarantee or another metric, or the published ones cannot be read.
  """
  found = {
    path.parent.name: run_files.read_folder(path.parent)
    for path in sorted(source.glob('*/result.json'))
  }
  for name, run in found.items():
    wrong = [*run.notes]
    # A simulation of the noise of other cohorts has none.
    is_simulated = run.settings.get('noise_clients_per_round')
    has_caveats = run.privacy.get('caveats') or is_simulated
    if run.is_private and not has_caveats:
      # Its config.json has the seed of its cohorts.
      wrong.append('its guarantee holds, which published files would end')
    if run.metric.name != 'accuracy':
      wrong.append(f'{run.metric.name} decides, and accuracies are published')
    if wrong:
      raise ValueError(
        '`source` must hold whole runs of public data by their accuracy, found '
        f'in {name}: {"; ".join(wrong)}.'
      )
  if not found:
    raise ValueError(f'`source` must hold finished runs, found none: {source}.')
  target.mkdir(parents=True, exist_ok=True)
  path, *paths = (target / name for name in run_files.RESULT_FILES)
  lines = {name: _line(name, run) for name, run in found.items()}
  tables = [
    [getattr(run, kind).assign(run=name) for name, run in found.items()]
    for kind in ('rounds', 'updates')
  ]
  if path.is_file():
    before = path.read_text(encoding='utf-8').splitlines()
    lines = {json.loads(line)['name']: line for line in before} | lines
    for own, file in zip(tables, paths, strict=True):
      table = run_files.read_published_table(file)
      own.append(table[~table['run'].isin(found)])
  text = ''.join(f'{line}\n' for _, line in sorted(lines.items()))
  path.write_text(text, encoding='utf-8')
  for own, file, (columns, counts) in zip(tables, paths, _TABLES, strict=True):
    # An empty one would change the types of the others.
    table = pd.concat([each for each in own if len(each)] or own[:1])
    table = table.reindex(columns=['run', *columns])
    table = table.astype(dict.fromkeys(counts, 'Int64'))
    _write_csv(table.sort_values('run', kind='stable'), file)
  return [*found]


def _line(name: str, run: run_files.Run) -> str:
  """A run as a line of JSON."""
  experiment = dict(run.config['experiment'])
  experiment['task'] = run_files.own_name(experiment['task'])
  line = {'name': name, 'config': {**run.config, 'experiment': experiment}}
  more = {'privacy': run.privacy, 'audits': run.audits}
  line |= {key: value for key, value in more.items() if value}
  return json.dumps(_without_folders(line), ensure_ascii=False)


def _without_folders(value: Any) -> Any:
  """Files of one's own by their names, not by folders of this machine."""
  if isinstance(value, Mapping):
    return {key: _without_folders(each) for key, each in value.items()}
  if isinstance(value, list):
    return [*map(_without_folders, value)]
  return _FOLDERS.sub('', value) if isinstance(value, str) else value


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
  with markup.errors_shown():
    names = publish(pathlib.Path(argv[1]), target)
  print('\n'.join(names))
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
