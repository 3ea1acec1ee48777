"""Tests of how runs end: each way has its message and its exit code."""

import json
import os
import shutil
import signal
import subprocess

import pandas as pd
import pytest

from tests import processes
from tests.privacy.ledgers import read_releases
from tests.tasks import train_command
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG

pytestmark = pytest.mark.slow

_FLAGS = FED_AVG | dict(num_rounds=3, local_steps=2, rounds_per_checkpoint=1)


def _start(output_dir, cache_dir, **changes):
  return train_command.start(
    {**_FLAGS, **changes, 'output_dir': output_dir, 'cache_dir': cache_dir},
    env={**os.environ, 'OMP_NUM_THREADS': '1'},
  )


def _train(output_dir, cache_dir, **changes):
  return train_command.finish(_start(output_dir, cache_dir, **changes))


def test_divergence(tmp_path, cache_dir):
  code, output, errors = _train(
    tmp_path / 'run', cache_dir, client_learning_rate=3e38
  )
  assert code == 3, errors
  assert 'not finite after round 2' in output
  assert errors == ''
  result = json.loads((tmp_path / 'run' / 'result.json').read_text())
  assert result['reason'] == 'diverged'
  assert result['round_num'] == 1


def test_a_spent_budget(tmp_path, cache_dir):
  folder = tmp_path / 'run'
  assert _train(folder, cache_dir, **DP_FED_AVG)[0] == 0
  ledger = (folder / 'ledger.jsonl').read_bytes()
  last = max((folder / 'checkpoints').iterdir())
  # Without its outcomes the run does not go on, and nothing is charged.
  shutil.copytree(folder / 'checkpoints', tmp_path / 'kept')
  shutil.rmtree(folder / 'checkpoints')
  code, _, errors = _train(folder, cache_dir, **DP_FED_AVG)
  assert code == 5
  assert 'no outcome of them is left' in errors
  assert len(errors.splitlines()) == 1
  # With an older one a round would be a new draw, for which nothing is left.
  shutil.rmtree(folder / 'checkpoints')
  shutil.copytree(tmp_path / 'kept', folder / 'checkpoints')
  last.unlink()
  code, output, errors = _train(folder, cache_dir, **DP_FED_AVG)
  assert code == 4, errors
  assert 'The budget is spent: 2 releases' in output
  assert errors == ''
  assert (folder / 'ledger.jsonl').read_bytes() == ledger

  # A damaged ledger is another failure, in one line.
  (folder / 'ledger.jsonl').write_bytes(ledger[:50] + b'#' + ledger[51:])
  code, _, errors = _train(folder, cache_dir, **DP_FED_AVG)
  assert code == 5
  assert 'ledger.jsonl is damaged' in errors
  assert len(errors.splitlines()) == 1


def test_sigterm_and_a_damaged_checkpoint(tmp_path, cache_dir):
  folder = tmp_path / 'run'
  process = _start(folder, cache_dir, num_rounds=400, rounds_per_checkpoint=3)
  with processes.ended_at_last(process):
    train_command.wait_for_round(process, folder, 5)
    process.send_signal(signal.SIGTERM)
    code, output, errors = train_command.finish(process)
  assert code == 143, errors
  assert 'Stopped by SIGTERM after round' in output
  assert errors == ''
  assert not (folder / 'result.json').exists()
  checkpoints = sorted((folder / 'checkpoints').iterdir())
  done = int(checkpoints[-1].stem.split('_')[-1])
  assert pd.read_csv(folder / 'metrics.csv')['round_num'].max() == done

  for checkpoint in checkpoints:
    checkpoint.write_bytes(b'')
  code, _, errors = _train(
    folder, cache_dir, num_rounds=400, rounds_per_checkpoint=3
  )
  assert code == 5
  assert f'{checkpoints[-1].name} is damaged' in errors
  assert len(errors.splitlines()) == 1


_LITTLE_NOISE = """
from tff_clipping import aggregators

def create(clipping_norm, plan):
  return aggregators.dp_mean_factory(
    clipping_norm=clipping_norm,
    noise_multiplier=0.5 * plan.noise_multiplier,
    clients_per_round=plan.clients_per_round,
  )
"""


def test_an_own_aggregator_with_too_little_noise(tmp_path, cache_dir):
  (tmp_path / 'mine.py').write_text(_LITTLE_NOISE)
  code, _, errors = _train(
    tmp_path / 'run',
    cache_dir,
    **DP_FED_AVG,
    aggregator=f'{tmp_path}/mine.py:create',
  )
  assert code == 1
  assert errors.startswith('Error: --aggregator must have')
  assert '--noise_multiplier' in errors
  assert len(errors.splitlines()) == 1
  ledger = tmp_path / 'run' / 'ledger.jsonl'
  assert not ledger.exists() or not read_releases(ledger)


def test_a_full_disk(tmp_path, cache_dir):
  with processes.mounted(tmp_path / 'disk', 'size=2m') as disk:
    # A checkpoint of the model and its last update takes 1.3 MB: one fits.
    code, _, errors = _train(disk / 'run', cache_dir)
    assert code == 5
    assert 'The checkpoint of round 1 could not be written' in errors
    assert 'No space left on device' in errors
    assert len(errors.splitlines()) == 1
    subprocess.run(['mount', '-o', 'remount,size=8m', str(disk)], check=True)
    code, output, errors = _train(disk / 'run', cache_dir)
    assert code == 0, errors
    assert 'Finished 3 rounds' in output
    metrics = pd.read_csv(disk / 'run' / 'metrics.csv')
    assert metrics['round_num'].tolist() == [0, 1, 2, 3]


def test_a_folder_that_cannot_be_written(tmp_path, cache_dir):
  (tmp_path / 'file').write_text('')
  code, _, errors = _train(tmp_path / 'file' / 'run', cache_dir)
  assert code == 2
  assert '--output_dir must be a folder that can be written' in errors
  assert len(errors.splitlines()) == 1
  with processes.mounted(tmp_path / 'disk', 'ro') as disk:
    code, _, errors = _train(disk / 'run', cache_dir)
    assert code == 2
    assert 'Read-only file system' in errors
    assert len(errors.splitlines()) == 1
    # Nor a cache that cannot be.
    code, _, errors = _train(tmp_path / 'run', disk)
    assert code == 5
    assert 'Read-only file system' in errors
    assert len(errors.splitlines()) == 1
