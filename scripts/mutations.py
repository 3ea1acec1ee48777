"""Breaks the package on purpose and tells which faults the tests find.

  python -m scripts.mutations [NAME ...]

Each mutation replaces one text of one file in a copy of the tracked files, and
runs the tests that hold the claim. A mutation that no test finds is printed,
and the exit code is 1. Without names, all of scripts/mutations.json is run.

The file has, for each name: `path`, `old` (a text that stands once in the
file), `new`, `tests` (arguments of pytest, one string).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def _copy(folder: pathlib.Path) -> None:
  """Copies the tracked files that are there."""
  listed = subprocess.run(
    ['git', 'ls-files', '-z'], cwd=_ROOT, capture_output=True, check=True
  )
  for name in listed.stdout.decode().split('\0'):
    if name and (_ROOT / name).is_file():
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(_ROOT / name, folder / name)


def _is_found(mutation: dict[str, str], folder: pathlib.Path) -> bool:
  """Runs the tests of one mutation, which is taken back afterwards."""
  path = folder / mutation['path']
  text = path.read_text()
  if text.count(mutation['old']) != 1:
    raise ValueError(
      f'old must stand once in {mutation["path"]}, found '
      f'{text.count(mutation["old"])} times: {mutation["old"]!r}'
    )
  path.write_text(text.replace(mutation['old'], mutation['new']))
  try:
    code = subprocess.run(
      [
        *(sys.executable, '-m', 'pytest', '-q', '-x'),
        *('-p', 'no:cacheprovider', '-m', 'not slow'),
        *mutation['tests'].split(),
      ],
      cwd=folder,
      env={**os.environ, 'PYTHONPATH': str(folder)},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      check=False,
    ).returncode
  finally:
    path.write_text(text)
  # 1: a test failed; 2: a module could not be imported.
  return code in (1, 2)


def main(names: list[str]) -> int:
  """Runs the mutations of these names, or all, and returns the exit code."""
  mutations = json.loads((_ROOT / 'scripts' / 'mutations.json').read_text())
  survivors = 0
  with tempfile.TemporaryDirectory() as folder:
    _copy(pathlib.Path(folder))
    for name in names or mutations:
      is_found = _is_found(mutations[name], pathlib.Path(folder))
      survivors += not is_found
      print('found   ' if is_found else 'SURVIVES', name, flush=True)
  print(f'{survivors} of {len(names or mutations)} mutations survive.')
  return int(survivors > 0)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
