"""Copies what is small of finished runs into results/.

  python scripts/publish_runs.py runs/reproduction [results]

Checkpoints, TensorBoard logs, ledgers and the trained model stay behind.
"""

import pathlib
import shutil
import sys

FILES = (
  'config.json',
  'metrics.csv',
  'privacy.json',
  'constants.json',
  'result.json',
  'sweep.csv',
  'sweep.md',
  'audit/audit.json',
)


def publish(source: pathlib.Path, target: pathlib.Path) -> list[str]:
  """Copies runs and searches; returns the names of what was copied.

  Args:
    source: A folder of run folders, and of sweeps in `search/`.
    target: Where they go, under the same names.
  """
  names = []
  # A sweep's table stands for its runs.
  folders = [path.parent for path in sorted(source.glob('*/result.json'))]
  folders += [path.parent for path in sorted(source.glob('search/*/sweep.csv'))]
  for folder in folders:
    name = folder.relative_to(source)
    new = target / name
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for file in FILES:
      if (folder / file).is_file():
        (new / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / file, new / file)
    if (folder / 'updates').is_dir():
      shutil.copytree(folder / 'updates', new / 'updates')
    names.append(str(name))
  return names


def main(argv: list[str]) -> int:
  if len(argv) not in (2, 3):
    print(__doc__, file=sys.stderr)
    return 2
  target = pathlib.Path(argv[2] if len(argv) == 3 else 'results')
  for name in publish(pathlib.Path(argv[1]), target):
    print(name)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
