"""Tests of what variants change, seed by seed."""

import json
import shutil

import pytest

from analysis import explanations, frame, mechanisms, missing
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def test_each_run_is_compared_with_its_own_seed_and_settings(tmp_path):
  for seed, shift in enumerate((0.0, 0.1)):
    run_folders.write_named_runs(
      tmp_path,
      _CIFAR10,
      dict(zip(_ALGORITHMS, (0.5 + shift, 0.48, 0.4), strict=True)),
      seed,
    )
  rate = 'client_rate_0.01'
  accuracies = dict(zip(_ALGORITHMS, (0.45, 0.44, 0.43), strict=True))
  run_folders.write_named_runs(tmp_path, _CIFAR10, accuracies, names=(rate,))
  run_folders.write_named_runs(
    tmp_path, _CIFAR10, {'dp_fed_avg': 0.46}, names=('epsilon_5',)
  )
  found = run_folders.paired_runs(tmp_path).set_index(
    ['algorithm', 'variants', 'seed']
  )
  found = found.sort_index()
  clipped = found.loc['ce_fed_avg']
  assert clipped['drop'][''].to_list() == pytest.approx([2.0, 12.0])
  assert clipped['drop'][rate].to_list() == pytest.approx([1.0])
  private = found.loc['dp_fed_avg']
  assert private['dp_drop'][rate].to_list() == pytest.approx([1.0])
  # The CE-FedAvg of the row: it has no ε.
  assert private['dp_drop']['epsilon_5', 0] == pytest.approx(2.0)
  assert private['gain']['epsilon_5', 0] == pytest.approx(6.0)


def test_runs_outside_of_the_table_are_left_out(tmp_path):
  run_folders.write_run(tmp_path / 'run', client_learning_rate=0.02)
  assert run_folders.paired_runs(tmp_path).empty
  assert mechanisms.mechanism_table(run_folders.paired_runs(tmp_path)).empty
  assert not explanations.find_explanations(run_folders.paired_runs(tmp_path))


def test_a_threshold_given_by_hand_is_none_of_the_table(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.9, 'ce_fed_avg': 0.8}
  )
  found = run_folders.paired_runs(tmp_path)
  by_hand = tmp_path / 'by_hand'
  run = tmp_path / found.index[found['algorithm'] == 'ce_fed_avg'][0]
  shutil.copytree(run, by_hand)
  # One run twice: neither is chosen.
  with pytest.raises(ValueError, match='each run of the table once'):
    run_folders.paired_runs(tmp_path)
  path = by_hand / 'config.json'
  config = json.loads(path.read_text())
  config['experiment']['clipping_norm'] = 0.001
  config['clipping_norm_source'] = 'given'
  path.write_text(json.dumps(config))
  assert run_folders.paired_runs(tmp_path).index.to_list() == (
    found.index.to_list()
  )


def test_what_was_not_run_is_listed(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'dp_fed_avg': 0.9}, 1, ('banded',)
  )
  lines = missing.missing_runs(frame.read_results(tmp_path).runs)
  place = '`table3_mlp_mnist_noniid`, paper'
  assert f'{place}, banded: DP-FedAvg, seeds 0, 2' in lines
  assert any(
    line.startswith(f'{place}: FedAvg, seeds 0, 1, 2') for line in lines
  )


def test_an_unfinished_run_is_no_pair(tmp_path):
  run_folders.write_named_runs(tmp_path, _MNIST, {'fed_avg': 0.9})
  folder = run_folders.write_named_run(tmp_path, *_MNIST, 'ce_fed_avg', 0.8)
  *done, _ = (folder / 'metrics.csv').read_text().splitlines(keepends=True)
  (folder / 'metrics.csv').write_text(''.join(done))
  found = run_folders.paired_runs(tmp_path)
  assert found['algorithm'].to_list() == ['fed_avg']
