"""Tests of the local steps that flags choose."""

import numpy as np
import pandas as pd
import pytest

from tasks import estimate_constants
from tasks.algorithms import experiment, local_steps
from tasks.running import run_folder
from tests.tasks import small_runs
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
    (
      dict(local_step='sharpness_aware', sharpness_rho=0.2),
      steps.SharpnessAware(0.2),
    ),
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
  assert local_steps.build(config) == expected
  assert local_steps.is_plain(config) == (not settings)


def test_the_rate_decays_in_the_step_that_is_chosen():
  step = local_steps.build(_config(**_MOMENTUM, client_rate_decay=0.5))
  assert step.step == steps.Momentum(0.5)
  np.testing.assert_allclose(
    [step.factor(q, t) for q, t in ((0, 0), (3, 0), (0, 2), (3, 2))],
    [1, 1, 0.25, 0.25],
  )


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
    (
      dict(local_step='sharpness_aware', sharpness_rho=0.0),
      '`sharpness_rho` must be positive',
    ),
    (dict(client_rate_decay=1.5), '`client_rate_decay` must be at most 1'),
    (
      dict(small_runs.DP_FED_AVG, audit_canaries=10, client_rate_decay=0.5),
      '`client_rate_decay` must not be given with `audit_canaries`',
    ),
  ],
)
def test_settings_that_do_not_fit_are_refused(changes, words):
  with pytest.raises(ValueError, match=words):
    _config(**changes)


def test_a_run_takes_the_steps_that_its_settings_choose(tmp_path):
  norms = {}
  for name, settings in {
    'sgd': {},
    'decays': dict(client_rate_decay=0.5),
    'momentum': _MOMENTUM,
  }.items():
    folder = tmp_path / name
    small_runs.run_small(
      {**small_runs.FED_AVG, **settings}, folder, tmp_path / 'cache'
    )
    metrics = pd.read_csv(folder / 'metrics.csv')
    norms[name] = metrics['update_norm_mean'].to_numpy()[1:]
    saved = small_runs.read_json(folder / 'config.json')['experiment']
    assert settings.items() <= saved.items()
  # With one step, a round t has 0.5^t times the update; the first round is
  # the same, and so is the model before the second.
  np.testing.assert_allclose(
    norms['decays'], norms['sgd'] * [1, 0.5], rtol=1e-6
  )
  # A velocity that begins with each round is the gradient for one step.
  np.testing.assert_allclose(norms['momentum'], norms['sgd'], rtol=1e-6)


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


def test_constants_are_estimated_along_the_steps_of_the_paper_alone(tmp_path):
  folder = tmp_path / 'run'
  small_runs.run_small(
    {**small_runs.FED_AVG, 'num_rounds': 1, **_MOMENTUM},
    folder,
    tmp_path / 'cache',
  )
  with pytest.raises(ValueError, match='found `local_step` momentum'):
    estimate_constants.estimate(run_folder.RunFolder(folder))
