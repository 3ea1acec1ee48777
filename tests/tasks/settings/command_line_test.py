"""Tests of what the commands have in common."""

import pytest

from tests.tasks import train_command

# A command that warns twice of one thing, and once of what is not ours.
_COMMAND = """
import warnings
from absl import flags
from tasks.settings import command_line
from tasks.data.datasets import data_files

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
  return train_command.run('-W', 'always', '-c', _COMMAND, *arguments)


def test_a_warning_is_a_line_and_stands_once():
  ended = _run()
  assert ended.code == 3
  assert ended.errors.count('is small') == 1
  assert 'Warning: --num_clients is small\n' in ended.errors
  assert 'UserWarning: of another library' in ended.errors


@pytest.mark.parametrize(
  ('argument', 'code', 'text'),
  [
    ('--num_clients=x', 2, 'Error: flag --num_clients=x'),
    ('--num_client=1', 2, "Error: Unknown command line flag 'num_client'"),
    (
      '--clients=1',
      2,
      "Error: Unknown command line flag 'clients'. Did you mean: num_clients ?",
    ),
    ('extra', 2, "Error: Only flags are taken, found 'extra'."),
    ('--help', 0, ''),
  ],
)
def test_arguments_that_are_no_flags_are_one_line(argument, code, text):
  ended = _run(argument)
  assert ended.code == code
  assert text in ended.errors
  assert len(ended.errors.splitlines()) <= 1


# A command that gets a Ctrl-C, whose exception is lost or becomes another one.
_INTERRUPTED = """
import os, signal, sys
from tasks.settings import command_line, interrupts


def main(argv):
  try:
    os.kill(os.getpid(), signal.SIGINT)
  except KeyboardInterrupt:
    if argv[1] == 'another':
      raise AttributeError('as TensorFlow makes of it')
    if argv[1] == 'error':
      return 1
  interrupts.check()


signal.signal(signal.SIGINT, signal.default_int_handler)
command_line.run(main)
"""


@pytest.mark.parametrize('way', ['lost', 'another', 'error'])
def test_a_ctrl_c_whose_exception_is_lost_ends_the_command(way):
  ended = train_command.run('-c', _INTERRUPTED, way)
  assert ended.code == 130
  assert ended.errors == ('' if way == 'error' else 'Interrupted.\n')
