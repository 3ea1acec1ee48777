"""Tests of the typical privacy loss."""

import math

import numpy as np
import pytest

from analysis import typical_loss as command
from analysis.runs import typical_loss
from tests.analysis import run_folders
from tff_clipping.privacy.accounting import renyi

_RUN = dict(
  clipping_norm=0.5,
  noise_multiplier=1.5,
  sampling_prob=1 / 24,
  num_rounds=100,
  delta=1e-5,
)


def test_where_all_are_clipped_it_is_the_loss_of_dp():
  # Mironov, Talwar, Zhang 2019, at whole orders, with the conversion of
  # Triastcyn and Faltings: T D + log(1/delta) / (a - 1).
  orders = range(2, 65)
  divergences = renyi.compute_poisson_divergences(1.5, 1 / 24, orders)
  expected = min(
    100 * d + math.log(1e5) / (a - 1)
    for a, d in zip(orders, divergences, strict=True)
  )
  norms = [np.array([0.5, 0.7, 3.0]), np.array([0.5])]
  found = typical_loss.compute_epsilon(norms, **_RUN)
  assert found == pytest.approx(expected, rel=1e-9)


def test_of_updates_of_half_the_norm_it_is_that_of_twice_the_noise():
  half = typical_loss.compute_epsilon([np.full(7, 0.25)], **_RUN)
  twice = typical_loss.compute_epsilon(
    [np.ones(3)], **_RUN | dict(noise_multiplier=3.0)
  )
  assert half == pytest.approx(twice)
  # What is not finite is sent as zero, and so lowers the mean.
  mixed = typical_loss.compute_epsilon([np.array([1.0, np.nan])], **_RUN)
  assert mixed < typical_loss.compute_epsilon([np.ones(2)], **_RUN)


def test_folder_is_described_as_without_guarantee(tmp_path):
  settings = dict(
    algorithm='dp_fed_avg', sampling='poisson', privacy=run_folders.PRIVACY
  )
  rows = [('1', 5.0, 90.0, 0.2), ('2', 0.5, 90.0, 1.0), ('mean', 9.0, 90.0, '')]
  run = run_folders.write_run(tmp_path / 'run', updates={0: rows}, **settings)
  text = command.describe(run)
  expected = typical_loss.compute_epsilon(
    [np.array([5.0, 0.5])],
    **_RUN | dict(clipping_norm=1.0, num_rounds=2),
  )
  assert text.startswith(
    f'typical loss, no guarantee: epsilon {expected:.4g} at delta 1e-05, from '
    'exact norms of 1 rounds; what the plan guarantees where nothing exact is '
    'recorded: 1.5'
  )
  without = run_folders.write_run(tmp_path / 'without', **settings)
  with pytest.raises(
    ValueError, match='must have recorded updates, found none'
  ):
    command.describe(without)
  other = run_folders.write_run(tmp_path / 'other')
  with pytest.raises(ValueError, match='`algorithm` must be dp_fed_avg, found'):
    command.describe(other)
