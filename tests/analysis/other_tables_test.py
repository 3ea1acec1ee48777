"""Tests of the tables on what the paper does not tabulate."""

from analysis import other_tables
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
  table = other_tables.bfloat16_table(run_folders.paired_runs(tmp_path))
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


def test_model_clipping_is_compared_with_difference_clipping(tmp_path):
  for seed, models in enumerate((0.94, 0.941, 0.942)):
    run_folders.write_named_runs(
      tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}, seed
    )
    run_folders.write_named_run(
      tmp_path,
      *_MNIST,
      'model_clipping_fed_avg',
      models,
      seed=seed,
      variants=('half_model_norm',),
    )
  paired = run_folders.paired_runs(tmp_path)
  # The thresholds are 9 and 1.
  assert other_tables.model_clipping_lead(paired) == {
    'model_clipping_lead': '1.10 ± 0.25',
    'model_clipping_ratio': '9',
  }
  one_seed = paired[paired['seed'] == 0]
  assert set(other_tables.model_clipping_lead(one_seed).values()) == {''}
