"""Tests of the benchmark of hosts that are lost, without hosts."""

import subprocess
import sys

import pytest

# In a program of its own: benchmarks have flags of the same names.
_PROGRAM = """
import signal
import subprocess

from benchmarks import hosts


def refuse(*command):
  raise subprocess.CalledProcessError(
    1, command, stderr='Operation not permitted\\n'
  )


hosts.shutil.which = lambda name: {has_programs} or None
hosts._run = refuse
hosts.main([])
"""


@pytest.mark.parametrize(
  ('has_programs', 'reason'),
  [
    (False, 'Skipped: there is no `ip`'),
    (True, 'Skipped: network namespaces cannot be made here (Operation not'),
  ],
)
def test_it_is_skipped_with_a_word(has_programs, reason):
  program = _PROGRAM.format(has_programs=has_programs)
  result = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert result.stdout.startswith(reason)
