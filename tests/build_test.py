"""Holds the BUILD files and the rules of who may import what to the imports."""

import ast
import functools
import graphlib
import pathlib
import sys

import pytest

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

# Packages that are imported by another name than they are distributed by.
_DISTRIBUTIONS = {'PIL': 'pillow', 'absl': 'absl_py', 'tree': 'dm_tree'}

# The experiments as data.
_TABLE = 'settings and the table of experiments'
_TABLE_FILES = (
  'tasks/config.py',
  'tasks/experiments.py',
  'tasks/named_functions.py',
)

# For each part of the project: the parts of it that it may import besides
# itself, and the other packages.
_TENSORFLOW = {'tensorflow', 'tensorflow_federated', 'numpy', 'attrs', 'tree'}
_MAY_IMPORT = {
  'tff_clipping': (set(), set()),
  'tff_clipping/theory': ({'tff_clipping'}, {'numpy'}),
  'tff_clipping/privacy': (
    {'tff_clipping', 'tff_clipping/theory'},
    # The last is for type checkers alone.
    {
      *('absl', 'dp_accounting', 'numpy', 'scipy'),
      'typing_extensions',
    },
  ),
  'tff_clipping/aggregators': (
    # Strategies of correlated noise, and canaries.
    {'tff_clipping', 'tff_clipping/privacy'},
    _TENSORFLOW,
  ),
  'tff_clipping/learning': (
    {'tff_clipping', 'tff_clipping/aggregators', 'tff_clipping/privacy'},
    _TENSORFLOW,
  ),
  'tff_clipping/runtime': ({'tff_clipping'}, _TENSORFLOW | {'ray'}),
  'tff_clipping/programs': (
    {
      'tff_clipping',
      # The draws of the noise that a state has a key for.
      'tff_clipping/aggregators',
      # The process of a private run in one call.
      'tff_clipping/learning',
      'tff_clipping/runtime',
      'tff_clipping/privacy',
    },
    _TENSORFLOW,
  ),
  _TABLE: ({'tff_clipping', 'tff_clipping/privacy'}, {'absl'}),
  'analysis': (
    {'tff_clipping/privacy'},
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


@functools.cache
def _imported_names(path):
  """Returns (module, name) of every import, also inside functions."""
  names = []
  for node in ast.walk(ast.parse((_ROOT / path).read_text())):
    if isinstance(node, ast.Import):
      names += [(alias.name, None) for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path} has a relative import'
      names += [(node.module, alias.name) for alias in node.names]
  return names


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


@functools.cache
def _libraries():
  """Returns what each BUILD file says: its globs and its deps, by folder."""
  libraries = {}
  for folder in _FOLDERS:
    for build in sorted((_ROOT / folder).rglob('BUILD')):
      path = build.parent.relative_to(_ROOT)
      for node in ast.walk(ast.parse(build.read_text())):
        if not isinstance(node, ast.Call) or node.func.id != 'py_library':
          continue
        rule = {k.arg: k.value for k in node.keywords}
        if ast.literal_eval(rule['name']) != path.name:
          continue
        deps = ast.literal_eval(rule['deps']) if 'deps' in rule else []
        globs = ast.literal_eval(rule['srcs'].args[0])
        libraries[path] = (globs, set(deps))
  return libraries


def _library_of(path):
  """Returns the folder whose library has a file: the nearest BUILD file's."""
  return next(p for p in path.parents if (_ROOT / p / 'BUILD').is_file())


def _label(path):
  return f'//{_library_of(path)}'


def test_every_file_is_in_the_library_of_its_folder():
  for path in _python_files():
    folder = _library_of(path)
    globs, _ = _libraries()[folder]
    inside = path.relative_to(folder)
    deep = globs == ['**/*.py']
    assert deep or (globs == ['*.py'] and len(inside.parts) == 1), path


@pytest.mark.parametrize('folder', map(str, _libraries()))
def test_deps_are_the_imports(folder):
  expected = set()
  for path in _python_files():
    if _library_of(path) != pathlib.Path(folder):
      continue
    for module, name in _imported_names(path):
      file = _file_of(module, name)
      top = module.split('.')[0]
      if file is not None:
        expected.add(_label(file))
      elif top not in sys.stdlib_module_names and not _is_beside(path, top):
        expected.add(f'@pypi//{_DISTRIBUTIONS.get(top, top)}')
  assert _libraries()[pathlib.Path(folder)][1] == expected - {f'//{folder}'}


def _is_beside(path, name):
  """Returns whether a script imports a file of its own folder."""
  folder = _ROOT / path.parent
  return (folder / f'{name}.py').is_file() and not (
    folder / '__init__.py'
  ).is_file()


def test_no_folder_depends_on_itself():
  graph = {
    f'//{folder}': [dep for dep in deps if dep.startswith('//')]
    for folder, (_, deps) in _libraries().items()
  }
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


def test_what_a_part_of_the_library_may_import_is_said():
  parts = {_part(path) for path in _python_files()}
  library = {part for part in parts if part.startswith('tff_clipping')}
  assert library <= _MAY_IMPORT.keys()


def test_only_public_names_of_tff():
  for path in _python_files():
    for module, _ in _imported_names(path):
      assert not module.startswith('tensorflow_federated.'), (
        f'{path} imports {module}'
      )
