"""Tests of what variants change, seed by seed."""

import dataclasses

import pytest

from analysis import evidence, frame, variants
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def _write(root, place, accuracies, seed=0, names=()):
  for algorithm, accuracy in accuracies.items():
    run_folders.write_named_run(
      root, *place, algorithm, accuracy, seed=seed, variants=names
    )


def _paired(root):
  return variants.paired_runs(frame.read_results(root).runs)


def _lines(root):
  paired = _paired(root)
  frames = frame.read_results(root)
  plain = frames.runs[frames.runs['variants'] == '']
  lines = evidence.paper_lines(dataclasses.replace(frames, runs=plain))
  return variants.with_matched_steps(lines, paired)


def test_each_run_is_compared_with_its_own_seed_and_settings(tmp_path):
  for seed, shift in enumerate((0.0, 0.1)):
    _write(
      tmp_path,
      _CIFAR10,
      dict(zip(_ALGORITHMS, (0.5 + shift, 0.48, 0.4), strict=True)),
      seed,
    )
  rate = 'client_rate_0.01'
  accuracies = dict(zip(_ALGORITHMS, (0.45, 0.44, 0.43), strict=True))
  _write(tmp_path, _CIFAR10, accuracies, names=(rate,))
  _write(tmp_path, _CIFAR10, {'dp_fed_avg': 0.46}, names=('epsilon_5',))
  found = _paired(tmp_path).set_index(['algorithm', 'variants', 'seed'])
  found = found.sort_index()
  clipped = found.loc['ce_fed_avg']
  assert clipped['drop'][''].to_list() == pytest.approx([2.0, 12.0])
  assert clipped['drop'][rate].to_list() == pytest.approx([1.0])
  private = found.loc['dp_fed_avg']
  assert private['dp_drop'][rate].to_list() == pytest.approx([1.0])
  # The CE-FedAvg of the row: it has no ε.
  assert private['dp_drop']['epsilon_5', 0] == pytest.approx(2.0)
  assert private['gain']['epsilon_5', 0] == pytest.approx(6.0)


def test_matched_steps_show_what_is_left_of_a_drop(tmp_path):
  for seed, left in enumerate((0.001, 0.002, 0.003)):
    _write(tmp_path, _CIFAR10, {'fed_avg': 0.5, 'ce_fed_avg': 0.48}, seed)
    _write(
      tmp_path,
      _CIFAR10,
      {'ce_fed_avg': 0.5 - left},
      seed,
      ('matched_steps',),
    )
  # A row without them is left out.
  _write(tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93})
  lines = _lines(tmp_path)
  (line,) = variants.matched_table(lines).to_dict('records')
  assert line['row'] == _CIFAR10[0]
  assert line['drop, paper'] == '7.39'
  assert line['drop, η_g = 1'] == '2.00 ± 0.00'
  assert line['drop, η_g = 2'] == '0.20 ± 0.25'
  assert line['gained by η_g = 2'] == '1.80 ± 0.25'
  assert variants.matched_counts(lines) == {
    'matched_words': (
      'MLP on CIFAR-10, IID: 0.20 ± 0.25 of 2.00 ± 0.00 points'
    ),
    'matched_left': 0,
    'matched_above': 0,
    'matched_none': 1,
    'matched_tested': 1,
  }


def test_steps_are_compared_by_the_averaged_updates(tmp_path):
  for algorithm, names, norms in (
    ('fed_avg', (), (1.0, 0.5)),
    ('ce_fed_avg', (), (0.5, 0.125)),
    ('ce_fed_avg', ('matched_steps',), (0.5, 0.125)),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_CIFAR10,
      algorithm,
      0.5,
      variants=names,
      updates={
        t: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]
        for t, norm in zip((0, 8), norms, strict=True)
      },
    )
  (line,) = variants.matched_table(_lines(tmp_path)).to_dict('records')
  # A half and a quarter: √(1 / 8), and twice of it.
  assert line["steps over FedAvg's, η_g = 1 and 2"] == '0.35 and 0.71'


def test_explanations_stand_beside_the_papers_drops(tmp_path):
  _write(
    tmp_path, _CIFAR10, dict(zip(_ALGORITHMS, (0.5, 0.48, 0.4), strict=True))
  )
  assert variants.explanation_table(_paired(tmp_path)).empty
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'ce_fed_avg',
    0.42,
    variants=['half_averaged_norm_cifar10'],
  )
  assert variants.nearest_explanations(_paired(tmp_path)) == ''
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'dp_fed_avg',
    0.41,
    variants=['half_averaged_norm_cifar10'],
  )
  paired = _paired(tmp_path)
  plain, other = variants.explanation_table(paired).to_dict('records')
  assert plain['η_l'] == other['η_l'] == '0.1'
  assert (plain['c'], other['c']) == ('1.000', '0.162 *')
  assert [plain[f'{drop} drop, ours'] for drop in ('clipping', 'DP')] == [
    '2.00',
    '8.00',
  ]
  assert [other[f'{drop} drop, ours'] for drop in ('clipping', 'DP')] == [
    '8.00',
    '1.00',
  ]
  # |8 - 7.39| + |1 - 0.90|, against 5.39 + 7.10.
  assert variants.nearest_explanations(paired) == (
    'on CIFAR-10 η_l = 0.1 with c = 0.162 *, which is 0.71 points away in sum'
  )


def test_mechanisms_stand_side_by_side_by_budget(tmp_path):
  _write(tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93})
  _write(tmp_path, _MNIST, {'dp_fed_avg': 0.92})
  assert variants.mechanism_table(_paired(tmp_path)).empty
  for names, accuracy, privacy in (
    (('fixed_size',), 0.85, {'relation': 'replace_one'}),
    (('paper_sampling',), 0.92, {'actual_epsilon': 5.88}),
    (('epsilon_5',), 0.925, {'epsilon': 5.0, 'actual_epsilon': 5.0}),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_MNIST,
      'dp_fed_avg',
      accuracy,
      variants=names,
      privacy=privacy,
    )
  table = variants.mechanism_table(_paired(tmp_path))
  assert table['ε'].to_list() == ['1.5', '1.5', '1.5', '5']
  assert table['ε that holds'].to_list() == ['1.50', '5.88', '1.50', '5.00']
  assert table['relation'].to_list() == [
    'add-or-remove-one',
    'replace-one',
    'replace-one',
    'add-or-remove-one',
  ]
  assert table['drop from CE-FedAvg'].to_list() == [
    '1.00',
    '1.00',
    '8.00',
    '0.50',
  ]
  # None that needs no secret draw.
  assert variants.without_draw(_paired(tmp_path)) == {
    'turns': '',
    'better_noise': '',
  }


def test_who_cannot_draw_cohorts_sees_what_it_costs(tmp_path):
  for seed in range(3):
    _write(tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}, seed)
    for names, accuracy in (
      ((), 0.92),
      (('banded',), 0.90),
      (('blt',), 0.91),
      (('epsilon_5', 'banded'), 0.92),
    ):
      _write(tmp_path, _MNIST, {'dp_fed_avg': accuracy}, seed, names)
  found = variants.without_draw(_paired(tmp_path))
  assert found['turns'] == (
    'on MNIST at ε = 1.5, Poisson cohorts 1.00 ± 0.00, banded noise 3.00 ± '
    '0.00, BLT noise 2.00 ± 0.00; on MNIST at ε = 5, banded noise 1.00 ± 0.00'
  )
  # At ε = 5 the other one was not run.
  assert found['better_noise'] == 'BLT noise in 1 of 1'


def test_runs_outside_of_the_table_are_left_out(tmp_path):
  run_folders.write_run(tmp_path / 'run', client_learning_rate=0.02)
  assert _paired(tmp_path).empty
  assert variants.mechanism_table(_paired(tmp_path)).empty
  assert variants.explanation_table(_paired(tmp_path)).empty


def test_what_was_not_run_is_listed(tmp_path):
  _write(tmp_path, _MNIST, {'dp_fed_avg': 0.9}, 1, ('banded',))
  missing = variants.missing_runs(frame.read_results(tmp_path).runs)
  place = '`table3_mlp_mnist_noniid`, paper'
  assert f'{place}, banded: DP-FedAvg, seeds 0, 2' in missing
  assert any(
    line.startswith(f'{place}: FedAvg, seeds 0, 1, 2') for line in missing
  )
