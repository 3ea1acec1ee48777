"""Tests of the training binary, as a user runs it."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pandas as pd
import pytest

from tests import processes

_ROOT = pathlib.Path(__file__).parent.parent.parent

_FLAGS = {
  'task': 'embedded_digits',
  'partition': 'label_skew',
  'num_clients': 40,
  'examples_per_client': 10,
  'model': 'mlp',
  'algorithm': 'fed_avg',
  'clients_per_round': 8,
  'num_rounds': 2,
  'local_steps': 3,
  'batch_size': 5,
  'client_learning_rate': 0.1,
  'update_rounds': '0,1',
}


@pytest.fixture(scope='module')
def cache_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


def _command(output_dir, cache_dir, **changes):
  settings = {**_FLAGS, **changes}
  settings.update(output_dir=output_dir, cache_dir=cache_dir)
  return [
    sys.executable,
    '-m',
    'tasks.train',
    *(
      f'--{name}={value}'
      for name, value in settings.items()
      if value is not None
    ),
  ]


def _train(output_dir, cache_dir, **changes):
  return subprocess.run(
    _command(output_dir, cache_dir, **changes),
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )


def _assert_refused(result, *words):
  assert result.returncode == 2, result.stderr
  lines = result.stderr.strip().splitlines()
  assert len(lines) == 1, result.stderr
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
      subprocess.Popen(
        _command(tmp_path / 'run', cache_dir),
        cwd=_ROOT,
        stdout=output,
        stderr=terminal,
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
  assert fed_avg.returncode == 0, fed_avg.stderr
  assert 'Finished 2 rounds' in fed_avg.stdout
  # TensorFlow's start-up messages do not reach the terminal.
  assert fed_avg.stderr == ''
  ce = _train(
    tmp_path / 'ce',
    cache_dir,
    algorithm='ce_fed_avg',
    clipping_norm_from=tmp_path / 'fed_avg',
  )
  assert ce.returncode == 0, ce.stderr
  dp = _train(
    tmp_path / 'dp',
    cache_dir,
    algorithm='dp_fed_avg',
    clipping_norm_from=tmp_path / 'fed_avg',
    sampling='poisson',
    target_epsilon=8,
    target_delta=1e-3,
  )
  assert dp.returncode == 0, dp.stderr

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
  assert 'not in any epsilon' in config['clipping_norm_source']
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

  # The same command again has nothing to do, and charges nothing.
  before = (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes()
  again = _train(tmp_path / 'fed_avg', cache_dir)
  assert again.returncode == 0
  assert (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes() == before

  # Another configuration in the same folder is refused with the difference.
  other = _train(tmp_path / 'fed_avg', cache_dir, local_steps=4)
  _assert_refused(other, '--output_dir', 'local_steps was 3 and is 4')
  assert (tmp_path / 'fed_avg' / 'metrics.csv').read_bytes() == before


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(clients_per_round=41), ['--clients_per_round', '40', '41']),
    (dict(num_rounds=0), ['--num_rounds', 'at least 1', '0']),
    (dict(local_steps='x'), ['--local_steps', 'x']),
    (dict(client_learning_rate=-1), ['--client_learning_rate', '-1']),
    (dict(client_learning_rate='nan'), ['--client_learning_rate', 'nan']),
    (dict(algorithm='sgd'), ['--algorithm', 'fed_avg', "'sgd'"]),
    (dict(task=None), ['--task', 'must be given']),
    (dict(clipping_norm=1), ['--clipping_norm', 'fed_avg']),
    (dict(algorithm='ce_fed_avg'), ['--clipping_norm', 'must be given']),
    (dict(target_epsilon=1), ['--target_epsilon', 'adds no noise']),
    (
      dict(algorithm='dp_fed_avg', clipping_norm=1, target_epsilon=1),
      ['--target_delta', 'must be given'],
    ),
    (
      dict(algorithm='dp_fed_avg', clipping_norm=1, target_delta=1e-3),
      ['--target_epsilon', '--noise_multiplier'],
    ),
    (
      dict(
        algorithm='dp_fed_avg',
        clipping_norm=1,
        target_delta=1e-3,
        target_epsilon=1,
        sampling='round_robin',
      ),
      ['--sampling', 'poisson', 'round_robin'],
    ),
    (dict(audit_canaries=100), ['--audit_canaries', 'fed_avg', '100']),
    (dict(audit_canaries=9), ['--audit_canaries', 'at least 10', '9']),
    (dict(update_rounds='1,b'), ['--update_rounds', "'b'"]),
    (dict(sampling='all'), ['--sampling', "'all'"]),
    (dict(seed=-1), ['--seed', '-1']),
    (
      dict(algorithm='ce_fed_avg', clipping_norm_from='/nowhere'),
      ['--clipping_norm_from', "'/nowhere', which has no config.json"],
    ),
    (dict(nonsense=1), ['nonsense']),
  ],
)
def test_bad_flags_are_refused_in_one_line(tmp_path, cache_dir, changes, words):
  result = _train(tmp_path / 'run', cache_dir, **changes)
  _assert_refused(result, *words)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(model='vgg'), ['--model', 'mlp', "'vgg'"]),
    (dict(partition='random'), ['--partition', 'label_skew', "'random'"]),
  ],
)
def test_what_does_not_exist_is_refused_in_one_line(
  tmp_path, cache_dir, changes, words
):
  result = _train(tmp_path / 'run', cache_dir, **changes)
  _assert_refused(result, *words)
  assert not (tmp_path / 'run').exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path, cache_dir):
  (tmp_path / 'thesis.tex').write_text('x')
  result = _train(tmp_path, cache_dir)
  _assert_refused(result, '--output_dir', 'thesis.tex')
  assert {p.name for p in tmp_path.iterdir()} <= {'thesis.tex', '.lock'}


def test_ctrl_c_ends_cleanly_with_a_checkpoint_to_go_on_from(
  tmp_path, cache_dir
):
  command = _command(
    tmp_path / 'run', cache_dir, num_rounds=400, rounds_per_checkpoint=1000
  )
  process = subprocess.Popen(
    command,
    cwd=_ROOT,
    stderr=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  with processes.ended_at_last(process):
    _wait_for_round(process, tmp_path / 'run', 5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
  assert process.returncode == 130, errors
  assert errors == ''
  assert 'the same command continues' in output
  metrics = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  done = metrics['round_num'].iloc[-1]
  assert metrics['round_num'].tolist() == list(range(done + 1))
  assert (tmp_path / 'run' / 'checkpoints' / f'round_{done}').is_dir()


@pytest.mark.slow
def test_one_program_at_a_time(tmp_path, cache_dir):
  command = _command(tmp_path / 'run', cache_dir, num_rounds=100_000)
  process = subprocess.Popen(
    command, cwd=_ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
  )
  with processes.ended_at_last(process):
    _wait_for_round(process, tmp_path / 'run', 1)
    result = _train(tmp_path / 'run', cache_dir, num_rounds=100_000)
    _assert_refused(result, '--output_dir', 'one program at a time')


def test_settings_are_printed_without_training(tmp_path, cache_dir):
  result = _train(
    tmp_path / 'run',
    cache_dir,
    row='mlp_embedded_digits',
    scale='demo',
    print_settings=True,
  )
  assert result.returncode == 0, result.stderr
  assert 'local_steps' in result.stdout
  assert not (tmp_path / 'run').exists()


def _wait_for_round(process, output_dir, round_num):
  path = output_dir / 'metrics.csv'
  # The names of the columns, and round 0.
  processes.wait_for(
    lambda: processes.num_lines(path) >= round_num + 2, process
  )
