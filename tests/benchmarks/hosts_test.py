"""Tests of the benchmark of hosts that are lost, without hosts."""

import subprocess
import sys

import pytest

# In a program of its own: benchmarks have flags of the same names.
_PROGRAM = """
import subprocess

from absl import app
from benchmarks import host_network, hosts


def refuse(*command, environment=None):
  raise subprocess.CalledProcessError(
    1, command, stderr='Operation not permitted\\n'
  )


host_network.shutil.which = lambda name: {has_programs} or None
host_network.run = refuse
app.run(hosts.main)
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


def test_a_scenario_that_there_is_not_is_named():
  program = (
    'from absl import app; from benchmarks import hosts; app.run(hosts.main)'
  )
  result = subprocess.run(
    [sys.executable, '-c', program, '--scenarios=flood,head_lost'],
    capture_output=True,
    text=True,
  )
  assert result.returncode != 0
  assert 'must be of undisturbed, ' in result.stderr + result.stdout
  assert 'got flood.' in result.stderr + result.stdout
