"""Tests of the local steps that flags choose."""

import shutil

import numpy as np
import pandas as pd
import pytest
import tree

from tasks.algorithms import experiment, local_steps
from tests.tasks import small_runs
from tff_clipping import storage_errors
from tff_clipping.learning import steps

_MOMENTUM = dict(local_step='momentum', local_momentum=0.5)


def _config(**changes):
  return experiment.ExperimentConfig(**{**small_runs.FED_AVG, **changes})


@pytest.mark.parametrize(
  ('settings', 'expected'),
  [
    ({}, steps.Sgd()),
    (_MOMENTUM, steps.Momentum(0.5)),
    (dict(local_step='proximal', proximal_mu=0.1), steps.Proximal(0.1)),
  ],
)
@pytest.mark.parametrize(
  'algorithm',
  [
    small_runs.FED_AVG,
    dict(algorithm='model_clipping_fed_avg', clipping_norm=1.0),
    small_runs.DP_FED_AVG,
  ],
)
def test_settings_choose_the_step_of_every_algorithm(
  settings, expected, algorithm
):
  config = _config(**{**algorithm, **settings})
  assert local_steps.build(config, 40) == expected


_SCAFFOLD = dict(local_step='scaffold')


@pytest.mark.parametrize(
  ('settings', 'expected'),
  [
    (_SCAFFOLD, steps.Scaffold(8 / 40)),
    (
      _SCAFFOLD | dict(algorithm='ce_fed_avg', clipping_norm=0.5),
      steps.Scaffold(8 / 40, 0.5),
    ),
    (small_runs.DP_FED_AVG | _SCAFFOLD, steps.Scaffold(8 / 40, 1.0)),
  ],
)
def test_clients_keep_something_for_fed_avg_and_with_a_clip(settings, expected):
  config = _config(**settings)
  assert local_steps.build(config, 40) == expected
  assert local_steps.keeps(config)
  assert not local_steps.keeps(_config())


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (
      dict(algorithm='model_clipping_fed_avg', clipping_norm=1.0),
      '`algorithm` must not be model_clipping_fed_avg',
    ),
    (
      dict(algorithm='ce_fed_avg', clipping_norm=1.0, clipping='adaptive'),
      '`clipping` must not be given for `local_step` scaffold',
    ),
    (dict(aggregator='mine:f'), '`aggregator` must not be given'),
    (
      small_runs.DP_FED_AVG | dict(audit_canaries=10),
      '`audit_canaries` must not be given',
    ),
    (
      small_runs.DP_FED_AVG | dict(sampling='fixed_size'),
      '`sampling` must be one of poisson, min_separation for '
      '.*found fixed_size: what they send tells who took part',
    ),
  ],
)
def test_settings_without_a_place_for_what_clients_keep_are_refused(
  changes, words
):
  with pytest.raises(ValueError, match=words):
    _config(**changes, **_SCAFFOLD)


@pytest.mark.parametrize('algorithm', ['fed_avg', 'dp_fed_avg'])
@pytest.mark.slow
def test_a_run_of_scaffold_goes_on_with_what_clients_keep(tmp_path, algorithm):
  settings = _SCAFFOLD | dict(
    num_rounds=3, rounds_per_checkpoint=1, noise_seed=None
  )
  if algorithm == 'dp_fed_avg':
    settings = small_runs.DP_FED_AVG | settings | dict(noise_seed=3)
    # So that two runs have the same cohorts.
    settings['sampling_seed'] = 5
  else:
    settings = {**small_runs.FED_AVG, **settings}
  whole = small_runs.run_small(settings, tmp_path / 'a', tmp_path / 'cache')
  assert whole.round_num == 3
  assert (tmp_path / 'a' / 'client_states' / 'round_3').is_dir()
  # A checkpoint and what clients keep beside it are lost: it goes back.
  if algorithm == 'dp_fed_avg':
    # Under a ledger, with a seed of the noise, it would be a new draw.
    return
  (path,) = (tmp_path / 'a' / 'checkpoints').glob('*round_3.state')
  path.unlink()
  again = small_runs.run_small(settings, tmp_path / 'a', tmp_path / 'cache')
  for one, other in zip(
    tree.flatten(again.state), tree.flatten(whole.state), strict=True
  ):
    np.testing.assert_array_equal(one, other)
  # But not without what they kept.
  shutil.rmtree(tmp_path / 'a' / 'client_states' / 'round_3')
  shutil.rmtree(tmp_path / 'a' / 'client_states' / 'round_2')
  with pytest.raises(storage_errors.StorageError, match='of another run, or l'):
    small_runs.run_small(settings, tmp_path / 'a', tmp_path / 'cache')


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(local_step='adam'), "`local_step` must be one of 'sgd', 'momentum'"),
    (dict(local_step='momentum'), '`local_momentum` must be given for `local'),
    (
      dict(_MOMENTUM, proximal_mu=0.1),
      '`proximal_mu` must be given for `local_step` proximal only, found 0.1 '
      'for momentum',
    ),
    (dict(local_momentum=0.9), 'for `local_step` momentum only, found 0.9'),
    (dict(_MOMENTUM, local_momentum=1.0), 'must be below 1, found 1.0'),
    (
      dict(local_step='proximal', proximal_mu=-1.0),
      '`proximal_mu` must be positive',
    ),
  ],
)
def test_settings_that_do_not_fit_are_refused(changes, words):
  with pytest.raises(ValueError, match=words):
    _config(**changes)


@pytest.mark.slow
def test_more_steps_with_momentum_go_further(tmp_path):
  norms = []
  for name, settings in (('sgd', {}), ('momentum', _MOMENTUM)):
    folder = tmp_path / name
    small_runs.run_small(
      {**small_runs.FED_AVG, 'local_steps': 2, 'num_rounds': 1, **settings},
      folder,
      tmp_path / 'cache',
    )
    metrics = pd.read_csv(folder / 'metrics.csv')
    norms.append(metrics['update_norm_mean'].iloc[1])
  # v_1 = g_1 + 0.5 g_0: at most half as much again of g_0, of two gradients.
  assert 1.1 < norms[1] / norms[0] < 1.5
