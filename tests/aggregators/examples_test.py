"""Runs the example scripts of the aggregators as a user would."""

import pathlib
import runpy

import pytest

_FOLDER = pathlib.Path(__file__).parents[2] / 'examples' / 'aggregators'

# Lines that each script prints.
_EXPECTED = {
  'adaptive_dp_mean.py': ['near the median: True'],
  'clipped_mean.py': ['mean [0.2 0.5]', 'clipped_count 1', 'zeroed_count 1'],
  'correlated_dp_mean.py': [
    'participations of a client 2',
    'epsilon after half of the rounds 498',
    'weights [ 1. -2.]',
  ],
  'correlated_noise.py': [
    'independent noise: error of the running sums 4.0',
    'tree noise: error of the running sums 2.9',
    'blt noise: error of the running sums 2.0',
  ],
  'difference_clipping.py': [
    'clipping_norm 1.0 clipped_count 3 mean [1. 0.]',
    'clipping_norm 1.65 clipped_count 3 mean [1.65 0.  ]',
    'clipping_norm 2.72 clipped_count 2 mean [2.54 0.  ]',
  ],
  'distributed_gaussian_mean.py': [
    'mean of the elements 0.01',
    'noise on the sum 0.5',
    'noise on the mean 0.06',
  ],
  'dp_mean.py': ['weights [ 1. -2.]'],
  'gaussian_noise.py': [
    'standard deviation 1.0',
    'the same noise again: False',
    "measurements ['clipping', 'clipping_norm']",
  ],
  'local_gaussian_noise.py': [
    '4 clients: standard deviation of the sum 2.0',
    '9 clients: standard deviation of the sum 2.0',
    '16 clients: standard deviation of the sum 2.0',
  ],
  'median.py': ['mean [200001.2 199998.8]', 'median [ 2. -1.]'],
  'per_layer_clipping.py': [
    'sensitivity 0.5',
    'norm of the kernel 0.3',
    'norm of the bias 0.4',
  ],
  'random_quantiser.py': ['off by less than 0.01: True', 'clipping norm 1.0'],
  'secure_sum.py': [
    'alone [1.  1.5] out of bounds: 1',
    'clipped [0.6 1.3] out of bounds: 0',
  ],
  'smoothed_normalization.py': [
    'norm 0.25 becomes 0.2',
    'norm 1.0 becomes 0.5',
    'norm 9.0 becomes 0.9',
  ],
  'trimmed_mean.py': ['trimmed mean [ 2. -1.]'],
  'update_norms.py': [
    'update_norm_mean 3.0',
    'update_norm_std 1.633',
    'update_norm_min 1.0',
    'update_norm_max 5.0',
    'update_norm_nonfinite_count 0.0',
    'clipped_fraction 0.333',
  ],
}


def test_every_script_is_run():
  assert {path.name for path in _FOLDER.glob('*.py')} == set(_EXPECTED)


def test_every_script_makes_tensorflow_quiet_before_it_is_imported():
  for path in _FOLDER.glob('*.py'):
    text = path.read_text()
    assert text.index('from tff_clipping') < text.index('import tensorflow')


# One round, of a process that is soon compiled.
_QUICK = ('clipped_mean.py', 'gaussian_noise.py', 'secure_sum.py')


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=[] if name in _QUICK else [pytest.mark.slow])
    for name in sorted(_EXPECTED)
  ],
)
def test_script_prints_what_it_should(name, capsys):
  runpy.run_path(str(_FOLDER / name), run_name='__main__')
  printed = capsys.readouterr().out.splitlines()
  for line in _EXPECTED[name]:
    assert line in printed
