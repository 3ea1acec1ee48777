"""Writes BUILD: a rule for every Python file, with the imports as deps.

There is no Bazel to run here; `tests/build_test.py` holds BUILD against the
files. Run it after adding a file or an import: `make build-file`.
"""

import ast
import pathlib

_ROOT = pathlib.Path(__file__).parent.parent
_FOLDERS = (
  'tff_clipping',
  'tasks',
  'analysis',
  'examples',
  'benchmarks',
  'scripts',
  'tests',
)
_HEADER = """# One rule for every Python file. Written by `make build-file`.

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

licenses(["notice"])
"""


def main() -> None:
  """Writes BUILD."""
  rules = [_rule(path) for path in sorted(_files())]
  (_ROOT / 'BUILD').write_text('\n'.join([_HEADER, *rules]))


def _files() -> list[pathlib.Path]:
  return [
    path
    for folder in _FOLDERS
    for path in (_ROOT / folder).rglob('*.py')
    if '__pycache__' not in path.parts
  ]


def _rule(path: pathlib.Path) -> str:
  relative = path.relative_to(_ROOT)
  tree = ast.parse(path.read_text())
  deps = sorted(
    {f'":{dep}"' for dep in _in_repo_imports(tree) if dep != _name(relative)}
  )
  lines = [f'    name = "{_name(relative)}",', f'    srcs = ["{relative}"],']
  kind = _kind(relative, tree)
  if kind != 'py_library':
    lines.append(f'    main = "{relative}",')
  if deps:
    lines.append('    deps = [')
    lines.extend(f'        {dep},' for dep in deps)
    lines.append('    ],')
  return '\n'.join([f'{kind}(', *lines, ')', ''])


def _name(relative: pathlib.Path) -> str:
  return relative.with_suffix('').as_posix()


def _kind(relative: pathlib.Path, tree: ast.Module) -> str:
  if relative.name.endswith('_test.py'):
    return 'py_test'
  is_main = any(
    isinstance(node, ast.If) and '__main__' in ast.unparse(node.test)
    for node in tree.body
  )
  return 'py_binary' if is_main else 'py_library'


def _in_repo_imports(tree: ast.Module) -> set[str]:
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      for alias in node.names:
        found.add(_target(alias.name, None))
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        found.add(_target(node.module, alias.name))
  return found - {None}


def _target(module: str, name: str | None) -> str | None:
  """Returns the file that an import reads, `None` if it is not in the repo."""
  parts = module.split('.')
  for candidate in ([*parts, name] if name else parts, parts):
    path = _ROOT.joinpath(*candidate)
    if path.with_suffix('.py').is_file():
      return '/'.join(candidate)
    if (path / '__init__.py').is_file():
      return '/'.join([*candidate, '__init__'])
  return None


if __name__ == '__main__':
  main()
