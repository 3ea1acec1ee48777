"""Runs the budget calculator, in this process or as a user does."""

import json
import os
import pathlib
import subprocess
import sys

from tff_clipping.privacy.calculator import budget_main, ledger_main

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = {
  budget_main: 'tff-clipping-budget',
  ledger_main: 'tff-clipping-ledger',
}
PAPER = (
  '--num_clients=1920',
  '--clients_per_round=80',
  '--target_delta=1e-5',
)
# Cheap to compute: one round only.
ONE_ROUND = (*PAPER, '--num_rounds=1', '--noise_multiplier=3')


def run_here(capsys, *arguments, main=budget_main):
  """Runs a command in this process; returns exit code, stdout, stderr."""
  code = main.run([COMMANDS[main], *arguments])
  captured = capsys.readouterr()
  return code, captured.out, captured.err


def check_refused(capsys, message, *arguments, main=budget_main):
  """Holds that a wrong question is one line and the exit code 2."""
  code, out, err = run_here(capsys, *arguments, main=main)
  assert (code, out) == (2, '')
  assert message in err
  assert err.startswith(f'{COMMANDS[main]}: ')
  assert len(err.splitlines()) == 1
  assert '`' not in err


# Runs the command and prints the most memory that it had, in KB. Not by
# `resource`, which counts the process that started this one.
PEAK = """
import sys
from tff_clipping.privacy.calculator import budget_main
code = budget_main.run()
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(status['VmHWM'].split()[0])
sys.exit(code)
"""


def run_process(*arguments, reports_peak=False, **options):
  """Runs the command as a user does."""
  program = ['-m', 'tff_clipping.privacy.calculator.budget_main']
  if reports_peak:
    program = ['-c', PEAK]
  return subprocess.run(
    [sys.executable, *program, *arguments],
    text=True,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    check=False,
    **{'capture_output': True, **options},
  )


def ask(capsys, *arguments):
  """Returns the JSON of an answer that comes without a word on stderr."""
  code, out, err = run_here(capsys, *arguments, '--format=json')
  assert (code, err) == (0, '')
  return json.loads(out)
