"""Tests of the whole program of docs/inside_tff.md: killed, and run again."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tff_clipping import privacy

_ROOT = pathlib.Path(__file__).parents[2]
_SCRIPT = _ROOT / 'examples' / 'tff_program' / 'train.py'
_PAGE = _ROOT / 'docs' / 'inside_tff.md'


def _run(folder, *arguments):
  """Runs the script; returns its exit code and what it printed."""
  printed = folder.with_suffix('.txt')
  with open(printed, 'w') as file:
    program = subprocess.Popen(
      [sys.executable, _SCRIPT, folder, *arguments],
      env={**os.environ, 'PYTHONPATH': str(_ROOT)},
      # Not a pipe: TFF's worker keeps it open. It ends with the group.
      stdout=file,
      stderr=file,
      start_new_session=True,
    )
    try:
      return_code = program.wait()
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
      program.wait()
  return return_code, printed.read_text()


@pytest.mark.slow
def test_it_goes_on_in_another_context_after_a_kill_at_the_worst_moment(
  tmp_path,
):
  folder = tmp_path / 'run'
  return_code, _ = _run(folder, 'ours', '3')
  assert return_code == -signal.SIGKILL
  assert privacy.read_ledger(folder).num_releases == 3
  return_code, printed = _run(folder, 'tff')
  assert return_code == 0, printed
  (last,) = re.findall(r'^rounds .*$', printed, re.MULTILINE)
  assert last.startswith('rounds [1, 2, 3, 4, 5] ')
  assert last in _PAGE.read_text().splitlines()
  # The metrics of round 3 were not released before the kill.
  metrics = pd.read_csv(folder / 'metrics.csv')
  assert metrics['key'].tolist() == [1, 2, 4, 5]
  with np.load(folder / 'model.npz') as model:
    assert all(np.isfinite(weights).all() for weights in model.values())
