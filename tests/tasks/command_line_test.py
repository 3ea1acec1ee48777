"""Tests of what the commands have in common."""

import signal
import subprocess
import sys

import pytest
import tensorflow as tf
from absl import flags

from tasks import command_line, named_functions, train
from tests import processes
from tests.tasks import train_command

# A command that warns twice of one thing, and once of what is not ours, prints,
# and says how it went by its exit code.
_COMMAND = """
import sys, warnings
from absl import flags
from tasks import command_line

flags.DEFINE_integer('num_clients', 3, '')


class OurWarning(UserWarning):
  __module__ = 'tasks.test'


def main():
  for _ in range(2):
    warnings.warn('`num_clients` is small', OurWarning)
  warnings.warn('of another library')
  print('the clipping norm \\u2264 c')
  return flags.FLAGS.num_clients


command_line.run(main)
"""


def test_a_warning_is_a_line_and_stands_once():
  ended = processes.run_python('-c', _COMMAND)
  assert ended.code == 3
  assert ended.errors.count('is small') == 1
  assert 'Warning: --num_clients is small\n' in ended.errors
  assert 'UserWarning: of another library' in ended.errors


@pytest.mark.parametrize(
  ('argument', 'text'),
  [
    ('--num_clients=x', 'Error: flag --num_clients=x'),
    ('--num_client=1', "Error: Unknown command line flag 'num_client'"),
    ('extra', "Error: Only flags are taken, found 'extra'."),
  ],
)
def test_arguments_that_are_no_flags_are_one_line(argument, text):
  ended = processes.run_python('-c', _COMMAND, argument)
  assert ended.code == 2
  assert text in ended.errors
  assert len(ended.errors.splitlines()) == 1


@pytest.mark.parametrize(
  'redirected',
  ['', '>/dev/full', '| true', '>&- 2>&-', '2>/dev/full', '2>&-'],
)
def test_what_is_printed_ends_no_command_and_is_in_no_other_file(
  tmp_path, redirected
):
  # Its first file has a number that no stream has.
  program = _COMMAND.replace(
    'def main():',
    f"def main():\n  assert open('{tmp_path}/x', 'w').fileno() > 2",
  )
  ended = subprocess.run(
    [
      *('bash', '-o', 'pipefail', '-c', f'"$0" -c "$1" {redirected}'),
      *(sys.executable, program),
    ],
    cwd=train_command.ROOT,
    env=train_command.environment() | {'LC_ALL': 'C', 'PYTHONUTF8': '0'},
    stdout=subprocess.PIPE,
  )
  assert ended.returncode == 3
  if not redirected:
    assert b'norm \\u2264 c' in ended.stdout


_FAILING = """import tensorflow as tf

def shapes(x):
  return x[:, 5]

def values(x):
  return tf.gather(x, [7])

class Layer(tf.keras.layers.Layer):
  def call(self, x):
    return no_such_name

layer = Layer(name='mine')

def of_a_layer(x):
  return layer(x)
"""


@pytest.mark.parametrize(
  ('function', 'words'),
  [
    ('shapes', '{}, line 4: slice index 5 of dimension 1 out of bounds.'),
    ('values', 'GatherV2: {}, line 7: indices[0] = 7 is not in [0, 2)'),
    (
      'of_a_layer',
      "{}, line 11: name 'no_such_name' is not defined Call arguments received "
      "by layer 'mine' (type Layer): • x=tf.Tensor(shape=(2, 1), "
      'dtype=float32)',
    ),
  ],
)
def test_of_tensorflow_the_line_of_a_user_and_the_last_sentence_are_shown(
  tmp_path, capsys, function, words
):
  path = tmp_path / 'mine.py'
  path.write_text(_FAILING)
  failing = tf.function(named_functions.find('loss', f'{path}:{function}'))
  errors = (NameError, ValueError, tf.errors.InvalidArgumentError)
  with pytest.raises(errors) as caught:
    failing(tf.zeros([2, 1]))
  command_line.print_error(caught.value)
  assert capsys.readouterr().err == f'Error: {words.format(path)}\n'


@pytest.mark.parametrize(
  ('argument', 'flag'),
  [('bits', 'sum_bits'), ('address', 'runtime'), ('seed', 'seed')],
)
def test_an_argument_of_the_library_is_called_by_its_flag(
  capsys, monkeypatch, argument, flag
):
  values = flags.FlagValues()
  train.define_flags(values)
  monkeypatch.setattr(flags, 'FLAGS', values)
  command_line.print_error(ValueError(f'`{argument}` must be another.'))
  assert capsys.readouterr().err == f'Error: --{flag} must be another.\n'


# A command that gets a signal, whose exception is lost or becomes another one.
_INTERRUPTED = """
import os, signal, sys
from absl import flags
from tasks import command_line
from tff_clipping.interruption import Interrupted, shield

flags.DEFINE_string('way', None, '')
flags.DEFINE_integer('signum', None, '')


def main():
  try:
    os.kill(os.getpid(), flags.FLAGS.signum)
  except Interrupted:
    if flags.FLAGS.way == 'another':
      raise AttributeError('as TensorFlow makes of it')
    if flags.FLAGS.way == 'error':
      return 1
  with shield():
    pass


signal.signal(signal.SIGINT, signal.default_int_handler)
if '--way=ignored' in sys.argv:
  signal.signal(int(sys.argv[-1].partition('=')[2]), signal.SIG_IGN)
command_line.run(main)
"""


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('way', ['lost', 'another', 'error'])
def test_a_signal_whose_exception_is_lost_ends_the_command(way, signum):
  ended = processes.run_python(
    '-c', _INTERRUPTED, f'--way={way}', f'--signum={signum:d}'
  )
  assert ended.code == 128 + signum
  assert ended.errors == ('' if way == 'error' else 'Interrupted.\n')


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_command_is_to_ignore_does_not_end_it(signum):
  ended = processes.run_python(
    '-c', _INTERRUPTED, '--way=ignored', f'--signum={signum:d}'
  )
  assert (ended.code, ended.errors) == (0, '')


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
  processes.wait_for((tmp_path / 'importing').exists, program)
  program.send_signal(signal.SIGINT)
  _, errors = program.communicate(timeout=60)
  assert errors == 'Interrupted.\n'
  assert program.returncode == 130
