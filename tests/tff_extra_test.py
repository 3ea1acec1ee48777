"""Tests of what importing a part that needs TensorFlow Federated does."""

import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parent.parent
_IMPORT = 'from tff_clipping import aggregators, learning, programs, runtime'


def _run(code, **environment):
  inherited = {k: v for k, v in os.environ.items() if 'TF_CPP' not in k}
  return subprocess.run(
    [sys.executable, '-c', code],
    env=inherited | environment,
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )


@pytest.mark.slow
def test_importing_prints_nothing():
  pytest.importorskip('tensorflow_federated')
  result = _run(_IMPORT)
  assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


@pytest.mark.slow
def test_a_level_that_the_user_set_is_kept():
  pytest.importorskip('tensorflow_federated')
  result = _run(
    f"{_IMPORT}; import os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])",
    TF_CPP_MIN_LOG_LEVEL='0',
  )
  assert result.stdout == '0\n'
  assert 'tensorflow' in result.stderr


@pytest.mark.parametrize(
  ('version', 'advice'),
  [
    ((3, 11), "run `uv pip install '.[tff]'` or `make setup` in a checkout"),
    ((3, 12), 'no release for Python 3.12: use Python 3.10 or 3.11'),
  ],
)
def test_without_tensorflow_federated_the_error_says_what_to_do(
  version, advice
):
  pretend = f"""
import collections, importlib.util, sys
Version = collections.namedtuple('Version', 'major minor')
sys.version_info = Version(*{version})
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
  None if name == 'tensorflow_federated' else find_spec(name, *rest)
)
from tff_clipping import tff_extra
"""
  result = _run(pretend)
  assert result.returncode == 1
  assert 'ImportError: TensorFlow Federated 0.87 is not' in result.stderr
  assert advice in result.stderr
