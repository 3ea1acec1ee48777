"""Tests of model clipping beside difference clipping."""

from analysis import model_clipping_tables
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')


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
  assert model_clipping_tables.lead(paired) == {
    'model_clipping_lead': '1.10 ± 0.25',
    'model_clipping_ratio': '9',
  }
  one_seed = paired[paired['seed'] == 0]
  assert set(model_clipping_tables.lead(one_seed).values()) == {''}
