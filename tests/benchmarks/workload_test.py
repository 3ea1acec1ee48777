"""Tests of the workloads, and that everything measured does the same work."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

pytest.importorskip('tensorflow_federated')

from benchmarks import (  # noqa: E402
  bare,
  federated,
  processes,
  workload,
)
from benchmarks.peers import compare, work_file  # noqa: E402
from tasks.models import keras_models  # noqa: E402

_SMALL = workload.Workload(
  'mlp', 4, local_steps=3, batch_size=8, client_learning_rate=0.1, num_rounds=2
)


def test_a_client_has_different_examples_and_the_test_has_others():
  rows = _SMALL.partition()
  assert [len(set(r)) for r in rows] == [125] * 4
  examples, test = workload.load_digits()
  assert np.stack(rows).max() < len(examples['y'])
  assert len(test['y']) == 1000
  assert examples['x'].shape[1:] == test['x'].shape[1:] == (28, 28, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('mode', 'least_accuracy'),
  # Chance is 0.1; 16 times the clients' 3 steps give about 0.45.
  [('ours', None), ('ours_fed_avg', 0.2)],
)
def test_all_rounds_are_timed_and_learning_shows(
  mode, least_accuracy, tmp_path
):
  result = federated.MODES[mode](_SMALL, tmp_path)
  if least_accuracy is not None:
    assert result['accuracy'] > least_accuracy
  assert len(result['seconds']) == _SMALL.num_rounds
  assert min(result['seconds']) > 0
  assert json.loads(json.dumps(result)) == result
  lines = (tmp_path / 'metrics.csv').read_text().splitlines()
  assert len(lines) == 1 + 1 + 5  # The heading, the initial model, the rounds.
  assert (tmp_path / 'ledger.jsonl').exists() == (mode != 'ours_fed_avg')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('kind', 'context'), [('fed_avg', 'native'), ('fed_eval', 'ours')]
)
def test_rounds_of_tffs_processes_are_timed(kind, context):
  program = ['-m', 'benchmarks.tff_processes', kind, '40', context]
  with processes.Program(program) as running:
    result = running.result()
  assert len(result['seconds']) == workload.NUM_CONTEXT_ROUNDS
  assert min(result['seconds']) > 0


def test_the_bare_limit_trains_on_the_same_clients():
  clients = bare.clients(_SMALL)
  rows, (examples, _) = _SMALL.partition(), workload.load_digits()
  assert len(clients) == _SMALL.clients_per_round
  for (x, y), indices in zip(clients, rows, strict=True):
    np.testing.assert_array_equal(x, examples['x'][indices])
    np.testing.assert_array_equal(y, examples['y'][indices])
  assert bare.build(_SMALL)(*clients[0]) == _SMALL.local_steps


def test_the_work_of_the_peers_is_the_workload(tmp_path):
  compare.write_work(tmp_path / 'work.npz', _SMALL)
  work = work_file.Work(tmp_path / 'work.npz')
  assert work.x.shape == (4, 125, 28, 28, 1)
  rows = _SMALL.partition()[3]
  np.testing.assert_array_equal(work.y[3], workload.load_digits()[0]['y'][rows])
  model = keras_models.create_mlp(workload.IMAGE_SHAPE, workload.NUM_CLASSES)
  kernel, bias, last_kernel, last_bias = work.weights
  images = work.test_x[:100]
  hidden = np.maximum(images.reshape(100, -1) / 255 @ kernel + bias, 0)
  np.testing.assert_allclose(
    hidden @ last_kernel + last_bias,
    model.predict(images, verbose=0),
    # Sums of 784 products in another order.
    atol=1e-4,
  )


def test_batches_are_full_and_pass_after_pass(tmp_path):
  small = dataclasses.replace(_SMALL, local_steps=50, batch_size=5)
  compare.write_work(tmp_path / 'work.npz', small)
  work = work_file.Work(tmp_path / 'work.npz')
  # Which example a batch has, in place of its label.
  work.y = np.tile(np.arange(125), (4, 1))
  x, y = work.batches(2, np.random.default_rng(0))
  assert y.shape == (50, 5)
  np.testing.assert_array_equal(x, work.x[2][y])
  # Each of the two passes holds every example once.
  first, second = y.reshape(2, 125)
  assert sorted(first) == sorted(second) == list(range(125))
  assert list(first) != list(second)


def test_every_peer_has_pinned_versions():
  folder = pathlib.Path(compare.__file__).parent
  for name in ('torch', 'pfl', 'flower', 'fedjax'):
    lines = (folder / f'{name}.txt').read_text().splitlines()
    pins = [line for line in lines if not line.startswith('#')]
    assert pins
    assert all('==' in line for line in pins)
