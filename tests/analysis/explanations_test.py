"""Tests of what may explain the paper's drops."""

import pytest

from analysis import explanations
from tests.analysis import run_folders


def _found(root):
  return explanations.find_explanations(run_folders.paired_runs(root))


_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def test_explanations_stand_beside_the_papers_drops(tmp_path):
  run_folders.write_named_runs(
    tmp_path, _CIFAR10, dict(zip(_ALGORITHMS, (0.5, 0.48, 0.4), strict=True))
  )
  assert explanations.explanation_table(_found(tmp_path)).empty
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'ce_fed_avg',
    0.42,
    variants=['half_averaged_norm_cifar10'],
  )
  assert explanations.nearest_explanations(_found(tmp_path)) == ''
  run_folders.write_named_run(
    tmp_path,
    *_CIFAR10,
    'dp_fed_avg',
    0.41,
    variants=['half_averaged_norm_cifar10'],
  )
  found = _found(tmp_path)
  plain, other = explanations.explanation_table(found).to_dict('records')
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
  assert explanations.nearest_explanations(found) == (
    'on CIFAR-10 η_l = 0.1 with c = 0.162 *, which is 0.71 points away in sum'
  )


@pytest.mark.parametrize(
  ('plain', 'words'),
  [
    # 2.0 and 0.3 points, where the paper has 1.84 and 0.29.
    ((0.95, 0.93, 0.927), 'do not tell them apart'),
    # 5.0 and 4.0: the other rate explains it, and is named.
    ((0.95, 0.90, 0.86), 'η_l = 0.03'),
  ],
)
def test_nothing_is_to_explain_where_the_plain_run_is_as_in_the_paper(
  tmp_path, plain, words
):
  for variants, finals in (
    ([], plain),
    (['client_rate_0.03'], (0.95, 0.93, 0.927)),
  ):
    for seed, noise in enumerate((0.0, 0.002, -0.002)):
      for algorithm, final in zip(_ALGORITHMS, finals, strict=True):
        run_folders.write_named_run(
          tmp_path,
          'table3_mlp_mnist_noniid',
          'paper',
          algorithm,
          final + (noise if algorithm == 'ce_fed_avg' else 0.0),
          seed=seed,
          variants=variants,
        )
  assert words in explanations.nearest_explanations(_found(tmp_path))


def test_a_way_to_choose_c_is_judged_by_all_the_data(tmp_path):
  for row, scale, variants, finals in (
    # 1.84 and 0.29 in the paper.
    ('table3_mlp_mnist_noniid', 'paper', [], (0.95, 0.93, 0.927)),
    # 7.39 and 0.90.
    (*_CIFAR10, [], (0.5, 0.48, 0.4)),
    (*_CIFAR10, ['client_rate_0.03'], (0.5, 0.48, 0.4)),
  ):
    for seed, noise in enumerate((0.0, 0.002, -0.002)):
      for algorithm, final in zip(_ALGORITHMS, finals, strict=True):
        run_folders.write_named_run(
          tmp_path,
          row,
          scale,
          algorithm,
          final + (noise if algorithm == 'ce_fed_avg' else 0.0),
          seed=seed,
          variants=variants,
        )
  # No explanation was run on MNIST, which may need none.
  assert not explanations.covered_drops(_found(tmp_path))
  run_folders.write_named_run(
    tmp_path,
    'table3_mlp_mnist_noniid',
    'paper',
    'ce_fed_avg',
    0.93,
    variants=['client_rate_0.03'],
  )
  assert explanations.covered_drops(_found(tmp_path)) == (
    # By noise 8.00, one more seed within 4.303 · 0.2 · √(4 / 3) = 0.99 of it.
    "with half of the mean norm of the clients' updates on MNIST "
    '(it misses by 6.11 on CIFAR-10)'
  )
