"""Holds the BUILD files and the rules of who may import what to the imports."""

import ast
import collections
import functools
import graphlib
import pathlib
import sys

import pytest

from scripts import write_build

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

# The experiments as data, which the analysis reads too.
_TABLE = 'the table of experiments'
_TABLE_FILES = (
  'tasks/experiment_table.py',
  'tasks/named_runs.py',
  'tasks/reproduction_runs.py',
  'tasks/settings.py',
)

# For each part of the project: the parts of it that it may import besides
# itself, and the other packages.
_TENSORFLOW = {'tensorflow', 'tensorflow_federated', 'numpy', 'attrs', 'tree'}
_MAY_IMPORT = {
  'tff_clipping': (set(), set()),
  'tff_clipping/theory': ({'tff_clipping'}, {'numpy'}),
  'tff_clipping/privacy': (
    {'tff_clipping', 'tff_clipping/theory'},
    {'absl', 'dp_accounting', 'matplotlib', 'numpy', 'scipy'},
  ),
  'tff_clipping/aggregators': (
    {'tff_clipping'},
    _TENSORFLOW | {'tensorflow_privacy', 'tensorflow_probability'},
  ),
  'tff_clipping/learning': (
    {'tff_clipping', 'tff_clipping/aggregators'},
    _TENSORFLOW,
  ),
  'tff_clipping/runtime': ({'tff_clipping'}, _TENSORFLOW | {'ray'}),
  'tff_clipping/programs': (
    {
      'tff_clipping',
      # The draws of the noise that a state has a key for.
      'tff_clipping/aggregators',
      'tff_clipping/runtime',
      'tff_clipping/privacy',
    },
    _TENSORFLOW,
  ),
  _TABLE: ({'tff_clipping'}, set()),
  'analysis': (
    {'tff_clipping/theory', 'tff_clipping/privacy', _TABLE},
    {
      'PIL',
      'absl',
      'jinja2',
      'markdown',
      'matplotlib',
      'numpy',
      'pandas',
      'scipy',
    },
  ),
}


def _python_files():
  return [
    path.relative_to(_ROOT)
    for folder in _FOLDERS
    for path in sorted((_ROOT / folder).rglob('*.py'))
    if '__pycache__' not in path.parts
  ]


def _imported_names(path):
  """Yields (module, name) of every import, also inside functions."""
  for node in ast.walk(ast.parse((_ROOT / path).read_text())):
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield alias.name, None
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path} has a relative import'
      for alias in node.names:
        yield node.module, alias.name


def _file_of(module, name):
  """Returns the file that an import reads, or `None` if it is not in here."""
  parts = module.split('.')
  candidates = [[*parts, name]] if name else []
  for candidate in [*candidates, parts]:
    base = pathlib.Path(*candidate)
    for file in (base.with_suffix('.py'), base / '__init__.py'):
      if (_ROOT / file).is_file():
        return file
  return None


def _imports(path):
  files = {_file_of(module, name) for module, name in _imported_names(path)}
  return files - {None, path}


@functools.cache
def _targets():
  """Returns the py_* rules of all BUILD files by label, with their folders."""
  targets = {}
  for folder in sorted({str(path.parent) for path in _python_files()}):
    for statement in ast.parse((_ROOT / folder / 'BUILD').read_text()).body:
      call = statement.value
      if isinstance(call, ast.Call) and call.func.id.startswith('py_'):
        rule = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
        label = f'//{folder}:{rule["name"]}'
        assert label not in targets, label
        targets[label] = {'kind': call.func.id, 'folder': folder, **rule}
  return targets


def _absolute(label, folder):
  """Returns a label of this repository as it is written outside its folder."""
  if label.startswith(':'):
    return f'//{folder}{label}'
  return label if ':' in label else f'{label}:{label.split("/")[-1]}'


def _dependencies(target):
  return [
    _absolute(dep, target['folder'])
    for dep in target.get('deps', [])
    if not dep.startswith('@')
  ]


def test_build_files_are_what_is_written_anew():
  tree = write_build.Tree(_ROOT)
  for path, text in tree.build_files().items():
    assert (_ROOT / path).read_text() == text, f'{path}: `make build-files`.'
  assert tree.stale() == []


def test_every_file_is_in_just_one_rule():
  sources = collections.Counter(
    f'{target["folder"]}/{target["srcs"][0]}' for target in _targets().values()
  )
  assert sources == collections.Counter(map(str, _python_files()))


def test_deps_are_the_imports_and_for_tests_their_settings():
  targets = _targets()
  for label, target in targets.items():
    source = pathlib.PurePath(target['folder'], target['srcs'][0])
    deps = {
      pathlib.PurePath(targets[dep]['folder'], targets[dep]['srcs'][0])
      for dep in _dependencies(target)
    }
    imports = _imports(source)
    if target['kind'] == 'py_test':
      imports.add(pathlib.PurePath('tests/conftest.py'))
    assert deps == imports, label


def test_no_target_depends_on_itself():
  targets = _targets()
  graph = {label: _dependencies(target) for label, target in targets.items()}
  # Raises with the circle.
  list(graphlib.TopologicalSorter(graph).static_order())


def _part(path):
  """Returns the part of the project that a file is in."""
  parts = pathlib.Path(path).parts
  if str(path) in _TABLE_FILES:
    return _TABLE
  if parts[0] == 'tff_clipping':
    return '/'.join(parts[:-1][:2])
  return parts[0]


@pytest.mark.parametrize('part', _MAY_IMPORT)
def test_a_part_imports_only_what_it_may(part):
  in_repo, packages = _MAY_IMPORT[part]
  for path in _python_files():
    if _part(path) != part:
      continue
    for module, name in _imported_names(path):
      file = _file_of(module, name)
      if file is not None:
        assert _part(file) in in_repo | {part}, f'{path} imports {file}'
      else:
        top = module.split('.')[0]
        assert top in packages or top in sys.stdlib_module_names, (
          f'{path} imports {module}'
        )


def test_the_library_does_not_import_what_is_built_on_it():
  for path in _python_files():
    if _part(path).startswith('tff_clipping'):
      for file in _imports(path):
        assert _part(file).startswith('tff_clipping'), f'{path}: {file}'


def test_only_public_names_of_tff():
  for path in _python_files():
    for module, _ in _imported_names(path):
      assert not module.startswith('tensorflow_federated.'), (
        f'{path} imports {module}'
      )
