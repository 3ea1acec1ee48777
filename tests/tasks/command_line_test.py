"""Tests of what the commands have in common."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.tasks import train_command

# A command that warns twice of one thing, and once of what is not ours.
_COMMAND = """
import warnings
from absl import flags
from tasks import command_line
from tasks.running import clipping_norm

flags.DEFINE_integer('num_clients', 3, '')


def main(argv):
  for _ in range(2):
    warnings.warn('`num_clients` is small', clipping_norm.ClippingNormWarning)
  warnings.warn('of another library')
  return flags.FLAGS.num_clients


command_line.run(main)
"""


@pytest.mark.slow
def test_a_warning_is_a_line_and_stands_once():
  ended = train_command.run('-c', _COMMAND)
  assert ended.code == 3
  assert ended.errors.count('is small') == 1
  assert 'Warning: --num_clients is small\n' in ended.errors
  assert 'UserWarning: of another library' in ended.errors


# What prints, and says how it went by its exit code.
_PRINTS = """
import sys
from absl import flags
from tasks import command_line

flags.DEFINE_integer('num_clients', 3, '')


def main(argv):
  for _ in range(5000):
    print('the clipping norm \\u2264 c')
    print('an error', file=sys.stderr)
  sys.stdout.flush()
  return flags.FLAGS.num_clients


command_line.run(main)
"""


@pytest.mark.parametrize(
  ('argument', 'text'),
  [
    ('--num_clients=x', 'Error: flag --num_clients=x'),
    ('--num_client=1', "Error: Unknown command line flag 'num_client'"),
    ('extra', "Error: Only flags are taken, found 'extra'."),
  ],
)
def test_arguments_that_are_no_flags_are_one_line(argument, text):
  ended = train_command.run('-c', _PRINTS, argument)
  assert ended.code == 2
  assert text in ended.errors
  assert len(ended.errors.splitlines()) == 1


@pytest.mark.parametrize(
  'redirected', ['>/dev/full', '| true', '>&- 2>&-', '2>/dev/full', '2>&-']
)
def test_what_is_printed_ends_no_command(redirected):
  # The code of the command itself, whatever reads from it.
  script = f'("$0" -c "$1"; echo $? >&3) {redirected}'
  with open(os.devnull) as nothing:
    reader, writer = os.pipe()
    subprocess.run(
      ['bash', '-c', f'exec 3>&{writer}; {script}', sys.executable, _PRINTS],
      cwd=train_command.ROOT,
      env=train_command.environment() | {'LC_ALL': 'C', 'PYTHONUTF8': '0'},
      stdin=nothing,
      stdout=subprocess.DEVNULL,
      pass_fds=[writer],
      check=False,
    )
    os.close(writer)
    with os.fdopen(reader) as read:
      assert read.read().strip() == '3'


# A command that gets a Ctrl-C, whose exception is lost or becomes another one.
_INTERRUPTED = """
import os, signal, sys
from absl import flags
from tasks import command_line

flags.DEFINE_string('way', None, '')


def main(argv):
  try:
    os.kill(os.getpid(), signal.SIGINT)
  except KeyboardInterrupt:
    if flags.FLAGS.way == 'another':
      raise AttributeError('as TensorFlow makes of it')
    if flags.FLAGS.way == 'error':
      return 1
  command_line.check_interrupted()


signal.signal(signal.SIGINT, signal.default_int_handler)
command_line.run(main)
"""


@pytest.mark.parametrize('way', ['lost', 'another', 'error'])
def test_a_ctrl_c_whose_exception_is_lost_ends_the_command(way):
  ended = train_command.run('-c', _INTERRUPTED, f'--way={way}')
  assert ended.code == 130
  assert ended.errors == ('' if way == 'error' else 'Interrupted.\n')


# Runs a module as in a terminal: a shell's own background jobs ignore Ctrl-C.
# Not by `preexec_fn`, which runs Python in a fork of TensorFlow's threads.
_START = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)
runpy.run_module(module, run_name='__main__', alter_sys=True)
"""


@pytest.mark.parametrize('binary', ['train', 'sweep', 'reproduce'])
def test_a_ctrl_c_within_the_imports_ends_in_one_line(tmp_path, binary):
  # A module that takes long, in place of TensorFlow.
  for name in ('tensorflow', 'tensorflow_federated'):
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text(
      'import pathlib, time\n'
      f'pathlib.Path({str(tmp_path / "importing")!r}).touch()\n'
      'time.sleep(300)\n'
    )
  program = subprocess.Popen(
    [
      *(sys.executable, '-c', _START, f'tasks.{binary}'),
      '--flagfile=tasks/flagfiles/demo/fed_avg.flags',
      f'--output_dir={tmp_path / "run"}',
    ],
    cwd=train_command.ROOT,
    env={'PYTHONPATH': str(tmp_path)},
    stderr=subprocess.PIPE,
    text=True,
  )
  while not (tmp_path / 'importing').exists() and program.poll() is None:
    time.sleep(0.02)
  program.send_signal(signal.SIGINT)
  _, errors = program.communicate(timeout=60)
  assert errors == 'Interrupted.\n'
  assert program.returncode == 130
