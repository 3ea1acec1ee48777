"""Tests of the search for a Python that can run TensorFlow Federated."""

import pathlib
import subprocess

_SCRIPT = pathlib.Path(__file__).parents[2] / 'scripts' / 'find_python.sh'


def _find(candidate):
  return subprocess.run(
    ['bash', _SCRIPT],
    env={'PATH': '/usr/bin:/bin', 'PYTHON_FOR_VENV': str(candidate)},
    capture_output=True,
    text=True,
  )


def _write_python(path, version, *, works):
  status = 0 if works else 1
  path.write_text(
    f'#!/bin/sh\n[ "$1" = --version ] && echo Python {version} || '
    f'exit {status}\n'
  )
  path.chmod(0o755)
  return path


def test_a_python_that_works_is_taken(tmp_path):
  python = _write_python(tmp_path / 'python', '3.11.7', works=True)
  assert _find(python).stdout == f'{python}\n'


def test_a_python_that_is_too_new_is_named_with_its_version(tmp_path):
  python = _write_python(tmp_path / 'python', '3.13.0', works=False)
  result = _find(python)
  assert result.returncode == 1
  assert f'found {python} (Python 3.13.0).' in result.stderr


def test_a_command_that_is_not_there_is_named():
  assert 'found no command 3.13.' in _find('3.13').stderr
