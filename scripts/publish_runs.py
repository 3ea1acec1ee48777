"""Adds finished runs to the published ones.

  python scripts/publish_runs.py runs/reproduction [results]

A run that is there already is replaced. What is kept of a run folder is said in
`analysis/runs/published.py`: checkpoints, TensorBoard logs, ledgers and the
trained model stay behind.
"""

import pathlib
import sys

import pandas as pd

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from analysis.runs import files, published


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
    path.parent.name: files.read_folder(path.parent)
    for path in sorted(source.glob('*/result.json'))
  }
  for name, run in found.items():
    if run.notes:
      raise ValueError(
        f'`source` must hold runs that are whole, found in {name}: '
        f'{"; ".join(run.notes)}.'
      )
  searches = {
    path.parent.name: pd.read_csv(path).assign(search=path.parent.name)
    for path in sorted(source.glob('search/*/sweep.csv'))
  }
  runs: dict[str, files.RunFiles] = {}
  if (target / published.RUNS).is_file():
    runs, before = published.read(target)
    searches = dict(iter(before.groupby('search'))) | searches
  if not runs | found:
    raise ValueError(f'`source` must hold finished runs, found none: {source}.')
  no_search = pd.DataFrame(columns=['search'])
  published.write(
    runs | found, pd.concat([*searches.values()] or [no_search]), target
  )
  return [*found]


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
