"""Tests of signals at a safe moment."""

import os
import signal
import sys

import pytest

from tests import processes
from tff_clipping.interruption import (
  Interrupted,
  Interruption,
  shield,
)


@pytest.mark.parametrize(
  ('signum', 'exit_code'),
  [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_is_raised_with_its_exit_code(signum, exit_code):
  interruption = Interruption()
  # The tests themselves may run under nohup, or behind a shell's `&`.
  with (
    processes.handled_by(signum, signal.default_int_handler),
    pytest.raises(Interrupted) as e,
    interruption.catch(),
  ):
    os.kill(os.getpid(), signum)
  assert e.value.exit_code == exit_code


def test_a_program_under_nohup_does_not_end_with_its_terminal():
  with (
    processes.handled_by(signal.SIGHUP, signal.SIG_IGN),
    Interruption().catch(),
  ):
    os.kill(os.getpid(), signal.SIGHUP)


def test_a_shielded_body_finishes_first():
  done = []
  with pytest.raises(Interrupted), Interruption().catch():
    with shield():
      with shield():
        os.kill(os.getpid(), signal.SIGTERM)
        done.append('inner')
      done.append('outer')
    done.append('never')
  assert done == ['inner', 'outer']


def test_a_signal_whose_exception_was_lost_is_raised_after_the_next_shield():
  interruption = Interruption()
  assert interruption.arrived is None
  done = []
  with pytest.raises(Interrupted), interruption.catch():
    try:
      os.kill(os.getpid(), signal.SIGTERM)
    except Interrupted:
      done.append('lost')
    assert interruption.arrived.exit_code == 143
    with shield():
      done.append('shielded')
    done.append('never')
  assert done == ['lost', 'shielded']


def test_handlers_are_restored():
  before = signal.getsignal(signal.SIGINT)
  interruption = Interruption()
  with interruption.catch():
    assert signal.getsignal(signal.SIGINT) != before
  assert signal.getsignal(signal.SIGINT) == before
  # A shield holds nothing back then, nor raises what arrived before.
  interruption.arrived = Interrupted(signal.SIGINT)
  with shield():
    pass


def test_a_signal_in_a_destructor_is_raised_later_and_not_reported():
  class Resource:
    def __del__(self):
      os.kill(os.getpid(), signal.SIGTERM)

  reported, before = [], sys.unraisablehook
  sys.unraisablehook = reported.append
  try:
    with pytest.raises(Interrupted), Interruption().catch():
      resource = Resource()
      del resource
      with shield():
        pass
  finally:
    sys.unraisablehook = before
  assert reported == []
