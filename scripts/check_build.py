"""Loads every BUILD file with Bazel, and asks it who depends on whom.

It needs no network: the rules and the packages that MODULE.bazel names are
replaced by local stubs, in a workspace of links to this checkout. So it checks
that every package loads, that every label exists, and that no path leads from
a part of the project to what that part must not import. Bazel is Debian's
`bazel-bootstrap` (4.2).

  python -m scripts.check_build
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).parent.parent

# No path leads from the first to the second.
_TRAINING = (
  '@pypi//tensorflow',
  '@pypi//tensorflow_federated',
  '@pypi//tensorflow_privacy',
  '@pypi//tensorflow_probability',
)
FORBIDDEN = (
  *(('//tff_clipping/theory/...', package) for package in _TRAINING),
  *(('//tff_clipping/privacy/...', package) for package in _TRAINING),
  *(('//analysis/...', package) for package in _TRAINING),
  *(('//tests/privacy/...', package) for package in _TRAINING),
  ('//tff_clipping/...', '//tasks/...'),
  ('//tff_clipping/...', '//analysis/...'),
  ('//tff_clipping/theory/...', '//tff_clipping/privacy/...'),
  ('//tff_clipping/theory/...', '@pypi//scipy'),
  ('//tff_clipping/aggregators/...', '//tff_clipping/learning/...'),
  ('//tff_clipping/aggregators/...', '//tff_clipping/privacy/...'),
  ('//tff_clipping/aggregators/...', '//tff_clipping/runtime/...'),
  ('//tff_clipping/learning/...', '//tff_clipping/runtime/...'),
  ('//tff_clipping/runtime/...', '//tff_clipping/programs/...'),
  ('//tff_clipping/runtime/...', '//tff_clipping/privacy/...'),
  ('//tff_clipping/learning/...', '//tff_clipping/programs/...'),
  ('//tasks/...', '//analysis/...'),
  ('//analysis/...', '//tff_clipping/aggregators/...'),
  ('//analysis/...', '//tff_clipping/learning/...'),
  ('//analysis/...', '//tff_clipping/programs/...'),
  ('//analysis/...', '//tff_clipping/runtime/...'),
)

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
    workspace = _Workspace(bazel, pathlib.Path(folder))
    return workspace.check()


class _Workspace:
  """A folder of links to the checkout, with stubs of what is elsewhere."""

  def __init__(self, bazel: str, folder: pathlib.Path):
    self._bazel = bazel
    self._folder = folder / 'tff_clipping'
    self._output = folder / 'output'
    self._folder.mkdir()
    for entry in _ROOT.iterdir():
      if not entry.name.startswith('.') and entry.name != 'MODULE.bazel':
        (self._folder / entry.name).symlink_to(entry)
    stubs = folder / 'stubs'
    _write(stubs / 'rules_python/python/defs.bzl', _RULES)
    _write(stubs / 'rules_python/python/BUILD', '')
    _write(stubs / 'rules_cc/BUILD', '')
    for name in _packages():
      _write(stubs / 'pypi' / name / 'BUILD', _PACKAGE.format(name=name))
    workspace = 'workspace(name = "tff_clipping")\n'
    for repository in ('rules_python', 'rules_cc', 'pypi'):
      path = stubs / repository
      _write(path / 'WORKSPACE', '')
      workspace += f'local_repository(name = "{repository}", path = "{path}")\n'
    _write(self._folder / 'WORKSPACE', workspace)

  def check(self) -> int:
    """Loads everything and asks for forbidden paths; returns the exit code."""
    targets = self._query('//...').splitlines()
    print(f'{len(targets)} targets load.')
    # All rules in one question: each start of Bazel takes seconds.
    questions = [f'somepath({start}, {end})' for start, end in FORBIDDEN]
    wrong = 0
    if self._query(' + '.join(questions)):
      for (start, end), question in zip(FORBIDDEN, questions, strict=True):
        path = self._query(question).split()
        if path:
          wrong += 1
          print(f'{start} must not depend on {end}: {" -> ".join(path)}')
    print(f'{len(FORBIDDEN)} rules of imports, {wrong} broken.')
    return int(wrong > 0)

  def _query(self, expression: str) -> str:
    result = subprocess.run(
      [
        self._bazel,
        '--batch',
        f'--output_user_root={self._output}',
        'query',
        '--noimplicit_deps',
        expression,
      ],
      cwd=self._folder,
      capture_output=True,
      text=True,
    )
    if result.returncode:
      raise SystemExit(result.stderr)
    return result.stdout


def _packages() -> set[str]:
  """The names of @pypi in all BUILD files, and in the rules above."""
  folders = [e for e in _ROOT.iterdir() if not e.name.startswith('.')]
  texts = [
    build.read_text()
    for folder in folders
    if folder.is_dir()
    for build in folder.rglob('BUILD')
  ]
  ends = ''.join(f'"{end}"' for _, end in FORBIDDEN)
  return set(re.findall(r'"@pypi//(\w+)"', ''.join([*texts, ends])))


def _write(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)


if __name__ == '__main__':
  sys.exit(main())
