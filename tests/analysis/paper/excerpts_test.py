"""Tests of what a page shows of tables that are in files."""

from analysis.paper import evidence, excerpts, tables
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')


def _write_private(root, place, accuracy, *variants, seed=0, **privacy):
  run_folders.write_named_run(
    root,
    *place,
    'dp_fed_avg',
    accuracy,
    seed=seed,
    variants=variants,
    privacy=privacy,
  )


def test_accuracies_by_sampler_have_a_column_for_each_data_and_budget(tmp_path):
  fixed = {'relation': 'replace_one'}
  for place, accuracy in ((_MNIST, 0.92), (_CIFAR10, 0.4)):
    run_folders.write_named_run(tmp_path, *place, 'fed_avg', 0.95)
    _write_private(tmp_path, place, accuracy)
    _write_private(tmp_path, place, accuracy - 0.1, 'fixed_size', **fixed)
  _write_private(tmp_path, _MNIST, 0.94, 'epsilon_5')
  table = excerpts.mechanisms(run_folders.read_evidence(tmp_path))
  assert table.to_numpy().tolist() == [
    ['Poisson, independent', '92.00', '94.00', '40.00'],
    ['fixed P, independent', '82.00', '–', '30.00'],
  ]
  assert [*table] == [
    'cohorts, noise',
    'MNIST, ε = 1.5 (%)',
    'MNIST, ε = 5 (%)',
    'CIFAR-10, ε = 1.5 (%)',
  ]


def test_rounds_and_accountants_stand_where_there_are_several(tmp_path):
  other = (_MNIST[0], 'paper_96_rounds')
  fixed = {'relation': 'replace_one'}
  run_folders.write_named_run(tmp_path, *_MNIST, 'fed_avg', 0.95)
  _write_private(tmp_path, _MNIST, 0.92)
  _write_private(
    tmp_path, _MNIST, 0.82, 'fixed_size', accountant='rdp', **fixed
  )
  _write_private(
    *(tmp_path, _MNIST, 0.89, 'fixed_size', 'pld'), accountant='pld', **fixed
  )
  for accuracy, way in ((0.93, 'random_allocation'), (0.9, 'banded')):
    _write_private(tmp_path, other, accuracy, way)
  table = excerpts.mechanisms(run_folders.read_evidence(tmp_path))
  assert dict(table.to_numpy().tolist()) == {
    'a secret round each epoch, independent, T = 96': '93.00',
    'in turns, banded, T = 96': '90.00',
    'Poisson, independent': '92.00',
    'fixed P, independent (rdp)': '82.00',
    'fixed P, independent (pld)': '89.00',
  }


def test_best_evidence_of_noise_has_three_seeds(tmp_path):
  three = dict(zip(run_folders.THREE, (0.95, 0.93, 0.92), strict=True))
  for seed in (0, 1, 2):
    run_folders.write_named_runs(tmp_path, _MNIST, three, seed)
    table = tables.noise(run_folders.read_evidence(tmp_path), 'best')
    assert len(table) == (seed == 2)
  assert table['drop, ours'].to_list() == ['1.00 ± 0.00']


def test_the_noise_of_the_papers_cohort_has_a_mark(tmp_path):
  for seed in (0, 1, 2):
    run_folders.write_three(tmp_path, (0.9, 0.8, 0.7), seed=seed)
  found = run_folders.read_evidence(tmp_path)
  noisy = found.lines.assign(scale='reduced, the noise of P = 80')
  found = evidence.Evidence(found.frames, found.systems, found.lines[:0], noisy)
  assert tables.noise(found, 'best')['scale'].to_list() == ['reduced *']


def test_an_excerpt_of_nothing_is_empty(tmp_path):
  run_folders.write_three(tmp_path)
  found = run_folders.read_evidence(tmp_path)
  assert excerpts.mechanisms(found).empty
