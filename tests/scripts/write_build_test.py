"""Tests of the BUILD files, on a small checkout."""

import pathlib

import pytest

from scripts import write_build

FILES = {
  'requirements.lock': (
    'absl-py==1.4.0 \\\n    --hash=sha256:0\nnumpy==1.25.2 ; python_version\n'
  ),
  'README.md': 'text',
  'docs/page.md': 'text',
  'tff_clipping/__init__.py': '',
  'tff_clipping/theory/__init__.py': '',
  'tff_clipping/theory/bounds.py': (
    'import math\nimport numpy as np\nfrom tff_clipping.theory import terms\n'
  ),
  'tff_clipping/theory/terms.py': '',
  'tasks/flags/demo.flags': '--rounds=1',
  'tasks/train.py': (
    'from absl import app\nfrom tff_clipping import theory\n'
    "FLAGS = pathlib.Path('tasks') / 'flags'\n"
    "if __name__ == '__main__':\n  app.run(main)\n"
  ),
  'tasks/page.md': 'text',
  'tasks/page.py': "TEXT = pathlib.Path(__file__).with_name('page.md')\n",
  'benchmarks/peer.py': 'import torch\n',
  'tests/conftest.py': 'import pytest\n',
  'tests/run_pytest.py': '',
  'tests/tasks/train_test.py': (
    "COMMAND = [sys.executable, '-m', 'tasks.train']\n"
    "PAGE = _ROOT / 'docs' / 'page.md'\n"
    '@pytest.mark.slow\ndef test_it(): pass\n'
  ),
}


@pytest.fixture
def tree(tmp_path):
  for name, text in FILES.items():
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  return write_build.Tree(tmp_path)


def _text(tree, folder):
  return tree.build_files()[pathlib.PurePath(folder) / 'BUILD']


def test_each_folder_with_python_has_a_file_and_the_root(tree):
  assert sorted(map(str, tree.build_files())) == [
    'BUILD',
    'benchmarks/BUILD',
    'tasks/BUILD',
    'tests/BUILD',
    'tests/tasks/BUILD',
    'tff_clipping/BUILD',
    'tff_clipping/theory/BUILD',
  ]


def test_a_library_is_public_with_short_names_and_external_packages(tree):
  text = _text(tree, 'tff_clipping/theory')
  assert 'default_visibility = ["//visibility:public"]' in text
  assert (
    """py_library(
    name = "theory",
    srcs = ["__init__.py"],
)"""
    in text
  )
  assert (
    """py_library(
    name = "bounds",
    srcs = ["bounds.py"],
    deps = [
        ":terms",
        "@pypi//numpy",
    ],
)"""
    in text
  )


def test_a_module_with_a_main_is_a_binary_with_the_folder_it_reads(tree):
  assert """py_binary(
    name = "train",
    srcs = ["train.py"],
    data = [":flags"],
    deps = [
        "//tff_clipping/theory",
        "@pypi//absl_py",
    ],
)""" in _text(tree, 'tasks')


def test_a_file_beside_the_module_that_names_it_is_data_and_exported(tree):
  text = _text(tree, 'tasks')
  assert 'data = ["page.md"]' in text
  assert (
    """exports_files([
    "page.md",
])"""
    in text
  )
  assert (
    """filegroup(
    name = "flags",
    srcs = glob(["flags/**"]),
)"""
    in text
  )


def test_a_package_that_is_not_locked_makes_a_target_manual(tree):
  text = _text(tree, 'benchmarks')
  assert 'tags = ["manual"]' in text
  assert 'torch' not in text


def test_a_test_runs_pytest_on_itself_with_what_it_starts_and_reads(tree):
  # pytest is not in the lock file of this checkout.
  assert """py_test(
    name = "train_test",
    size = "large",
    srcs = [
        "train_test.py",
        "//tests:run_pytest.py",
    ],
    args = ["$(location train_test.py)"],
    data = [
        "//:docs",
        "//:pyproject.toml",
        "//tasks:train",
    ],
    main = "//tests:run_pytest.py",
    tags = ["manual"],
    deps = ["//tests:conftest"],
)""" in _text(tree, 'tests/tasks')
  assert '"run_pytest.py",' in _text(tree, 'tests')


def test_the_root_has_the_folders_of_data(tree):
  text = _text(tree, '')
  assert 'srcs = glob(["docs/**"])' in text
  assert '"README.md"' in text
  assert 'py_library' not in text


def test_files_of_folders_without_python_are_stale(tree):
  (tree.root / 'tasks' / 'flags' / 'BUILD').write_text('')
  assert tree.stale() == [pathlib.PurePath('tasks/flags/BUILD')]
