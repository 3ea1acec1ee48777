"""Writes a BUILD file into every folder that has Python files.

Each Python file is a rule of its own: a `py_test` if it ends in _test.py, a
`py_binary` if it has a main, a `py_library` else. Its deps are its imports, of
other packages as requirements.lock has them; a target whose packages are not
there is tagged `manual`. Its data are the files and folders that it names, and
the modules that it starts with `python -m`. Folders without Python are
filegroups. Run it after adding a file or an import: `make build-files`. Tests
hold the files against the imports; they do not run Bazel.
"""

import ast
import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Iterator

# What is public, and what is for this repository alone.
_PUBLIC = ('tff_clipping',)
_INTERNAL = (
  'tasks',
  'analysis',
  'examples',
  'benchmarks',
  'scripts',
  'tests',
)
_DATA_FOLDERS = ('docs', 'results')
_EXPORTED = (
  'LICENSE',
  'Makefile',
  'README.md',
  'pyproject.toml',
  'requirements.lock',
)
_PRUNED = ('__pycache__',)
# Packages that are imported by another name than they are distributed by.
_DISTRIBUTIONS = {'PIL': 'pillow', 'absl': 'absl-py', 'tree': 'dm-tree'}
# A test runs its own file with pytest, and pytest needs its settings.
_TEST_MAIN = pathlib.PurePath('tests/run_pytest.py')
_TEST_SETTINGS = '//:pyproject.toml'
# It names files without reading them.
_GENERATOR = pathlib.PurePath('scripts/write_build.py')
_CONFTEST = pathlib.PurePath('tests/conftest.py')

_HEADER = '# Written by `make build-files` from the files and their imports.'
_RULES = 'load("@rules_python//python:defs.bzl", {})'
# Buildifier's order of attributes.
_ORDER = ('name', 'size', 'testonly', 'srcs', 'args', 'data', 'main', 'tags')

Value = str | bool | list[str]
# All of a file's syntax tree.
Nodes = list[ast.AST]


@dataclasses.dataclass(frozen=True)
class Tree:
  """A checkout: its files, its packages, and how they are called in BUILD.

  Attributes:
    root: The folder of the checkout.
  """

  root: pathlib.Path

  def build_files(self) -> dict[pathlib.PurePath, str]:
    """Returns the text of every BUILD file, by its path in the checkout."""
    texts = {pathlib.PurePath('BUILD'): self._root_build()}
    for package in self.packages:
      texts[package / 'BUILD'] = self._package_build(package)
    return texts

  def stale(self) -> list[pathlib.PurePath]:
    """Returns BUILD files of folders that have no Python any more."""
    kept = self.build_files()
    found = (
      file.relative_to(self.root)
      for folder in (*_PUBLIC, *_INTERNAL)
      for file in (self.root / folder).rglob('BUILD')
    )
    return sorted(file for file in found if file not in kept)

  @functools.cached_property
  def python_files(self) -> list[pathlib.PurePath]:
    return sorted(
      path.relative_to(self.root)
      for folder in (*_PUBLIC, *_INTERNAL)
      for path in (self.root / folder).rglob('*.py')
      if not set(_PRUNED) & set(path.parts)
    )

  @functools.cached_property
  def packages(self) -> list[pathlib.PurePath]:
    return sorted({path.parent for path in self.python_files})

  @functools.cached_property
  def filegroups(self) -> list[pathlib.PurePath]:
    """The folders without Python that are right below a package."""
    below = (
      folder.relative_to(self.root)
      for package in self.packages
      for folder in (self.root / package).iterdir()
      if folder.is_dir() and folder.name not in _PRUNED
    )
    has_python = {p for path in self.python_files for p in path.parents}
    data = [pathlib.PurePath(folder) for folder in _DATA_FOLDERS]
    return data + sorted(set(below) - has_python)

  @functools.cached_property
  def locked(self) -> set[str]:
    """The distributions of requirements.lock."""
    lock = self.root / 'requirements.lock'
    text = lock.read_text() if lock.is_file() else ''
    names = re.findall(r'^([\w.-]+)==', text, re.MULTILINE)
    return {name.lower().replace('_', '-') for name in names}

  def _root_build(self) -> str:
    exported = [n for n in _EXPORTED if (self.root / n).is_file()]
    here = pathlib.PurePath()
    groups = [
      _filegroup(group.name, f'{group}/**')
      for group in self.filegroups
      if group.parent == here and (self.root / group).is_dir()
    ]
    return _file('//:__subpackages__', _exports(exported), *groups)

  def _package_build(self, package: pathlib.PurePath) -> str:
    files = [path for path in self.python_files if path.parent == package]
    rules = [self._rule(path) for path in files]
    kinds = ', '.join(
      f'"{kind}"' for kind in sorted({kind for kind, _ in rules})
    )
    beside = sorted(
      path.name
      for path in (self.root / package).iterdir()
      if path.is_file()
      and not path.name.startswith('.')
      and path.suffix not in ('.py', '.pyc')
      and path.name != 'BUILD'
    )
    if _TEST_MAIN in files:
      beside.append(_TEST_MAIN.name)
    groups = [
      _filegroup(group.name, f'{group.name}/**')
      for group in self.filegroups
      if group.parent == package
    ]
    is_public = package.parts[0] in _PUBLIC
    return _file(
      '//visibility:public' if is_public else '//:__subpackages__',
      _exports(beside) if beside else '',
      *groups,
      *(_call(kind, attributes) for kind, attributes in rules),
      loads=_RULES.format(kinds),
    )

  def _rule(self, path: pathlib.PurePath) -> tuple[str, dict[str, Value]]:
    """The kind of rule of a Python file, and its attributes."""
    source = (self.root / path).read_text()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    package = path.parent
    inside, outside = self._imports(path, nodes)
    named = set() if path == _GENERATOR else self._data(path, nodes)
    data = {self._label(file, package) for file in named}
    deps = {self._label(file, package) for file in inside}
    attributes: dict[str, Value] = {'name': _name(path), 'srcs': [path.name]}
    kind = 'py_binary' if _has_main(tree) else 'py_library'
    if path.name.endswith('_test.py'):
      kind = 'py_test'
      main = self._file_label(_TEST_MAIN, package)
      attributes['srcs'] = [path.name, main]
      attributes['main'] = main
      attributes['args'] = [f'$(location {path.name})']
      data.add(_TEST_SETTINGS)
      deps.add(self._label(_CONFTEST, package))
      outside.add('pytest')
      if 'pytest.mark.slow' in source:
        attributes['size'] = 'large'
    elif path.parts[0] == 'tests':
      attributes['testonly'] = True
    missing = {name for name in outside if name not in self.locked}
    if missing:
      attributes['tags'] = ['manual']
    deps |= {f'@pypi//{name.replace("-", "_")}' for name in outside - missing}
    if data - deps:
      attributes['data'] = sorted(data - deps, key=_label_order)
    if deps:
      attributes['deps'] = sorted(deps, key=_label_order)
    return kind, attributes

  def _imports(
    self, path: pathlib.PurePath, nodes: Nodes
  ) -> tuple[set[pathlib.PurePath], set[str]]:
    """The files of the checkout, and the distributions, that a file imports."""
    inside, outside = set(), set()
    for module, name in _imported_names(nodes):
      file = self._module_file(module, name)
      top = module.split('.')[0]
      if file is not None:
        inside.add(file)
      elif top not in sys.stdlib_module_names:
        outside.add(_DISTRIBUTIONS.get(top, top.lower().replace('_', '-')))
    return inside - {path}, outside

  def _module_file(
    self, module: str, name: str | None = None
  ) -> pathlib.PurePath | None:
    """The file that an import reads; None if it is not in the checkout."""
    parts = module.split('.')
    for candidate in ([*parts, name] if name else parts, parts):
      base = pathlib.PurePath(*candidate)
      for file in (base.with_suffix('.py'), base / '__init__.py'):
        if file in self._known:
          return file
    return None

  @functools.cached_property
  def _known(self) -> set[pathlib.PurePath]:
    return set(self.python_files)

  def _data(
    self, path: pathlib.PurePath, nodes: Nodes
  ) -> set[pathlib.PurePath]:
    """The files, folders without Python and started modules of a file."""
    found = set()
    for text in _named_paths(nodes):
      found |= self._beside(path.parent, text) | self._from_root(text)
    found |= {self._module_file(module) for module in _started_modules(nodes)}
    return found - {None, path}

  def _beside(
    self, package: pathlib.PurePath, text: str
  ) -> set[pathlib.PurePath]:
    """What is called so in the folder of the file that names it."""
    paths = (self.root / package).glob(text)
    files = {path.relative_to(self.root) for path in paths}
    groups = {self._filegroup_of(file) for file in files}
    return groups | {
      file
      for file in files
      if file.parent == package
      and (self.root / file).is_file()
      and file.name != 'BUILD'
      and not ('*' in text and file.suffix == '.py')
    }

  def _from_root(self, text: str) -> set[pathlib.PurePath]:
    """What is called so in the checkout."""
    file = pathlib.PurePath(text)
    if '*' in text or not (self.root / file).exists():
      return set()
    return {file} if text in _EXPORTED else {self._filegroup_of(file)}

  def _filegroup_of(self, file: pathlib.PurePath) -> pathlib.PurePath | None:
    around = {file, *file.parents} & set(self.filegroups)
    return next(iter(around), None)

  def _label(self, file: pathlib.PurePath, package: pathlib.PurePath) -> str:
    """What a rule in a package calls the rule of a file, or another file."""
    if file.suffix == '.py':
      return _shortened(file.parent, _name(file), package)
    if file in self.filegroups:
      return _shortened(file.parent, file.name, package)
    return self._file_label(file, package)

  def _file_label(
    self, file: pathlib.PurePath, package: pathlib.PurePath
  ) -> str:
    if file.parent == package:
      return file.name
    return _shortened(file.parent, file.name, package)


def main() -> None:
  """Writes the BUILD files, and removes those of folders that are gone."""
  tree = Tree(pathlib.Path(__file__).parent.parent)
  for path, text in tree.build_files().items():
    (tree.root / path).write_text(text)
  for path in tree.stale():
    (tree.root / path).unlink()


def _name(path: pathlib.PurePath) -> str:
  """The target of a Python file; that of an __init__.py is its folder's."""
  return path.parent.name if path.stem == '__init__' else path.stem


def _shortened(
  folder: pathlib.PurePath, name: str, package: pathlib.PurePath
) -> str:
  """The label of a target, as short as it can be said in a package."""
  if folder == package:
    return f':{name}'
  where = '' if folder == pathlib.PurePath() else folder.as_posix()
  return f'//{where}' if folder.name == name else f'//{where}:{name}'


def _label_order(label: str) -> tuple[int, str]:
  """Buildifier's: this package, this repository, others."""
  return (2 if label[0] == '@' else label.startswith('//'), label)


def _has_main(tree: ast.Module) -> bool:
  return any(
    isinstance(node, ast.If) and '__main__' in ast.unparse(node.test)
    for node in tree.body
  )


def _imported_names(nodes: Nodes) -> Iterator[tuple[str, str | None]]:
  """(module, name) of every import, also in functions and by `find_spec`."""
  for node in nodes:
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield alias.name, None
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        yield node.module, alias.name
    elif isinstance(node, ast.Call) and node.args:
      is_spec = ast.unparse(node.func) == 'importlib.util.find_spec'
      if is_spec and isinstance(node.args[0], ast.Constant):
        yield node.args[0].value, None


def _named_paths(nodes: Nodes) -> set[str]:
  """Strings and `a / b` that may be paths, with * for what is not constant."""
  found = set()
  for node in nodes:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
      found.add('/'.join(_path_parts(node)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      match = re.fullmatch(r'(?:--\w+=)?([\w./-]+)', node.value)
      found.add(match[1] if match else '')
  return {
    text.rstrip('/')
    for text in found
    if re.search(r'\w', text.split('/')[-1])
    and not text.startswith('/')
    and '..' not in text
  }


def _path_parts(node: ast.expr) -> list[str]:
  """The constant end of `a / b`: from the last part that is not known on."""
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
    right = _path_parts(node.right)
    return [*_path_parts(node.left), *right] if right else []
  if isinstance(node, ast.Constant) and isinstance(node.value, str):
    return [node.value]
  if isinstance(node, ast.JoinedStr):
    parts = [getattr(part, 'value', None) for part in node.values]
    text = ''.join(p if isinstance(p, str) else '*' for p in parts)
    return [re.sub(r'\*+', '*', text)]
  if isinstance(node, ast.Call) and len(node.args) == 1:
    return _path_parts(node.args[0])
  return []


def _started_modules(nodes: Nodes) -> set[str]:
  """The modules that stand after '-m' in a list or tuple."""
  return {
    second.value
    for node in nodes
    if isinstance(node, ast.List | ast.Tuple)
    for first, second in zip(node.elts, node.elts[1:], strict=False)
    if isinstance(first, ast.Constant)
    and first.value == '-m'
    and isinstance(second, ast.Constant)
  }


def _file(visibility: str, *blocks: str, loads: str = '') -> str:
  """The text of a BUILD file."""
  package = f'package(default_visibility = ["{visibility}"])'
  start = [
    _HEADER,
    *([loads] if loads else []),
    package,
    'licenses(["notice"])',
  ]
  return '\n\n'.join([*start, *(block for block in blocks if block)]) + '\n'


def _exports(names: list[str]) -> str:
  lines = ''.join(f'    "{name}",\n' for name in sorted(names))
  return f'exports_files([\n{lines}])'


def _filegroup(name: str, pattern: str) -> str:
  return f'filegroup(\n    name = "{name}",\n    srcs = glob(["{pattern}"]),\n)'


def _call(kind: str, attributes: dict[str, Value]) -> str:
  names = [name for name in (*_ORDER, 'deps') if name in attributes]
  lines = [f'    {name} = {_value(attributes[name])},\n' for name in names]
  return f'{kind}(\n{"".join(lines)})'


def _value(value: Value) -> str:
  if isinstance(value, bool):
    return str(value)
  if isinstance(value, str):
    return f'"{value}"'
  if len(value) == 1:
    return f'["{value[0]}"]'
  return '[\n' + ''.join(f'        "{item}",\n' for item in value) + '    ]'


if __name__ == '__main__':
  main()
