"""A test of the script that chooses settings by private runs."""

import re
import runpy
import signal
import sys
import types

import numpy as np
import pytest

from tasks import own_run
from tests import processes
from tests.tasks import train_command, your_own_page
from tff_clipping.interruption import Interrupted

_SCRIPT = train_command.ROOT / 'examples' / 'tuning' / 'tune.py'


def test_ctrl_c_ends_all_tries(tmp_path, monkeypatch):
  np.savez(tmp_path / 'mine.npz', client=np.arange(40))
  stopped = types.SimpleNamespace(interrupted=Interrupted(signal.SIGINT))
  monkeypatch.setattr(own_run, 'train', lambda **settings: stopped)
  with pytest.raises(SystemExit) as ended:
    runpy.run_path(str(_SCRIPT))['main'](tmp_path / 'mine.npz', '', tmp_path)
  assert ended.value.code == 130


def test_the_command_of_its_docstring_finds_the_trainer():
  (command,) = re.findall(r'^  python (.*)$', _SCRIPT.read_text(), re.MULTILINE)
  ended = processes.run_python(*command.split(), PYTHONPATH='')
  # There is no such file here.
  assert ended.errors.splitlines()[-1].endswith("directory: 'mine.npz'")


@pytest.mark.slow
def test_what_the_tries_cost_is_within_the_budget(tmp_path):
  your_own_page.write_files(tmp_path)
  train_command.run_in(tmp_path, sys.executable, 'make_data.py')
  printed = train_command.run_in(
    tmp_path,
    *(sys.executable, _SCRIPT),
    *('mine.npz', 'mine.py:create_model', 'tuning'),
  ).output
  (alone,) = re.findall(r'last run alone would be epsilon (\S+)', printed)
  (together,) = re.findall(r'with the 4 tries it is (\S+)', printed)
  assert float(alone) < float(together)
  # All rounds together are the plan of 8, but for two digits.
  assert float(together) == pytest.approx(8, abs=0.02)
