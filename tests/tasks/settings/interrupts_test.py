"""Tests of a Ctrl-C while a program starts."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tasks.settings import interrupts

_ROOT = pathlib.Path(__file__).parents[3]

# Runs a module as in a terminal: a shell's own background jobs ignore Ctrl-C.
# Not by `preexec_fn`, which runs Python in a fork of TensorFlow's threads.
_START = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module(sys.argv[1], run_name='__main__')
"""


def test_the_handler_is_as_it_was_after_the_imports():
  # A shell's own background jobs ignore Ctrl-C.
  ours = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    before = signal.getsignal(signal.SIGINT)
    with interrupts.importing(), interrupts.importing():
      assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
  finally:
    signal.signal(signal.SIGINT, ours)


def test_a_signal_that_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with interrupts.importing():
      assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize('binary', ['train', 'sweep', 'reproduce'])
def test_a_ctrl_c_within_the_imports_ends_in_one_line(tmp_path, binary):
  # A module that takes long, in place of one that is imported first.
  (tmp_path / 'absl').mkdir()
  (tmp_path / 'absl' / '__init__.py').write_text(
    'import pathlib, time\n'
    f'pathlib.Path({str(tmp_path / "importing")!r}).touch()\n'
    'time.sleep(300)\n'
  )
  program = subprocess.Popen(
    [sys.executable, '-c', _START, f'tasks.{binary}'],
    cwd=_ROOT,
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
