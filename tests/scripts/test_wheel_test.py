"""Tests of the search for a Python to test the wheel on."""

import pathlib
import shutil
import subprocess

import pytest

_SCRIPT = pathlib.Path(__file__).parents[2] / 'scripts' / 'test_wheel.sh'


@pytest.mark.parametrize(
  ('named', 'status'), [({}, 0), ({'PYTHON_FOR_WHEEL': 'nowhere'}, 1)]
)
def test_without_a_python_one_line_says_so(tmp_path, named, status):
  # CI goes on, but one that was named must be there.
  (tmp_path / 'dirname').symlink_to(shutil.which('dirname'))
  result = subprocess.run(
    [shutil.which('bash'), _SCRIPT],
    env={'PATH': str(tmp_path), 'PYENV_ROOT': str(tmp_path), **named},
    capture_output=True,
    text=True,
  )
  assert result.returncode == status, result
  (line,) = result.stdout.splitlines()
  assert line.startswith('The wheel is not tested: no Python 3.12 or 3.13')
