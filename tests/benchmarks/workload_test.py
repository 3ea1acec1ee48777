"""Tests of the workloads, and that everything measured does the same work."""

import json
import pathlib

import numpy as np
import pytest

pytest.importorskip('tensorflow_federated')

from benchmarks import (  # noqa: E402
  bare,
  federated,
  processes,
  start_up,
  stock,
  workload,
)
from benchmarks.peers import export, work_file  # noqa: E402

_SMALL = workload.Workload(
  'mlp', 4, local_steps=3, batch_size=8, num_rounds=2, client_learning_rate=0.1
)


def test_the_perceptron_has_the_papers_round():
  mlp = workload.WORKLOADS['mlp']
  assert (mlp.clients_per_round, mlp.local_steps, mlp.batch_size) == (
    80,
    32,
    64,
  )


def test_a_client_has_different_examples_and_the_test_has_others():
  rows = _SMALL.partition()
  assert [len(set(r)) for r in rows] == [125] * 4
  examples, test = _SMALL.examples(), _SMALL.test_examples()
  assert np.stack(rows).max() < len(examples['y'])
  assert len(test['y']) == 1000
  assert examples['x'].shape[1:] == test['x'].shape[1:] == (28, 28, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
  'mode', ['ours', 'ours_secure', 'ours_correlated', 'ours_fed_avg']
)
def test_all_rounds_are_timed(mode, tmp_path):
  result = federated.MODES[mode](_SMALL, tmp_path)
  assert len(result['seconds']) == _SMALL.total_rounds == 5
  assert min(result['seconds']) > 0
  assert json.loads(json.dumps(result)) == result
  lines = (tmp_path / 'metrics.csv').read_text().splitlines()
  assert len(lines) == 1 + 1 + 5  # The heading, the initial model, the rounds.
  assert (tmp_path / 'ledger.jsonl').exists() == (mode != 'ours_fed_avg')


@pytest.mark.slow
@pytest.mark.parametrize('context', ['ours', 'native'])
@pytest.mark.parametrize('kind', stock.PROCESSES)
def test_rounds_of_tffs_processes_are_timed(kind, context):
  result = processes.run_python(['-m', 'benchmarks.stock', context, kind, '40'])
  assert len(result['seconds']) == 2 + 9
  assert min(result['seconds']) > 0


@pytest.mark.slow
def test_a_start_is_timed():
  assert start_up.measure(num_starts=1) > 0


@pytest.mark.slow
def test_learning_is_shown_by_the_accuracy(tmp_path):
  result = federated.run_ours(_SMALL, tmp_path, private=False)
  # Chance is 0.1; 16 times the clients' 3 steps give about 0.45.
  assert result['accuracy'] > 0.2


def test_the_bare_limit_trains_on_the_same_clients():
  clients = bare.clients(_SMALL)
  rows, examples = _SMALL.partition(), _SMALL.examples()
  assert len(clients) == _SMALL.clients_per_round
  for (x, y), indices in zip(clients, rows, strict=True):
    np.testing.assert_array_equal(x, examples['x'][indices])
    np.testing.assert_array_equal(y, examples['y'][indices])
  assert bare.build(_SMALL)(*clients[0]) == _SMALL.local_steps


def test_exported_work_is_the_workload(tmp_path):
  work_file.write(tmp_path / 'work.npz', export.create_work(_SMALL))
  work = work_file.read(tmp_path / 'work.npz')
  assert work.settings['total_rounds'] == 5
  assert work.x.shape == (4, 125, 28, 28, 1)
  rows = _SMALL.partition()[3]
  np.testing.assert_array_equal(work.y[3], _SMALL.examples()['y'][rows])
  assert set(work.weights) == {
    f'dense_{layer}_{part}' for layer in (0, 1) for part in ('kernel', 'bias')
  }
  hidden = np.maximum(
    work.test_x.reshape(1000, -1) / 255 @ work.weights['dense_0_kernel'], 0
  )
  logits = hidden @ work.weights['dense_1_kernel']
  log_sum = np.log(np.exp(logits).sum(1))
  loss = np.mean(log_sum - logits[np.arange(1000), work.test_y])
  assert loss == pytest.approx(work.test_loss, rel=1e-5)


def test_batches_are_full_and_pass_after_pass():
  work = work_file.Work(
    settings=dict(local_steps=5, batch_size=4),
    x=np.arange(10, dtype=np.uint8).reshape(1, 10, 1, 1, 1),
    y=np.arange(10, dtype=np.int32).reshape(1, 10),
    test_x=np.zeros([0, 1, 1, 1], np.uint8),
    test_y=np.zeros([0], np.int32),
    weights={},
    test_loss=0.0,
  )
  x, y = work.batches(0, np.random.default_rng(0))
  assert y.shape == (5, 4)
  np.testing.assert_array_equal(x.reshape(5, 4), y)
  # Each of the two passes holds every example once.
  assert sorted(y.reshape(-1)[:10]) == list(range(10))
  assert sorted(y.reshape(-1)[10:]) == list(range(10))
  assert list(y.reshape(-1)[:10]) != list(y.reshape(-1)[10:])


def test_every_peer_has_pinned_versions():
  folder = pathlib.Path(export.__file__).parent
  for name in ('torch', 'pfl', 'flower', 'fedjax'):
    lines = (folder / f'{name}.txt').read_text().splitlines()
    pins = [line for line in lines if not line.startswith('#')]
    assert pins
    assert all('==' in line for line in pins)
