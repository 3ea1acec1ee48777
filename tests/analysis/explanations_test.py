"""Tests of what may explain the paper's drops."""

from analysis import explanations
from tests.analysis import run_folders

_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def test_explanations_stand_beside_the_papers_drops(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _CIFAR10, dict(zip(_ALGORITHMS, (0.5, 0.48, 0.4), strict=True))
  )
  assert explanations.explanation_table(run_folders.paired_runs(tmp_path)).empty
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'ce_fed_avg',
    0.42,
    variants=['half_averaged_norm_cifar10'],
  )
  assert (
    explanations.nearest_explanations(run_folders.paired_runs(tmp_path)) == ''
  )
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'dp_fed_avg',
    0.41,
    variants=['half_averaged_norm_cifar10'],
  )
  paired = run_folders.paired_runs(tmp_path)
  plain, other = explanations.explanation_table(paired).to_dict('records')
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
  assert explanations.nearest_explanations(paired) == (
    'on CIFAR-10 η_l = 0.1 with c = 0.162 *, which is 0.71 points away in sum'
  )
