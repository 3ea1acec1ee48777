"""Loads every BUILD file with Bazel.

It needs no network: the rules and the packages that MODULE.bazel names are
replaced by local stubs, in a workspace of links to this checkout. So it checks
that every package loads and that every label exists; `tests/build_test.py`
holds the files to the imports. Bazel is Debian's `bazel-bootstrap` (4.2).

  python -m scripts.check_build
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).parent.parent

_RULES = """
def py_library(**attrs):
    native.py_library(**attrs)

def py_binary(**attrs):
    native.py_binary(**attrs)

def py_test(**attrs):
    native.py_test(**attrs)
"""
_PACKAGE = """
py_library(name = "{name}", visibility = ["//visibility:public"])
"""


def main() -> int:
  """Checks the BUILD files; returns the exit code."""
  bazel = shutil.which('bazel')
  if bazel is None:
    print('No bazel here: `apt-get install bazel-bootstrap`.', file=sys.stderr)
    return 2
  with tempfile.TemporaryDirectory() as folder:
    workspace = _make_workspace(pathlib.Path(folder))
    result = subprocess.run(
      [
        *(bazel, '--batch', f'--output_user_root={folder}/output'),
        *('query', '--noimplicit_deps', '--noshow_progress', 'deps(//...)'),
      ],
      cwd=workspace,
      stdout=subprocess.PIPE,
      text=True,
    )
  print(f'{result.stdout.count("//")} targets load.')
  return result.returncode


def _make_workspace(folder: pathlib.Path) -> pathlib.Path:
  """Makes links to the checkout, with stubs of what is elsewhere."""
  workspace, stubs = folder / 'tff_clipping', folder / 'stubs'
  workspace.mkdir()
  for entry in _ROOT.iterdir():
    if not entry.name.startswith('.') and entry.name != 'MODULE.bazel':
      (workspace / entry.name).symlink_to(entry)
  _write(stubs / 'rules_python/python/defs.bzl', _RULES)
  _write(stubs / 'rules_python/python/BUILD', '')
  _write(stubs / 'rules_cc/BUILD', '')
  for name in _packages():
    _write(stubs / 'pypi' / name / 'BUILD', _PACKAGE.format(name=name))
  text = 'workspace(name = "tff_clipping")\n'
  for repository in ('rules_python', 'rules_cc', 'pypi'):
    path = stubs / repository
    _write(path / 'WORKSPACE', '')
    text += f'local_repository(name = "{repository}", path = "{path}")\n'
  _write(workspace / 'WORKSPACE', text)
  return workspace


def _packages() -> set[str]:
  """The names of @pypi in all BUILD files."""
  return {
    name
    for folder in _ROOT.iterdir()
    if folder.is_dir() and not folder.name.startswith('.')
    for build in folder.rglob('BUILD')
    for name in re.findall(r'"@pypi//(\w+)"', build.read_text())
  }


def _write(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)


if __name__ == '__main__':
  sys.exit(main())
