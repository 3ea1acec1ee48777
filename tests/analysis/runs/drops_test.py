"""Tests of what runs of the table of experiments are compared with."""

import json

import pytest

from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def _runs(root):
  return run_folders.read(root).runs


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
  found = _runs(tmp_path).set_index(['algorithm', 'variants', 'seed'])
  found = found.sort_index()
  clipped = found.loc['ce_fed_avg']
  assert clipped['drop'][''].to_list() == pytest.approx([2.0, 12.0])
  assert clipped['drop'][rate].to_list() == pytest.approx([1.0])
  private = found.loc['dp_fed_avg']
  assert private['dp_drop'][rate].to_list() == pytest.approx([1.0])
  # The CE-FedAvg of the row: it has no ε.
  assert private['dp_drop']['epsilon_5', 0] == pytest.approx(2.0)
  assert private['gain']['epsilon_5', 0] == pytest.approx(6.0)


def test_a_name_tells_apart_what_the_settings_do_not(tmp_path):
  for names, accuracy in (((), 0.8), (('expected_norms',), 0.7)):
    run_folders.write_named_runs(
      tmp_path, _MNIST, {'ce_fed_avg': accuracy}, names=names
    )
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.9, 'dp_fed_avg': 0.6}
  )
  runs = _runs(tmp_path).set_index(['algorithm', 'variants'])
  assert runs['dp_drop']['dp_fed_avg', ''] == pytest.approx(20.0)


def test_a_run_without_a_name_is_compared_by_its_settings(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.9, 'ce_fed_avg': 0.8}
  )
  (path,) = tmp_path.glob('*-ce_fed_avg-*/config.json')
  config = json.loads(path.read_text())
  config['run'] = None
  path.write_text(json.dumps(config))
  run = _runs(tmp_path).loc[path.parent.name]
  assert run['drop'] == pytest.approx(10.0)


def test_an_unknown_variant_changes_all_algorithms(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.9, 'ce_fed_avg': 0.8}
  )
  (path,) = tmp_path.glob('*-ce_fed_avg-*/config.json')
  config = json.loads(path.read_text())
  config['run']['variants'] = ['another_rate']
  path.write_text(json.dumps(config))
  run = _runs(tmp_path).loc[path.parent.name]
  assert run['variants'] == 'another_rate'
  assert run['no_drop'] == 'no FedAvg run of the same setting'


def test_a_row_that_analysis_does_not_know_keeps_its_name(tmp_path):
  folder = run_folders.write_named_run(tmp_path, *_MNIST, 'fed_avg', 0.9)
  path = folder / 'config.json'
  path.write_text(path.read_text().replace(_MNIST[0], 'table9'))
  assert _runs(tmp_path).loc[folder.name, 'row'] == 'table9'


def test_an_unfinished_run_has_no_drop(tmp_path):
  run_folders.write_named_runs(tmp_path, _MNIST, {'fed_avg': 0.9})
  folder = run_folders.write_named_run(tmp_path, *_MNIST, 'ce_fed_avg', 0.8)
  *done, _ = (folder / 'metrics.csv').read_text().splitlines(keepends=True)
  (folder / 'metrics.csv').write_text(''.join(done))
  run = _runs(tmp_path).loc[folder.name]
  assert run['no_drop'].endswith('is not finished')


def test_equal_path_is_where_fed_avg_has_moved_as_far(tmp_path):
  for algorithm, norm, accuracies in (
    ('fed_avg', 1.0, (0.1, 0.5, 0.7, 0.8, 0.9)),
    ('ce_fed_avg', 0.5, (0.1, 0.2, 0.3, 0.4, 0.75)),
  ):
    run_folders.write_run(
      tmp_path / algorithm,
      algorithm=algorithm,
      accuracies=accuracies,
      updates={0: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]},
    )
  run = _runs(tmp_path).loc['ce_fed_avg']
  # Four steps of a half are two of one.
  assert run['equal_path_accuracy'] == pytest.approx(70.0)
  assert run['equal_path_lead'] == pytest.approx(5.0)
