"""Tests of the training binary, as a user runs it."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios

import pandas as pd
import pytest

from tests import processes
from tests.tasks import train_command
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG

_FLAGS = FED_AVG | dict(local_steps=3, update_rounds='0,1')


def _flags(output_dir, cache_dir, **changes):
  folders = dict(output_dir=output_dir, cache_dir=cache_dir)
  return {**_FLAGS, **changes, **folders}


def _train(output_dir, cache_dir, **changes):
  flags = _flags(output_dir, cache_dir, **changes)
  return train_command.finish(train_command.start(flags))


def _assert_refused(ended, *words):
  assert ended.code == 2, ended.errors
  lines = ended.errors.strip().splitlines()
  assert len(lines) == 1, ended.errors
  for word in words:
    assert word in lines[0]


@pytest.mark.slow
def test_a_terminal_shows_the_rounds_and_none_of_a_finished_run(
  tmp_path, cache_dir
):
  def shown():
    master, terminal = pty.openpty()
    size = struct.pack('HHHH', 24, 80, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    with (
      open(tmp_path / 'output', 'w') as output,
      train_command.start(
        _flags(tmp_path / 'run', cache_dir), stdout=output, stderr=terminal
      ) as program,
    ):
      os.close(terminal)
      text = b''
      # Reading fails once nobody is at the other end.
      with contextlib.suppress(OSError):
        while found := os.read(master, 4096):
          text += found
    os.close(master)
    assert program.returncode == 0
    assert 'Finished 2 rounds' in (tmp_path / 'output').read_text()
    return text.decode()

  assert '2/2' in shown()
  assert '%' not in shown()


@pytest.mark.slow
def test_two_rounds_of_each_algorithm(tmp_path, cache_dir):
  fed_avg = _train(tmp_path / 'fed_avg', cache_dir)
  assert fed_avg.code == 0, fed_avg.errors
  assert 'Finished 2 rounds' in fed_avg.output
  # TensorFlow's start-up messages do not reach the terminal.
  assert fed_avg.errors == ''
  ce = _train(
    tmp_path / 'ce',
    cache_dir,
    algorithm='ce_fed_avg',
    clipping_norm_from=tmp_path / 'fed_avg',
  )
  assert ce.code == 0, ce.errors
  dp = _train(
    tmp_path / 'dp',
    cache_dir,
    **DP_FED_AVG | dict(clipping_norm=None),
    clipping_norm_from=tmp_path / 'fed_avg',
  )
  assert dp.code == 0, dp.errors

  first = pd.read_csv(tmp_path / 'fed_avg' / 'metrics.csv')
  assert first['round_num'].tolist() == [0, 1, 2]
  assert first['test_accuracy'].between(0, 1).all()
  updates = pd.read_csv(tmp_path / 'fed_avg' / 'updates' / 'round_00001.csv')
  assert len(updates) == 8 + 1
  config = json.loads((tmp_path / 'ce' / 'config.json').read_text())
  norms = first['update_norm_mean'][1:]
  assert config['experiment']['clipping_norm'] == pytest.approx(
    0.5 * norms.mean()
  )
  assert 'not in any epsilon' in config['clipping_norm_source']['exact']
  clipped = pd.read_csv(tmp_path / 'ce' / 'metrics.csv')['clipped_fraction']
  assert clipped[1:].gt(0.5).all()

  plan = json.loads((tmp_path / 'dp' / 'privacy.json').read_text())
  assert plan['noise_multiplier'] > 0
  assert plan['epsilon'] <= 8
  assert "exact figure of the clients' data" in plan['caveats'][0]
  private = pd.read_csv(tmp_path / 'dp' / 'metrics.csv')
  # Nothing exact of the clients leaves a private run.
  assert private['update_norm_mean'].isna().all()
  assert private['num_clients'][1:].isna().all()
  assert not (tmp_path / 'dp' / 'updates').exists()
  assert private['epsilon'][2] == pytest.approx(plan['epsilon'])
  ledger = (tmp_path / 'dp' / 'ledger.jsonl').read_text().splitlines()
  releases = [x for x in map(json.loads, ledger) if x['kind'] == 'release']
  assert len(releases) == 2

  # Other data would be noticed.
  assert re.fullmatch('[0-9a-f]{64}', config['task']['digest'])

  # Another configuration in the same folder is refused with the difference.
  before = (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes()
  other = _train(tmp_path / 'fed_avg', cache_dir, local_steps=4)
  _assert_refused(other, '--output_dir', 'local_steps was 3 and is 4')
  assert (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes() == before


def test_a_folder_with_other_files_is_left_alone(tmp_path, cache_dir):
  (tmp_path / 'thesis.tex').write_text('x')
  result = _train(tmp_path, cache_dir)
  _assert_refused(result, '--output_dir', 'thesis.tex')
  assert {p.name for p in tmp_path.iterdir()} <= {'thesis.tex', '.lock'}


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_with_a_checkpoint_to_go_on_from(
  tmp_path, cache_dir
):
  long = dict(num_rounds=400, rounds_per_checkpoint=1000)
  process = train_command.start(_flags(tmp_path / 'run', cache_dir, **long))
  with processes.ended_at_last(process):
    train_command.wait_for_round(process, tmp_path / 'run', 5)
    process.send_signal(signal.SIGINT)
    code, output, errors = train_command.finish(process)
  assert code == 130, errors
  assert errors == ''
  assert 'the same command continues' in output
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  done = metrics['round_num'].iloc[-1]
  assert metrics['round_num'].tolist() == list(range(done + 1))
  assert [*(tmp_path / 'run' / 'checkpoints').glob(f'*_round_{done}.state')]
