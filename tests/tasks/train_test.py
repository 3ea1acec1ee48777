"""Tests of the training binary: what it prints, its files and exit codes."""

import contextlib
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios

import pandas as pd
import pytest

from tasks import config
from tasks.running import run
from tests import processes
from tests.privacy.ledgers import read_releases
from tests.tasks import train_command
from tests.tasks.small_runs import DP_FED_AVG, FED_AVG, read_json, run_small

_FLAGS = FED_AVG | dict(update_rounds='0,1')


def _flags(output_dir, cache_dir, **changes):
  folders = dict(output_dir=output_dir, cache_dir=cache_dir)
  return {**_FLAGS, **changes, **folders}


def _train(output_dir, cache_dir, **changes):
  flags = _flags(output_dir, cache_dir, **changes)
  return train_command.Fork(flags).communicate()


def _assert_fails(ended, code, *words):
  assert ended.code == code, ended.errors
  (line,) = ended.errors.splitlines()
  for word in words:
    assert word in line


@pytest.mark.slow
def test_two_rounds_and_two_with_a_norm_from_them(tmp_path, cache_dir):
  flags = _flags(tmp_path / 'fed_avg', cache_dir)
  fed_avg = train_command.finish(train_command.start(flags))
  assert fed_avg.code == 0, fed_avg.errors
  assert 'Finished 2 rounds' in fed_avg.output
  # TensorFlow's start-up messages do not reach the terminal.
  assert fed_avg.errors == ''
  run_small(
    FED_AVG
    | dict(
      algorithm='ce_fed_avg', clipping_norm_from=str(tmp_path / 'fed_avg')
    ),
    tmp_path / 'ce',
    cache_dir,
  )

  first = pd.read_csv(tmp_path / 'fed_avg' / 'metrics.csv')
  assert first['round_num'].tolist() == [0, 1, 2]
  assert first['test_accuracy'].between(0, 1).all()
  updates = pd.read_csv(tmp_path / 'fed_avg' / 'updates' / 'round_00001.csv')
  assert len(updates) == 8 + 1
  config = read_json(tmp_path / 'ce' / 'config.json')
  norms = first['update_norm_mean'][1:]
  assert config['experiment']['clipping_norm'] == pytest.approx(
    0.5 * norms.mean()
  )
  assert 'not in any epsilon' in config['clipping_norm_source']['exact']
  clipped = pd.read_csv(tmp_path / 'ce' / 'metrics.csv')['clipped_fraction']
  assert clipped[1:].gt(0.5).all()
  # Other data would be noticed.
  assert re.fullmatch('[0-9a-f]{64}', config['task']['digest'])

  # Another configuration in the same folder is refused with the difference.
  before = (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes()
  # It ends before TFF has our context, and prints nothing behind its line.
  other = train_command.finish(train_command.start(flags | {'local_steps': 4}))
  _assert_fails(other, 2, '--output_dir', 'local_steps was 1 and is 4')
  assert (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes() == before


@pytest.mark.parametrize(
  ('rounds', 'said'),
  [
    (['0.5,1.0', 'nan,nan'], ' Test mae: 0.5.'),
    (['0.5,1.0', 'nan,1.0', 'nan,nan'], ' Test mae: nan.'),
    (['nan,nan'], ''),
  ],
)
def test_the_last_evaluation_is_told_also_where_it_is_nan(
  tmp_path, rounds, said
):
  lines = ['test_mae,test_loss', *rounds, '']
  (tmp_path / 'metrics.csv').write_text('\n'.join(lines))
  settings = FED_AVG | dict(loss='mse', metrics=('mae',))
  asked = config.Config(**settings, output_dir=str(tmp_path))
  assert run.describe_test(asked) == said


@pytest.mark.slow
def test_a_terminal_shows_the_rounds_and_none_of_a_finished_run(
  tmp_path, cache_dir
):
  def shown():
    master, terminal = pty.openpty()
    size = struct.pack('HHHH', 24, 80, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    program = train_command.Fork(
      _flags(tmp_path / 'run', cache_dir), terminal=os.ttyname(terminal)
    )
    # Open until the program has it: reading would fail before.
    processes.wait_for(program.output.exists, program)
    os.close(terminal)
    text = b''
    # Reading fails once nobody is at the other end.
    with contextlib.suppress(OSError):
      while found := os.read(master, 4096):
        text += found
    os.close(master)
    assert program.wait() == 0, text
    assert 'Finished 2 rounds' in program.output.read_text()
    return text.decode()

  assert '2/2' in shown()
  assert '%' not in shown()


@pytest.mark.slow
def test_signals_end_a_run_with_a_checkpoint_to_go_on_from(tmp_path, cache_dir):
  folder = tmp_path / 'run'
  done = 0
  for signum, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
    # A process of its own, which ends as a user's does.
    process = train_command.start(
      _flags(folder, cache_dir, num_rounds=1000, rounds_per_checkpoint=1000)
    )
    with processes.ended_at_last(process):
      train_command.wait_for_round(process, folder, done + 3)
      process.send_signal(signum)
      ended = train_command.finish(process)
    assert ended.code == code, ended.errors
    assert ended.errors == ''
    assert f'Stopped by {signum.name} after round' in ended.output
    assert 'the same command continues' in ended.output
    assert not (folder / 'result.json').exists()
    rounds = pd.read_csv(folder / 'metrics.csv')['round_num'].tolist()
    done = rounds[-1]
    assert rounds == list(range(done + 1))
    assert [*(folder / 'checkpoints').glob(f'*_round_{done}.state')]


@pytest.mark.slow
def test_divergence(tmp_path, cache_dir):
  code, output, errors = _train(
    tmp_path / 'run',
    cache_dir,
    num_rounds=3,
    local_steps=2,
    client_learning_rate=3e38,
  )
  assert code == 3, errors
  assert 'not finite after round 2' in output
  assert errors == ''
  # The aggregates of both rounds were dropped: the model before them is kept.
  assert 'The state after round 0 is kept' in output
  result = read_json(tmp_path / 'run' / 'result.json')
  assert (result['reason'], result['round_num']) == ('diverged', 0)


@pytest.mark.slow
def test_a_spent_budget(tmp_path, cache_dir):
  folder = tmp_path / 'run'
  run_small(DP_FED_AVG, folder, cache_dir)
  ledger = (folder / 'ledger.jsonl').read_bytes()
  last = max((folder / 'checkpoints').iterdir())
  # Without its outcomes the run does not go on, and nothing is charged.
  shutil.copytree(folder / 'checkpoints', tmp_path / 'kept')
  shutil.rmtree(folder / 'checkpoints')
  private = DP_FED_AVG | dict(update_rounds=None)
  ended = _train(folder, cache_dir, **private)
  adds = 'in a new --output_dir, whose epsilon adds to that of this run.'
  _assert_fails(ended, 5, 'no outcome of them is left', adds)
  # With an older one a round would be a new draw, for which nothing is left.
  shutil.rmtree(folder / 'checkpoints')
  shutil.copytree(tmp_path / 'kept', folder / 'checkpoints')
  last.unlink()
  code, output, errors = _train(folder, cache_dir, **private)
  assert code == 4, errors
  assert 'The budget is spent: 2 releases' in output
  assert errors == ''
  assert (folder / 'ledger.jsonl').read_bytes() == ledger

  # Without a whole outcome, or with a damaged ledger, it fails in one line.
  for outcome in (folder / 'checkpoints').glob('*.state'):
    outcome.write_bytes(b'')
  ended = _train(folder, cache_dir, **private)
  _assert_fails(ended, 5, f'{outcome.name} is damaged')
  (folder / 'ledger.jsonl').write_bytes(ledger[:50] + b'#' + ledger[51:])
  ended = _train(folder, cache_dir, **private)
  _assert_fails(ended, 5, 'ledger.jsonl is damaged')


_LITTLE_NOISE = """
from tff_clipping import aggregators

def create(clipping_norm, plan):
  return aggregators.dp_mean_factory(
    clipping_norm=clipping_norm,
    noise_multiplier=0.5 * plan.noise_multiplier,
    clients_per_round=plan.clients_per_round,
  )
"""


@pytest.mark.slow
def test_an_own_aggregator_with_too_little_noise(tmp_path, cache_dir):
  (tmp_path / 'mine.py').write_text(_LITTLE_NOISE)
  aggregator = f'{tmp_path}/mine.py:create'
  flags = _flags(
    tmp_path / 'run', cache_dir, **DP_FED_AVG, aggregator=aggregator
  )
  # A process of its own: nothing follows the line as the interpreter ends.
  ended = train_command.finish(train_command.start(flags))
  _assert_fails(ended, 1, '--noise_multiplier')
  assert ended.errors.startswith('Error: --aggregator must have')
  ledger = tmp_path / 'run' / 'ledger.jsonl'
  assert not ledger.exists() or not read_releases(ledger)


@pytest.mark.slow
def test_nothing_follows_the_error_of_a_users_module(tmp_path, cache_dir):
  path = tmp_path / 'mine.py'
  path.write_text(
    'from tasks.data import own\n\n\ndef create(split):\n  pass\n'
  )
  flags = _flags(tmp_path / 'run', cache_dir, task=f'{path}:create')
  ended = train_command.finish(train_command.start(flags))
  _assert_fails(ended, 2, '--task must be a function that returns', 'NoneType')


@pytest.mark.slow
def test_a_full_disk(tmp_path, cache_dir):
  often = dict(rounds_per_checkpoint=1, update_rounds=None)
  with processes.mounted(tmp_path / 'disk', 'size=2m') as disk:
    # A checkpoint of the model and its last update takes 1.3 MB: one fits.
    ended = _train(disk / 'run', cache_dir, **often)
    _assert_fails(
      *(ended, 5, 'The checkpoint of round 1 could not be written'),
      'No space left on device',
    )
    subprocess.run(['mount', '-o', 'remount,size=8m', str(disk)], check=True)
    result = run_small(
      FED_AVG | dict(rounds_per_checkpoint=1), disk / 'run', cache_dir
    )
    assert result.message == 'Finished 2 rounds.'
    metrics = pd.read_csv(disk / 'run' / 'metrics.csv')
    assert metrics['round_num'].tolist() == [0, 1, 2]


def test_a_folder_that_cannot_be_written(tmp_path, cache_dir):
  with processes.mounted(tmp_path / 'disk', 'ro') as disk:
    ended = _train(disk / 'run', cache_dir)
    _assert_fails(ended, 2, '--output_dir must be a folder', 'Read-only file')
    # Nor a cache that cannot be.
    _assert_fails(_train(tmp_path / 'run', disk), 5, 'Read-only file system')
