"""Tests of what bfloat16 changes."""

from analysis import bfloat16
from tests.analysis import run_folders

_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')
_MNIST = ('table3_mlp_mnist_noniid', 'paper')


def test_bfloat16_is_compared_with_float32_seed_by_seed(tmp_path):
  for seed, (single, half) in enumerate(
    [(0.50, 0.499), (0.52, 0.518), (0.54, 0.537)]
  ):
    run_folders.write_named_runs(tmp_path, _CIFAR10, {'fed_avg': single}, seed)
    run_folders.write_named_runs(
      tmp_path, _CIFAR10, {'fed_avg': half}, seed, ('bfloat16',)
    )
  # One without a run in float32 beside it.
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.9}, 0, ('bfloat16',)
  )
  table = bfloat16.accuracy_table(run_folders.paired_runs(tmp_path))
  (line,) = table.to_dict('records')
  assert line == {
    'row': _CIFAR10[0],
    'scale': _CIFAR10[1],
    'algorithm': 'FedAvg',
    'float32 (%)': '52.00 ± 4.97',
    'bfloat16 (%)': '51.80 ± 4.72',
    'difference (points)': '-0.20 ± 0.25',
    'seeds': 3,
  }
