"""Holds BUILD and the rules of who may import what against the real imports."""

import ast
import collections
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

# The experiments as data, which the analysis reads too.
_TABLE = 'the table of experiments'
_TABLE_FILES = (
  'tasks/experiment_table.py',
  'tasks/named_runs.py',
  'tasks/settings.py',
)

# For each part of the project: the parts of it that it may import besides
# itself, and the other packages.
_TENSORFLOW = {'tensorflow', 'tensorflow_federated', 'numpy', 'attrs', 'tree'}
_MAY_IMPORT = {
  'tff_clipping/theory': (set(), {'numpy'}),
  'tff_clipping/privacy': (
    {'tff_clipping/theory'},
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
    {'tff_clipping', 'tff_clipping/runtime', 'tff_clipping/privacy'},
    _TENSORFLOW,
  ),
  _TABLE: (set(), set()),
  'analysis': (
    {'tff_clipping/theory', 'tff_clipping/privacy', _TABLE},
    {'PIL', 'absl', 'markdown', 'matplotlib', 'numpy', 'pandas', 'scipy'},
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


def _build_rules():
  """Returns the keyword arguments of the py_* rules in BUILD, with the kind."""
  rules = []
  for statement in ast.parse((_ROOT / 'BUILD').read_text()).body:
    call = statement.value
    if isinstance(call, ast.Call) and call.func.id.startswith('py_'):
      arguments = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
      rules.append({'kind': call.func.id, **arguments})
  return rules


def test_every_file_is_in_just_one_rule():
  sources = collections.Counter(
    source for rule in _build_rules() for source in rule['srcs']
  )
  expected = collections.Counter(map(str, _python_files()))
  assert sources == expected, 'Run `make build-file`.'


def test_names_are_unique_and_tests_are_tests():
  rules = _build_rules()
  assert len({rule['name'] for rule in rules}) == len(rules)
  for rule in rules:
    is_test = rule['srcs'][0].endswith('_test.py')
    assert (rule['kind'] == 'py_test') == is_test, rule


def test_deps_are_the_imports():
  source_of = {f':{rule["name"]}': rule['srcs'][0] for rule in _build_rules()}
  for rule in _build_rules():
    deps = {source_of[dep] for dep in rule.get('deps', [])}
    imports = {
      str(file) for source in rule['srcs'] for file in _imports(source)
    }
    assert deps == imports, f'{rule["name"]}: run `make build-file`.'


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
