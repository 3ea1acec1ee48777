"""Tests of what importing a part that needs TensorFlow Federated does."""

import pytest

from tests.processes import run_python

_IMPORT = 'from tff_clipping import aggregators, learning, programs, runtime'


@pytest.mark.slow
def test_importing_prints_nothing():
  pytest.importorskip('tensorflow_federated')
  assert run_python('-c', _IMPORT) == (0, '', '')


@pytest.mark.slow
def test_a_level_that_the_user_set_is_kept():
  pytest.importorskip('tensorflow_federated')
  ended = run_python(
    '-c',
    f"{_IMPORT}; import os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])",
    TF_CPP_MIN_LOG_LEVEL='0',
  )
  assert ended.output == '0\n'
  assert 'tensorflow' in ended.errors


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
  ended = run_python('-c', pretend)
  assert ended.code == 1
  assert 'ImportError: TensorFlow Federated 0.87 is not' in ended.errors
  assert advice in ended.errors
