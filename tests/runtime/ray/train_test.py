"""Tests of `tasks.train --runtime=ray`, as a user runs it."""

import json
import os
import signal
import time

import pandas as pd
import pytest

from tests import processes
from tests.tasks import train_command
from tests.tasks.small_runs import FED_AVG

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_FLAGS = FED_AVG | dict(
  num_rounds=4,
  # About a second for each round, to be killed in.
  local_steps=400,
  batch_size=10,
  client_learning_rate=0.01,
  rounds_per_checkpoint=2,
  sampling_seed=3,
)
_DP = {
  'algorithm': 'dp_fed_avg',
  'clipping_norm': 0.3,
  'target_epsilon': 8,
  'target_delta': 1e-3,
}
_CE = {'algorithm': 'ce_fed_avg', 'clipping_norm': 0.3}
# Clients keep something, which travels with them.
_SCAFFOLD = {'local_step': 'scaffold'}
_RAY = {'runtime': 'ray', 'num_workers': 2}


def _start(output_dir, cache_dir, **settings):
  folders = dict(output_dir=output_dir, cache_dir=cache_dir)
  return train_command.start({**_FLAGS, **settings, **folders})


def _finish(process, code=0):
  """Returns what a run has printed on the standard error."""
  ended = train_command.finish(process)
  assert ended.code == code, ended
  return ended.errors


def _wait_for_round(process, output_dir, round_num):
  """Waits until a round has ended, and is in the midst of the next one."""
  train_command.wait_for_round(process, output_dir, round_num)
  time.sleep(0.3)


def _metrics(output_dir):
  return pd.read_csv(output_dir / 'metrics.csv').drop(columns='round_seconds')


def _state(output_dir):
  """Returns the arrays of the last checkpoint, each as its type and bytes."""
  (path,) = (output_dir / 'checkpoints').glob('*_round_4.state')
  header, _, data = path.read_bytes().partition(b'\n')
  # Without the checksum, which is of the header too, with its random id.
  return json.loads(header)['arrays'], data[:-4]


def _assert_equal(folder, other):
  pd.testing.assert_frame_equal(
    _metrics(folder), _metrics(other), check_exact=True
  )
  assert _state(folder) == _state(other)


def _num_releases(output_dir):
  lines = (output_dir / 'ledger.jsonl').read_text().splitlines()
  return [json.loads(x)['kind'] for x in lines].count('release')


def test_a_private_run_that_loses_a_worker(tmp_path, cache_dir):
  process = _start(tmp_path / 'ray', cache_dir, **_DP, **_RAY)
  with processes.ended_at_last(process):
    _wait_for_round(process, tmp_path / 'ray', 1)
    started = processes.descendants(process.pid)
    workers = [
      p.pid for p in started if 'ray::Worker' in processes.command(p.pid)
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    errors = _finish(process)
  # Each round is released and charged once.
  assert _num_releases(tmp_path / 'ray') == 4
  # The warning names the node; Ray itself prints nothing.
  (line,) = errors.strip().splitlines()
  assert 'Lost the worker on node 127.0.0.1' in line
  assert f'process {workers[0]}' in line
  processes.wait_until_ended(started)


def test_a_run_goes_on_in_another_runtime(tmp_path, cache_dir):
  run = {**_CE, **_SCAFFOLD}
  _finish(_start(tmp_path / 'here', cache_dir, **run, **_RAY))
  process = _start(tmp_path / 'both', cache_dir, **run, **_RAY)
  with processes.ended_at_last(process):
    _wait_for_round(process, tmp_path / 'both', 1)
    started = processes.descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    assert _finish(process, code=143) == ''
  processes.wait_until_ended(started)
  # In one process, with the shards that the run has.
  _finish(_start(tmp_path / 'both', cache_dir, **run))
  _assert_equal(tmp_path / 'both', tmp_path / 'here')


def test_a_cluster_that_is_not_there_is_one_line(tmp_path, cache_dir):
  process = _start(tmp_path / 'run', cache_dir, **_CE, runtime='127.0.0.1:1')
  errors = _finish(process, code=1).strip().splitlines()
  assert len(errors) == 1
  assert 'No Ray cluster answers at 127.0.0.1:1' in errors[0]
