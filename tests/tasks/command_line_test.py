"""Tests of what the commands have in common."""

import subprocess
import sys

import pytest

# A command that warns twice of one thing, and once of what is not ours.
_COMMAND = """
import warnings
from absl import flags
from tasks import command_line
from tasks.datasets import data_files

flags.DEFINE_integer('num_clients', 3, '')


def main(argv):
  try:
    command_line.check_flags_only(argv)
  except ValueError as e:
    command_line.print_error(e)
    return 2
  for _ in range(2):
    warnings.warn('`num_clients` is small', data_files.DataWarning)
  warnings.warn('of another library')
  return flags.FLAGS.num_clients


command_line.run(main)
"""


def _run(*arguments):
  return subprocess.run(
    [sys.executable, '-W', 'always', '-c', _COMMAND, *arguments],
    capture_output=True,
    text=True,
    check=False,
  )


def test_a_warning_is_a_line_and_stands_once():
  ended = _run()
  assert ended.returncode == 3
  assert ended.stderr.count('is small') == 1
  assert 'Warning: --num_clients is small\n' in ended.stderr
  assert 'UserWarning: of another library' in ended.stderr


@pytest.mark.parametrize(
  ('argument', 'code', 'text'),
  [
    ('--num_clients=x', 2, 'Error: flag --num_clients=x'),
    ('--num_client=1', 2, "Error: Unknown command line flag 'num_client'"),
    ('extra', 2, "Error: Only flags are taken, found 'extra'."),
    ('--help', 0, ''),
  ],
)
def test_arguments_that_are_no_flags_are_one_line(argument, code, text):
  ended = _run(argument)
  assert ended.returncode == code
  assert text in ended.stderr
  assert len(ended.stderr.splitlines()) <= 1
